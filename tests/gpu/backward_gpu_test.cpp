// The backward kernels on random layouts: gradients against the oracle, padding, guards, ends of
// tensors, and no trace of what padding holds.
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kpage/plan.h"

#include "gpu/device_copy.h"
#include "kernels/sm90/backward/launch.h"
#include "oracle/accuracy.h"
#include "support/host_tensor.h"
#include "support/random_case.h"
#include "support/reference.h"

namespace kpage::test {
namespace {

constexpr std::int64_t kShards = 8;
constexpr std::int64_t kLayouts = 504;
constexpr Alignment kAlignment{8, 64};

std::int64_t count_of(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

struct Tensors {
  HostTensor q, k, v, o, d_o, dq, dk, dv;
  HostRows lse, d_lse;
};

// Runs on copies of the tensors' whole storages and brings the gradients' back.
Status run(const Plan& plan, const Case& c, Tensors& t, bool deterministic) {
  const Device device{DeviceType::kCuda, 0};
  std::vector<std::pair<HostTensor*, std::unique_ptr<DeviceCopy>>> copies;
  const auto tensor = [&](HostTensor& host) {
    copies.emplace_back(&host, std::make_unique<DeviceCopy>(host.storage));
    TensorRef ref = host.ref;
    ref.data = copies.back().second->data() + host.offset;
    ref.device = device;
    return ref;
  };
  const DeviceCopy lse(t.lse.storage);
  const DeviceCopy d_lse(t.d_lse.storage);
  const auto rows = [&](const HostRows& host, const DeviceCopy& copy) {
    RowsRef ref = host.ref;
    ref.data = reinterpret_cast<float*>(copy.data() + host.offset);
    ref.device = device;
    return ref;
  };
  const DeviceCopy forward({plan.forward().begin(), plan.forward().end()});
  const DeviceCopy backward({plan.backward().begin(), plan.backward().end()});
  BackwardArgs args;
  args.q = tensor(t.q);
  args.k = tensor(t.k);
  args.v = tensor(t.v);
  args.o = tensor(t.o);
  args.d_o = tensor(t.d_o);
  args.dq = tensor(t.dq);
  args.dk = tensor(t.dk);
  args.dv = tensor(t.dv);
  args.lse = rows(t.lse, lse);
  if (c.has_d_lse) {
    args.d_lse = rows(t.d_lse, d_lse);
  }
  args.plan = {plan.shape(), device, forward.data(), backward.data()};
  args.scale = c.scale;
  args.deterministic = deterministic;
  args.workspace_bytes = kernels::sm90::backward_workspace_bytes(args);
  const DeviceCopy workspace(
      std::vector<std::byte>(static_cast<std::size_t>(args.workspace_bytes), std::byte{0xff}));
  args.workspace = workspace.data();
  if (Status status = kernels::sm90::can_backward(args); !status.ok()) {
    return status;
  }
  if (Status status = kernels::sm90::backward(args); !status.ok()) {
    return status;
  }
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
    return {ErrorCode::kCuda, cudaGetErrorString(error)};
  }
  for (auto& [host, copy] : copies) {
    if (host == &t.dq || host == &t.dk || host == &t.dv) {
      copy->download(host->storage);
    } else {
      std::vector<std::byte> after(host->storage.size());
      copy->download(after);
      EXPECT_TRUE(after == host->storage) << "an input was written";
    }
  }
  return {};
}

// Against the oracle over the rows that count; exactly zero in all others.
void expect_gradient(const char* name, const std::vector<double>& got,
                     const std::vector<double>& want, const std::vector<bool>& rows, double limit) {
  if (rows.empty()) {
    return;
  }
  oracle::Error error;
  const std::size_t head_dim = got.size() / rows.size();
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (rows[i / head_dim]) {
      error.add(got[i], want[i]);
    } else {
      ASSERT_EQ(got[i], 0) << name << " in padding, row " << i / head_dim;
    }
  }
  // Rows with one key have gradients of rounding errors alone.
  constexpr double kTiny = 1e-2;
  if (error.norm() > kTiny * std::sqrt(static_cast<double>(got.size()))) {
    EXPECT_LE(error.relative_l2(), limit) << name;
  } else {
    EXPECT_LE(error.distance(), kTiny * std::sqrt(static_cast<double>(got.size()))) << name;
  }
}

void check_case(std::int64_t seed) {
  const Case c = random_case(static_cast<std::uint64_t>(seed));
  SCOPED_TRACE(c.describe());
  const DType dtype = seed % 2 == 0 ? DType::kBFloat16 : DType::kFloat16;
  Result<Plan> plan = Plan::build(c.layout.view());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_TRUE(plan.value().build_backward().ok());
  const Result<Reference> made = make_reference(c, dtype);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Reference& reference = made.value();
  Random random(c.seed + 17);
  const std::array<std::int64_t, 4> q_shape{c.layout.batch, c.layout.heads, c.q_rows, c.head_dim};
  const std::array<std::int64_t, 4> kv_shape{c.layout.batch, c.kv_heads, c.kv_rows, c.head_dim};
  const std::array<std::int64_t, 3> rows_shape{c.layout.batch, c.layout.heads, c.q_rows};
  Tensors t;
  for (HostTensor* tensor : {&t.q, &t.o, &t.d_o, &t.dq}) {
    *tensor = random_tensor(random, q_shape, dtype, kAlignment);
  }
  for (HostTensor* tensor : {&t.k, &t.v, &t.dk, &t.dv}) {
    *tensor = random_tensor(random, kv_shape, dtype, kAlignment);
  }
  t.lse = random_rows(random, rows_shape);
  t.d_lse = random_rows(random, rows_shape);
  std::array<std::vector<double>, 3> first;
  for (const Filler filler : {Filler::kNaN, Filler::kMixed}) {
    const auto write = [&](auto& tensor, std::vector<double> values,
                           const std::vector<bool>& rows) {
      fill_outside(random, filler, rows, values);
      write_values(tensor, values);
    };
    write(t.q, reference.numbers.q, reference.rows.q_valid);
    write(t.k, reference.numbers.k, reference.rows.attended);
    write(t.v, reference.numbers.v, reference.rows.attended);
    write(t.d_o, reference.numbers.d_o, reference.rows.q_valid);
    write(t.o, reference.forward.o, reference.rows.q_valid);
    write(t.lse, reference.forward.lse, reference.rows.q_valid);
    if (c.has_d_lse) {
      write(t.d_lse, reference.numbers.d_lse, reference.rows.q_valid);
    }
    for (const bool deterministic : {false, true}) {
      SCOPED_TRACE(deterministic ? "deterministic" : "in any order");
      std::vector<std::vector<std::byte>> before;
      for (HostTensor* tensor : {&t.dq, &t.dk, &t.dv}) {
        poison(*tensor);
        before.push_back(tensor->storage);
      }
      const Status status = run(plan.value(), c, t, deterministic);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(guards_untouched(t.dq, before[0])) << "memory beside dQ was written";
      EXPECT_TRUE(guards_untouched(t.dk, before[1])) << "memory beside dK was written";
      EXPECT_TRUE(guards_untouched(t.dv, before[2])) << "memory beside dV was written";
      const std::array<std::vector<double>, 3> got{read_values(t.dq), read_values(t.dk),
                                                   read_values(t.dv)};
      const double limit = oracle::gradient_limit(dtype, reference.shortest_list);
      const oracle::Backward& want = reference.backward;
      expect_gradient("dQ", got[0], want.dq, reference.rows.q_valid, limit);
      expect_gradient("dK", got[1], want.dk, reference.rows.attended, limit);
      expect_gradient("dV", got[2], want.dv, reference.rows.attended, limit);
      if (deterministic && filler == Filler::kNaN) {
        first = got;
      } else if (deterministic) {
        EXPECT_TRUE(got == first) << "gradients depend on the order of work, or on padding";
      }
    }
  }
}

class BackwardGpu : public testing::TestWithParam<std::int64_t> {};

TEST_P(BackwardGpu, HoldsOnRandomLayouts) {
  const std::int64_t count = count_of("KPAGE_PROPERTY_COUNT", kLayouts);
  const std::int64_t first = count_of("KPAGE_PROPERTY_SEED", 0);
  for (std::int64_t seed = GetParam(); seed < count; seed += kShards) {
    check_case(first + seed);
    if (HasFatalFailure() || HasNonfatalFailure()) {
      return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shard, BackwardGpu, testing::Range<std::int64_t>(0, kShards));

}  // namespace
}  // namespace kpage::test
