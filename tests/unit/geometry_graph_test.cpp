// Static rules against restatements of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kpage/geometry.h"

#include "support/graph_rows.h"

namespace kpage {
namespace {

using test::row_of;
using testing::ElementsAre;
using testing::HasSubstr;

std::int64_t length_of(const ClusterGraph& graph, std::size_t row) {
  return graph.row_offsets[row + 1] - graph.row_offsets[row];
}

Tiling tiling_of(const Sequence& sequence, Dims tile) {
  return std::move(make_tiling(sequence, tile)).value();
}

// --- Sliding tiles ------------------------------------------------------------------------------

// Whether a query at `q` of `count` sees `k`, pair by pair.
bool in_window(std::int32_t q, std::int32_t k, std::int32_t width, std::int32_t count) {
  std::int32_t centre = std::max(q, width / 2);
  centre = std::min(centre, count - 1 - width / 2);
  return std::abs(centre - k) <= width / 2;
}

TEST(SlidingWindows, EqualTheRulePairByPair) {
  const Tiling tiling = tiling_of({{}, {30, 45, 80}, {}}, {6, 8, 8});
  const std::vector<Dims> windows = {{5, 3, 3}, {1, 6, 10}, {3, 3, 5}, {5, 1, 10},
                                     {5, 6, 1}, {3, 3, 3},  {9, 9, 9}, {1, 1, 1}};
  const ClusterGraph graph = sliding_windows(tiling, windows).value();
  const Dims n = tiling.cubes;
  ASSERT_EQ(n, (Dims{5, 6, 10}));
  std::size_t row = 0;
  for (const Dims& window : windows) {
    for (std::int32_t q = 0; q < tiling.count(); ++q, ++row) {
      std::vector<std::int32_t> expected;
      for (std::int32_t k = 0; k < tiling.count(); ++k) {
        if (in_window(q / 60, k / 60, window.t, n.t) &&
            in_window(q / 10 % 6, k / 10 % 6, window.h, n.h) &&
            in_window(q % 10, k % 10, window.w, n.w)) {
          expected.push_back(k);
        }
      }
      ASSERT_EQ(row_of(graph, row), expected) << row;
    }
  }
}

// Windows that fit are never cut; even ones stand for a whole dimension.
TEST(SlidingWindows, KeepTheirSizeAtTheEdges) {
  const Tiling tiling = tiling_of({{}, {31, 45, 80}, {}}, {6, 8, 8});
  const std::vector<Dims> windows = {{3, 3, 3}, {5, 6, 1}, {6, 6, 10}};
  const ClusterGraph graph = sliding_windows(tiling, windows).value();
  const auto tiles = static_cast<std::size_t>(tiling.count());
  for (std::size_t q = 0; q < tiles; ++q) {
    EXPECT_EQ(length_of(graph, q), 27);
    EXPECT_EQ(length_of(graph, tiles + q), 5 * 6 * 1);
    EXPECT_EQ(length_of(graph, 2 * tiles + q), 360);
  }
}

TEST(SlidingWindows, TextAttendsToAllAndAllToText) {
  const Tiling tiling = tiling_of({{10}, {6, 16, 32}, {400}}, {6, 8, 8});
  const std::vector<Dims> windows = {{1, 1, 1}};
  const ClusterGraph graph = sliding_windows(tiling, windows).value();
  ASSERT_EQ(tiling.count(), 1 + 8 + 2);
  std::vector<std::int32_t> all(11);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(row_of(graph, 0), all);
  EXPECT_EQ(row_of(graph, 9), all);
  EXPECT_EQ(row_of(graph, 10), all);
  EXPECT_THAT(row_of(graph, 3), ElementsAre(0, 3, 9, 10));
  const Layout layout = std::move(tile_layout(1, 1, tiling, graph)).value();
  EXPECT_TRUE(validate(layout.view()).ok());
  EXPECT_EQ(layout.q_sizes.back(), 16);
}

TEST(SlidingWindows, MalformedWindow) {
  const Tiling tiling = tiling_of({{}, {4, 4, 4}, {}}, {2, 2, 2});
  const std::vector<Dims> windows = {{1, 1, 1}, {1, 0, 1}};
  EXPECT_EQ(sliding_windows(tiling, windows).status().message(),
            "windows[1]: expected extents of at least 1 tile, got 1x0x1");
}

TEST(TopK, VsaRoundsUpInDouble) {
  EXPECT_EQ(vsa_top_k(0.95, 1440), 73);
  EXPECT_EQ(vsa_top_k(0.85, 1440), 217);
  EXPECT_EQ(vsa_top_k(0.7, 1440), 433);
  EXPECT_EQ(vsa_top_k(0.95, 660), 34);
  EXPECT_EQ(vsa_top_k(0.9, 624), 63);
  EXPECT_EQ(vsa_top_k(0.9, 1440), 144);
  EXPECT_EQ(vsa_top_k(0.9, 660), 66);
  EXPECT_EQ(vsa_top_k(1.0, 660), 1);
  EXPECT_EQ(vsa_top_k(0.0, 660), 660);
}

TEST(TopK, SstaHalvesShortClips) {
  EXPECT_EQ(ssta_top_k(64, 31), 32);
  EXPECT_EQ(ssta_top_k(64, 32), 64);
  EXPECT_EQ(ssta_top_k(64, 61), 64);
}

TEST(Vsa, PrefixIsDenseBothWays) {
  const Tiling tiling = tiling_of({{70, 5}, {4, 4, 8}, {}}, {4, 4, 4});
  ASSERT_EQ(tiling.prefix_tiles, 3);
  const ClusterGraph graph =
      with_dense_segments(tiling, 2, {{0, 1, 3, 3, 4}, {1, 0, 1, 0}}).value();
  EXPECT_THAT(row_of(graph, 0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(row_of(graph, 2), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(row_of(graph, 3), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(row_of(graph, 4), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(row_of(graph, 8), ElementsAre(0, 1, 2));
  EXPECT_THAT(row_of(graph, 9), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(with_dense_segments(tiling, 1, {{0, 1, 1}, {2}}).status().message(),
            "video.columns[0]: expected an id in [0, 2), got 2");
  EXPECT_EQ(with_dense_segments(tiling, 0, {{0}, {}}).status().message(),
            "heads: expected at least 1, got 0");
}

TEST(ClusterGraphs, UniteAndRepeat) {
  const ClusterGraph a{{0, 2, 3, 3}, {5, 1, 7}};
  const ClusterGraph b{{0, 1, 1, 2}, {1, 4}};
  const ClusterGraph both = unite(a, b).value();
  EXPECT_THAT(both.row_offsets, ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(both.columns, ElementsAre(1, 5, 7, 4));
  const ClusterGraph twice = repeat(both, 2);
  EXPECT_THAT(twice.row_offsets, ElementsAre(0, 2, 3, 4, 6, 7, 8));
  EXPECT_THAT(twice.columns, ElementsAre(1, 5, 7, 4, 1, 5, 7, 4));
  EXPECT_THAT(unite(a, {{0}, {}}).status().message(), HasSubstr("b.row_offsets: expected"));
}

// --- SVG1

TEST(Svg1, BandsOfTheModels) {
  EXPECT_EQ(svg1_band(21, 1560, 0, kSvg1Wan).value(), 5376);
  EXPECT_EQ(svg1_band(21, 3600, 0, kSvg1Wan).value(), 12416);
  EXPECT_EQ(svg1_band(33, 3600, 256, kSvg1Hunyuan).value(), 15616);
}

TEST(Svg1, TouchedBlocksTokenByToken) {
  for (const Svg1Rule& rule : {kSvg1Wan, kSvg1Hunyuan}) {
    const std::int32_t frames = 5;
    const std::int32_t frame = 333;
    const Tiling tiling = std::move(linear_tiling(frames * frame, 70)).value();
    const ClusterGraph graph = svg1_graph(tiling, frames, rule).value();
    const std::int32_t band = svg1_band(frames, frame, 70, rule).value();
    const std::int32_t video = frames * frame;
    std::vector<std::set<std::int32_t>> expected(static_cast<std::size_t>(tiling.count()));
    const auto tile = [&](std::int32_t token) {
      return token < video ? token / 128 : tiling.cubes.w + (token - video) / 128;
    };
    for (std::int32_t q = 0; q < video + 70; ++q) {
      for (std::int32_t k = 0; k < video + 70; ++k) {
        const bool near = rule.band_up ? std::abs(q - k) <= band : std::abs(q - k) < band;
        if (near || (rule.first_frame_sink && k < frame) || q >= video || k >= video) {
          expected[static_cast<std::size_t>(tile(q))].insert(tile(k));
        }
      }
    }
    for (std::size_t q = 0; q < expected.size(); ++q) {
      EXPECT_THAT(row_of(graph, q), testing::ElementsAreArray(expected[q])) << q;
    }
  }
}

// Where the band rounds down to nothing blocks see themselves, and text.
TEST(Svg1, NoListIsEmpty) {
  const Tiling tiling = std::move(linear_tiling(4 * 200, 5)).value();
  ASSERT_EQ(svg1_band(4, 200, 5, kSvg1Hunyuan).value(), 0);
  const ClusterGraph graph = svg1_graph(tiling, 4, kSvg1Hunyuan).value();
  for (std::int32_t q = 0; q < 7; ++q) {
    EXPECT_THAT(row_of(graph, static_cast<std::size_t>(q)), ElementsAre(q, 7));
  }
}

TEST(Svg1, TokenMajorOrderIsAPermutation) {
  EXPECT_THAT(token_major_order(2, 3), ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST(Svg1, MalformedInputs) {
  const Tiling cubes = tiling_of({{}, {4, 4, 4}, {}}, {2, 2, 2});
  const Tiling linear = std::move(linear_tiling(1000)).value();
  EXPECT_THAT(svg1_graph(cubes, 4, kSvg1Wan).status().message(),
              HasSubstr("tiling: expected one that linear_tiling() makes"));
  EXPECT_EQ(svg1_graph(linear, 3, kSvg1Wan).status().message(),
            "frames: expected a divisor of the 1000 tokens of the grid, got 3");
  EXPECT_EQ(
      svg1_graph(std::move(linear_tiling(1 << 16, 0, 1)).value(), 1, kSvg1Wan).status().message(),
      "tiling: expected at most 32768 tiles, got 65536");
  EXPECT_EQ(svg1_graph(linear, 4, {1.5, true, true}).status().message(),
            "rule.density: expected a number in [0, 1], got 1.5");
  EXPECT_EQ(svg1_band(4, 0, 0, kSvg1Wan).status().message(),
            "frame_tokens: expected 1 to 536870848, got 0");
  EXPECT_EQ(svg1_band(4, 1, -1, kSvg1Wan).status().message(),
            "text_tokens: expected at least 0, got -1");
}

// --- Radial

// The rule on token masks, frame pair by frame pair.
std::vector<std::uint8_t> radial_by_tokens(std::int32_t frames, std::int32_t frame,
                                           const RadialRule& rule) {
  const std::int32_t blocks = (frames * frame + 127) / 128;
  std::vector<std::uint8_t> map(static_cast<std::size_t>(blocks * blocks), 0);
  std::int32_t power = 1;
  while (power <= frame) {
    power *= 2;
  }
  for (std::int32_t i = 0; i < frames; ++i) {
    for (std::int32_t j = 0; j < frames; ++j) {
      const std::int32_t d = std::abs(i - j);
      std::int32_t group = 1;
      while (group <= d) {
        group *= 2;
      }
      const double reach = static_cast<double>(power) / group;
      double width = std::max(reach * rule.decay, 128.0);
      width = d == 0 ? frame : d == 1 ? (rule.next_frame_whole ? frame : frame / 2) : width;
      const bool sink = rule.first_frame_sink && j == 0;
      if (!sink && reach < 128 && d % static_cast<std::int32_t>(128 / reach) != 0) {
        continue;
      }
      // [rows of a block][columns]: how many rows of the block a column attends from
      std::vector<std::vector<std::int32_t>> rows(
          static_cast<std::size_t>(blocks),
          std::vector<std::int32_t>(static_cast<std::size_t>(blocks * 128), 0));
      for (std::int32_t r = 0; r < frame; ++r) {
        for (std::int32_t c = 0; c < frame; ++c) {
          if (sink || std::abs(r - c) <= width) {
            ++rows[static_cast<std::size_t>((i * frame + r) / 128)]
                  [static_cast<std::size_t>(j * frame + c)];
          }
        }
      }
      for (std::int32_t q = 0; q < blocks; ++q) {
        for (std::int32_t k = 0; k < blocks; ++k) {
          std::int32_t any = 0;
          std::int32_t dense = 0;
          for (std::int32_t c = 0; c < 128; ++c) {
            const std::int32_t n =
                rows[static_cast<std::size_t>(q)][static_cast<std::size_t>(k * 128 + c)];
            any += n > 0;
            dense += static_cast<double>(n) / std::min(128, frames * frame - q * 128) > 1.0 / 3.0;
          }
          if (q == k || (any > 0 && static_cast<double>(dense) / any > 0.6)) {
            map[static_cast<std::size_t>(q * blocks + k)] = 1;
          }
        }
      }
    }
  }
  return map;
}

TEST(Radial, EqualsTheRuleOnTokens) {
  for (const RadialRule& rule : {kRadialWan, kRadialHunyuan, RadialRule{1.0, true, true}}) {
    for (const std::int32_t frame : {1, 42, 43, 100, 256, 384, 390, 700}) {
      const std::int32_t frames = 9;
      const Tiling tiling = std::move(linear_tiling(frames * frame)).value();
      const ClusterGraph graph = radial_graph(tiling, frames, rule).value();
      const std::vector<std::uint8_t> expected = radial_by_tokens(frames, frame, rule);
      std::vector<std::uint8_t> got(expected.size(), 0);
      for (std::int32_t q = 0; q < tiling.count(); ++q) {
        for (const std::int32_t k : row_of(graph, static_cast<std::size_t>(q))) {
          got[static_cast<std::size_t>(q * tiling.count() + k)] = 1;
        }
      }
      EXPECT_EQ(got, expected) << frame;
    }
  }
}

// The last block has 16 rows of 128: what it attends to is what fills those.
TEST(Radial, TailBlockHasItsList) {
  const Tiling tiling = std::move(linear_tiling(33 * 3600)).value();
  const ClusterGraph graph = radial_graph(tiling, 33, kRadialHunyuan).value();
  const std::vector<std::int32_t> last = row_of(graph, 928);
  EXPECT_EQ(last.size(), 150U);
  EXPECT_EQ(last.back(), 928);
}

TEST(Radial, MalformedInputs) {
  const Tiling linear = std::move(linear_tiling(1000)).value();
  EXPECT_EQ(radial_graph(linear, 0, kRadialWan).status().message(),
            "frames: expected a divisor of the 1000 tokens of the grid, got 0");
  EXPECT_EQ(radial_graph(linear, 4, {0.0, true, true}).status().message(),
            "rule.decay: expected a finite number over 0, got 0");
}

}  // namespace
}  // namespace kpage
