#include "support/attention_property.h"

#include <gtest/gtest.h>

#include "support/backend.h"

namespace kpage::test {
namespace {

constexpr std::int64_t kShards = 16;
constexpr std::int64_t kLayouts = 2000;

class CpuAttention : public testing::TestWithParam<std::int64_t> {};

TEST_P(CpuAttention, HoldsOnRandomLayouts) {
  CpuBackend exact(CpuPolicy::kExact);
  CpuBackend as_kernel(CpuPolicy::kAsKernel);
  check_shard(GetParam(), kShards, kLayouts, {&exact, &as_kernel});
}

TEST(ManyOwners, Holds) {
  CpuBackend as_kernel(CpuPolicy::kAsKernel);
  check_case(many_owners_case(), {&as_kernel});
}

INSTANTIATE_TEST_SUITE_P(Shard, CpuAttention, testing::Range<std::int64_t>(0, kShards));

}  // namespace
}  // namespace kpage::test
