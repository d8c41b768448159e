// The body of the property tests of the CPU backend, on the GPU.
#include <cstdint>

#include <gtest/gtest.h>

#include "gpu/cuda_backend.h"
#include "support/attention_property.h"

namespace kpage::test {
namespace {

constexpr std::int64_t kShards = 8;
constexpr std::int64_t kLayouts = 504;

class CudaAttention : public testing::TestWithParam<std::int64_t> {};

TEST_P(CudaAttention, HoldsOnRandomLayouts) {
  CudaBackend in_any_order(/*deterministic=*/false);
  CudaBackend deterministic(/*deterministic=*/true);
  check_shard(GetParam(), kShards, kLayouts, {&in_any_order, &deterministic});
}

// Most walks of the backward begin while others of their head are under way, at the entry where
// those are, and come round to it.
TEST(ManyOwners, HoldsWhereWalksJoinSweeps) {
  CudaBackend in_any_order(/*deterministic=*/false);
  CudaBackend deterministic(/*deterministic=*/true);
  check_case(many_owners_case(), {&in_any_order, &deterministic});
}

INSTANTIATE_TEST_SUITE_P(Shard, CudaAttention, testing::Range<std::int64_t>(0, kShards));

}  // namespace
}  // namespace kpage::test
