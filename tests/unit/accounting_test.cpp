// The paper's accounting (4.4) on layouts of its size.
#include <vector>

#include <gtest/gtest.h>

#include "kpage/geometry.h"
#include "kpage/plan.h"

namespace kpage {
namespace {

PlanStats sum_of(const std::vector<Layout>& layouts) {
  PlanStats sum;
  for (const Layout& layout : layouts) {
    const Result<Plan> plan = Plan::build(layout.view());
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    const PlanStats stats = plan.value().stats();
    sum.useful_pairs += stats.useful_pairs;
    sum.whole_block_pairs += stats.whole_block_pairs;
    sum.paged_pairs += stats.paged_pairs;
    sum.routed_pairs += stats.routed_pairs;
    sum.routed_tail_pairs += stats.routed_tail_pairs;
    sum.paper_tail_pairs += stats.paper_tail_pairs;
  }
  return sum;
}

double percent(std::int64_t part, std::int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

TEST(Accounting, RepresentativeFive) {
  const PlanStats sum = sum_of(representative_layouts());
  EXPECT_NEAR(static_cast<double>(sum.useful_pairs) * 1e-9, 161.1, 0.5);
  EXPECT_NEAR(static_cast<double>(sum.whole_block_pairs) * 1e-9, 336.5, 0.1);
  EXPECT_NEAR(percent(sum.useful_pairs, sum.whole_block_pairs), 47.9, 0.15);
  EXPECT_NEAR(percent(sum.useful_pairs, sum.paged_pairs), 81.3, 0.15);
  EXPECT_NEAR(percent(sum.useful_pairs, sum.routed_pairs), 90.7, 0.15);
  EXPECT_NEAR(percent(sum.useful_pairs, sum.routed_tail_pairs), 90.0, 0.15);
  EXPECT_NEAR(percent(sum.useful_pairs, sum.paper_tail_pairs), 89.3, 0.15);
}

TEST(Accounting, FullLayoutsWasteNothing) {
  const Result<Layout> layout = named_layout("full-512");
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  Result<Plan> plan = Plan::build(layout.value().view());
  ASSERT_TRUE(plan.ok());
  ASSERT_TRUE(plan.value().build_backward().ok());
  const PlanStats stats = plan.value().stats();
  EXPECT_EQ(stats.useful_pairs, std::int64_t{8} * 512 * 64 * 128 * 128);
  EXPECT_EQ(stats.routed_tail_pairs, stats.useful_pairs);
  EXPECT_EQ(stats.backward_tail_pairs, stats.useful_pairs);
  EXPECT_EQ(stats.efficiency(), 1.0);
}

}  // namespace
}  // namespace kpage
