// The kernels of token movement on random cases: every bit, and no access past the ends of tensors.
#include <gtest/gtest.h>

#include "kpage/tokens.h"

#include "gpu/device_copy.h"
#include "support/token_case.h"

namespace kpage::test {
namespace {

const Device kDevice{DeviceType::kCuda, 0};

TensorRef on_device(const HostTensor& host, const DeviceCopy& copy) {
  TensorRef ref = host.ref;
  ref.data = copy.data() + host.offset;
  ref.device = kDevice;
  return ref;
}
IndexRef on_device(const HostIndex& host, const DeviceCopy& copy) {
  IndexRef ref = host.ref;
  ref.data = reinterpret_cast<std::int32_t*>(copy.data());
  ref.device = kDevice;
  return ref;
}

Status finished(const Status& status) {
  return status.ok() && cudaDeviceSynchronize() != cudaSuccess
             ? Status(ErrorCode::kCuda, cudaGetErrorString(cudaGetLastError()))
             : status;
}

TEST(TokensGpu, GathersRandomCases) {
  expect_gathers([](GatherCase& made, std::uint64_t /*seed*/) {
    const DeviceCopy x(made.x.storage);
    const DeviceCopy index(made.index.storage);
    const DeviceCopy out(made.out.storage);
    GatherArgs args;
    args.x = on_device(made.x, x);
    args.index = on_device(made.index, index);
    args.out = on_device(made.out, out);
    const Status status = finished(gather_rows(args));
    out.download(made.out.storage);
    return status;
  });
}

TEST(TokensGpu, InvertsRandomCases) {
  expect_inverts([](InvertCase& made, std::uint64_t /*seed*/) {
    const DeviceCopy index(made.index.storage);
    const DeviceCopy inverse(made.inverse.storage);
    InvertArgs args;
    args.index = on_device(made.index, index);
    args.inverse = on_device(made.inverse, inverse);
    const Status status = finished(invert_index(args));
    inverse.download(made.inverse.storage);
    return status;
  });
}

}  // namespace
}  // namespace kpage::test
