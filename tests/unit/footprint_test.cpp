// Which strided tensors share memory.
#include "api/footprint.h"

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace kpage::api {
namespace {

const auto* const kBase = reinterpret_cast<const std::byte*>(std::uintptr_t{0x1000});

Footprint of(std::int64_t offset, std::vector<std::int64_t> shape,
             std::vector<std::int64_t> stride) {
  const auto found = footprint(kBase + offset, 2, shape, stride);
  EXPECT_TRUE(found.has_value());
  return found.value_or(Footprint{});
}

TEST(FootprintTest, ContiguousIsDense) {
  const Footprint f = of(0, {2, 3, 4}, {12, 4, 1});
  EXPECT_EQ(f.end - f.begin, 48U);
  EXPECT_TRUE(f.dense);
  EXPECT_FALSE(f.repeats);
}

TEST(FootprintTest, OrderOfStridesDoesNotMatter) {
  const Footprint f = of(0, {2, 3, 4}, {4, 8, 1});
  EXPECT_EQ(f.end - f.begin, 48U);
  EXPECT_TRUE(f.dense);
}

TEST(FootprintTest, GapsAreNotDense) {
  const Footprint f = of(0, {3, 4}, {8, 1});
  EXPECT_EQ(f.end - f.begin, 40U);
  EXPECT_FALSE(f.dense);
}

TEST(FootprintTest, StrideOfOneElementDimensionIsIgnored) {
  EXPECT_TRUE(of(0, {1, 4}, {0, 1}).dense);
  EXPECT_FALSE(of(0, {1, 4}, {0, 1}).repeats);
}

TEST(FootprintTest, ExpandedRepeats) {
  EXPECT_TRUE(of(0, {2, 4}, {0, 1}).repeats);
  EXPECT_TRUE(of(0, {2, 4}, {3, 1}).repeats);
  EXPECT_FALSE(of(0, {2, 4}, {4, 1}).repeats);
}

TEST(FootprintTest, NoElementsCoverNothing) {
  const Footprint f = of(0, {0, 4}, {4, 1});
  EXPECT_EQ(f.begin, f.end);
  EXPECT_FALSE(overlap(f, of(0, {4}, {1})));
}

TEST(FootprintTest, PastTheAddressSpace) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_FALSE(footprint(kBase, 2, std::array{std::int64_t{3}}, std::array{kMost}));
  EXPECT_FALSE(footprint(kBase, 2, std::array{kMost}, std::array{std::int64_t{1}}));
}

TEST(FootprintTest, Overlaps) {
  const Footprint whole = of(0, {8, 4}, {4, 1});
  EXPECT_TRUE(overlap(whole, whole));
  EXPECT_TRUE(overlap(whole, of(62, {4}, {1})));
  EXPECT_TRUE(overlap(of(62, {4}, {1}), whole));
  EXPECT_FALSE(overlap(whole, of(64, {4}, {1})));
  EXPECT_TRUE(overlap(whole, of(-8, {5}, {1})));
  EXPECT_FALSE(overlap(whole, of(-8, {4}, {1})));
}

TEST(FootprintTest, InterleavedSlicesDoNotOverlap) {
  EXPECT_FALSE(overlap(of(0, {8, 4}, {12, 1}), of(8, {8, 4}, {12, 1})));
  EXPECT_TRUE(overlap(of(0, {8, 4}, {12, 1}), of(0, {8, 4}, {12, 1})));
}

}  // namespace
}  // namespace kpage::api
