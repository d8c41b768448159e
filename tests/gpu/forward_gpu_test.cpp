// The forward kernel on random layouts: results against the oracle, padding, guards, ends of
// tensors, and the same bits whatever padding holds.
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kpage/plan.h"

#include "gpu/device_copy.h"
#include "kernels/sm90/forward/launch.h"
#include "oracle/accuracy.h"
#include "support/host_tensor.h"
#include "support/random_case.h"
#include "support/reference.h"

namespace kpage::test {
namespace {

constexpr std::int64_t kShards = 8;
constexpr std::int64_t kLayouts = 504;
constexpr Alignment kAlignment{8, 64};
// Few CTAs take many blocks each, whole ones; on many, small cases have every block cut in two.
constexpr std::int32_t kCtas[] = {132, 1, 3};

// Sharp rows: scores so far apart that a tile outgrows the maximum of the first one many times
// over.
enum class Scores { kAsDrawn, kSharp };
constexpr double kSharpness = 12;  // times the usual scale

std::int64_t count_of(const char* variable, std::int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

struct Tensors {
  HostTensor q, k, v, o;
  HostRows lse;
};

// Runs on copies of the tensors' whole storages and brings the outputs' back.
Status run(const Plan& plan, const Case& c, std::int32_t ctas, Tensors& t) {
  const DeviceCopy q(t.q.storage);
  const DeviceCopy k(t.k.storage);
  const DeviceCopy v(t.v.storage);
  const DeviceCopy o(t.o.storage);
  const DeviceCopy lse(t.lse.storage);
  const std::vector<std::byte> bytes(plan.forward().begin(), plan.forward().end());
  const DeviceCopy blob(bytes);
  const Device device{DeviceType::kCuda, 0};
  const auto on_device = [&](const HostTensor& host, const DeviceCopy& copy) {
    TensorRef ref = host.ref;
    ref.data = copy.data() + host.offset;
    ref.device = device;
    return ref;
  };
  ForwardArgs args;
  args.q = on_device(t.q, q);
  args.k = on_device(t.k, k);
  args.v = on_device(t.v, v);
  args.o = on_device(t.o, o);
  args.lse = t.lse.ref;
  args.lse.data = reinterpret_cast<float*>(lse.data() + t.lse.offset);
  args.lse.device = device;
  args.plan = {plan.shape(), device, blob.data(), nullptr};
  args.scale = c.scale;
  args.workspace_bytes = kernels::sm90::forward_workspace_bytes(args);
  const DeviceCopy workspace(
      std::vector<std::byte>(static_cast<std::size_t>(args.workspace_bytes), std::byte{0xff}));
  args.workspace = workspace.data();
  if (Status refusal = kernels::sm90::can_forward(args); !refusal.ok()) {
    return refusal;
  }
  // A thread that has run nothing on the device, as autograd's may not have.
  Status status;
  std::thread([&] { status = kernels::sm90::forward_on(args, ctas); }).join();
  if (!status.ok()) {
    return status;
  }
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
    return {ErrorCode::kCuda, cudaGetErrorString(error)};
  }
  o.download(t.o.storage);
  lse.download(t.lse.storage);
  return {};
}

// The longest of the rows that count. values: [rows, per_row].
double longest_row(const std::vector<double>& values, const std::vector<bool>& rows) {
  const std::size_t per_row = values.size() / std::max<std::size_t>(rows.size(), 1);
  double longest = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows[row]) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * per_row);
      const auto end = begin + static_cast<std::ptrdiff_t>(per_row);
      longest = std::max(longest, std::inner_product(begin, end, begin, 0.0));
    }
  }
  return std::sqrt(longest);
}

// What fp32 sums of products may be off by where scores are sharper than the contract's, which
// allows for sums of the usual size: an LSE is no better than its largest score, and a score no
// better than a unit in the last place of |q| |k|, which bounds every partial sum of it.
double score_rounding(const Case& c, const Reference& reference, Scores scores) {
  if (scores == Scores::kAsDrawn) {
    return 0;
  }
  return *c.scale * std::numeric_limits<float>::epsilon() *
         longest_row(reference.numbers.q, reference.rows.q_valid) *
         longest_row(reference.numbers.k, reference.rows.attended);
}

// `lse_slack`: beyond the contract's limit.
void expect_results(const Reference& reference, DType dtype, double lse_slack,
                    const std::vector<double>& o, const std::vector<double>& lse) {
  oracle::Error error;
  const std::size_t head_dim = o.size() / std::max<std::size_t>(lse.size(), 1);
  for (std::size_t row = 0; row < lse.size(); ++row) {
    const bool valid = reference.rows.q_valid[row];
    for (std::size_t i = row * head_dim; i < (row + 1) * head_dim; ++i) {
      if (valid) {
        error.add(o[i], reference.forward.o[i]);
      } else {
        ASSERT_EQ(o[i], 0) << "O in padding, row " << row;
      }
    }
    const double want = reference.forward.lse[row];
    ASSERT_LE(oracle::lse_error(lse[row], want), 1 + lse_slack / oracle::lse_limit(want))
        << "LSE is " << lse[row] << " instead of " << want << ", row " << row;
  }
  EXPECT_LE(error.relative_l2(), oracle::forward_limit(dtype));
}

void check_case(std::int64_t seed, Scores scores) {
  Case c = random_case(static_cast<std::uint64_t>(seed));
  if (scores == Scores::kSharp) {
    c.scale = kSharpness / std::sqrt(static_cast<double>(c.head_dim));
  }
  SCOPED_TRACE(c.describe());
  const DType dtype = seed % 2 == 0 ? DType::kBFloat16 : DType::kFloat16;
  const Result<Plan> plan = Plan::build(c.layout.view());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const Result<Reference> reference = make_reference(c, dtype);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  const double lse_slack = score_rounding(c, reference.value(), scores);
  Random random(c.seed + 17);
  const std::array<std::int64_t, 4> q_shape{c.layout.batch, c.layout.heads, c.q_rows, c.head_dim};
  const std::array<std::int64_t, 4> kv_shape{c.layout.batch, c.kv_heads, c.kv_rows, c.head_dim};
  Tensors t;
  t.q = random_tensor(random, q_shape, dtype, kAlignment);
  t.k = random_tensor(random, kv_shape, dtype, kAlignment);
  t.v = random_tensor(random, kv_shape, dtype, kAlignment);
  t.o = random_tensor(random, q_shape, dtype, kAlignment);
  t.lse = random_rows(random, {c.layout.batch, c.layout.heads, c.q_rows});
  for (const std::int32_t ctas : kCtas) {
    SCOPED_TRACE(ctas);
    std::vector<double> first_o;
    std::vector<double> first_lse;
    for (const Filler filler : {Filler::kNaN, Filler::kMixed}) {
      const auto write = [&](HostTensor& tensor, std::vector<double> values,
                             const std::vector<bool>& rows) {
        fill_outside(random, filler, rows, values);
        write_values(tensor, values);
      };
      write(t.q, reference.value().numbers.q, reference.value().rows.q_valid);
      write(t.k, reference.value().numbers.k, reference.value().rows.attended);
      write(t.v, reference.value().numbers.v, reference.value().rows.attended);
      poison(t.o);
      poison(t.lse);
      const std::vector<std::byte> o_before = t.o.storage;
      const std::vector<std::byte> lse_before = t.lse.storage;
      const Status status = run(plan.value(), c, ctas, t);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_TRUE(guards_untouched(t.o, o_before)) << "memory beside O was written";
      EXPECT_TRUE(guards_untouched(t.lse, lse_before)) << "memory beside LSE was written";
      const std::vector<double> o = read_values(t.o);
      const std::vector<double> lse = read_values(t.lse);
      expect_results(reference.value(), dtype, lse_slack, o, lse);
      if (filler == Filler::kNaN) {
        first_o = o;
        first_lse = lse;
      } else {
        EXPECT_TRUE(o == first_o && lse == first_lse) << "results depend on what padding holds";
      }
    }
  }
}

class ForwardGpu : public testing::TestWithParam<std::int64_t> {};

void check_shard(std::int64_t shard, Scores scores) {
  const std::int64_t count = count_of("KPAGE_PROPERTY_COUNT", kLayouts);
  const std::int64_t first = count_of("KPAGE_PROPERTY_SEED", 0);
  for (std::int64_t seed = shard; seed < count; seed += kShards) {
    check_case(first + seed, scores);
    if (testing::Test::HasFailure()) {
      return;
    }
  }
}

TEST_P(ForwardGpu, HoldsOnRandomLayouts) { check_shard(GetParam(), Scores::kAsDrawn); }
TEST_P(ForwardGpu, HoldsOnSharpRows) { check_shard(GetParam(), Scores::kSharp); }

INSTANTIATE_TEST_SUITE_P(Shard, ForwardGpu, testing::Range<std::int64_t>(0, kShards));

}  // namespace
}  // namespace kpage::test
