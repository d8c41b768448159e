// Static rules against restatements of them, and synthetic graphs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kpage/geometry.h"

#include "base/random.h"

namespace kpage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int32_t> row_of(const ClusterGraph& graph, std::size_t row) {
  return {graph.columns.begin() + graph.row_offsets[row],
          graph.columns.begin() + graph.row_offsets[row + 1]};
}

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
// -----------------------------------------------------------------------------------------

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
// ---------------------------------------------------------------------------------------

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

// --- Random numbers and graphs
// ----------------------------------------------------------------------

TEST(Random, IsTheSameEverywhere) {
  Random random(5489);
  EXPECT_EQ(random.next(), 14514284786278117030u);  // of the standard's mt19937_64
  Random bounded(1);
  std::vector<std::int64_t> counts(7, 0);
  for (int i = 0; i < 70000; ++i) {
    ++counts[bounded.below(7)];
  }
  EXPECT_THAT(counts, testing::Each(testing::AllOf(testing::Gt(9600), testing::Lt(10400))));
  EXPECT_EQ(bounded.below(1), 0u);
}

TEST(Random, NormalHasItsMoments) {
  Random random(3);
  double sum = 0.0;
  double squares = 0.0;
  for (int i = 0; i < 100000; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 100000, 0.0, 0.02);
  EXPECT_NEAR(squares / 100000, 1.0, 0.02);
}

TEST(RandomTopK, DrawsDifferentColumnsEvenly) {
  const ClusterGraph graph = random_top_k(4000, 40, 10, 7).value();
  std::vector<std::int64_t> drawn(40, 0);
  for (std::size_t row = 0; row < 4000; ++row) {
    const std::vector<std::int32_t> columns = row_of(graph, row);
    ASSERT_EQ(columns.size(), 10u);
    ASSERT_TRUE(std::is_sorted(columns.begin(), columns.end()));
    ASSERT_TRUE(std::adjacent_find(columns.begin(), columns.end()) == columns.end());
    for (const std::int32_t column : columns) {
      ++drawn[static_cast<std::size_t>(column)];
    }
  }
  EXPECT_THAT(drawn, testing::Each(testing::AllOf(testing::Gt(850), testing::Lt(1150))));
}

TEST(RandomTopK, FollowsTheSeedAlone) {
  const ClusterGraph a = random_top_k(50, 100, 20, 11).value();
  EXPECT_EQ(a.columns, random_top_k(50, 100, 20, 11).value().columns);
  EXPECT_NE(a.columns, random_top_k(50, 100, 20, 12).value().columns);
}

// The first draw is in proportion to the weights; later ones follow from what is left.
TEST(RandomTopK, FollowsWeights) {
  const std::vector<double> weights = {1.0, 2.0, 4.0, 0.0, 1.0};
  std::vector<double> first(5, 0.0);
  std::vector<double> second(5, 0.0);
  const ClusterGraph one = random_top_k(40000, 5, 1, 1, weights).value();
  for (const std::int32_t column : one.columns) {
    first[static_cast<std::size_t>(column)] += 1.0 / 40000;
  }
  const ClusterGraph two = random_top_k(40000, 5, 2, 1, weights).value();
  for (const std::int32_t column : two.columns) {
    second[static_cast<std::size_t>(column)] += 1.0 / 40000;
  }
  for (std::size_t c = 0; c < 5; ++c) {
    double pairs = weights[c] / 8.0;  // drawn first, or after each other one
    for (std::size_t other = 0; other < 5; ++other) {
      pairs += other == c ? 0.0 : weights[other] / 8.0 * weights[c] / (8.0 - weights[other]);
    }
    EXPECT_NEAR(first[c], weights[c] / 8.0, 0.01) << c;
    EXPECT_NEAR(second[c], pairs, 0.01) << c;
  }
  EXPECT_EQ(random_top_k(1, 5, 4, 1, weights).value().columns.size(), 4u);
}

TEST(RandomTopK, EdgesAndMalformedInputs) {
  EXPECT_EQ(random_top_k(3, 4, 0, 0).value().columns.size(), 0u);
  EXPECT_THAT(random_top_k(1, 4, 4, 0).value().columns, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(random_top_k(0, 0, 0, 0).value().row_offsets.size(), 1u);
  const std::vector<double> zeros = {0.0, 1.0};
  const std::vector<double> bad = {1.0, -1.0};
  EXPECT_EQ(random_top_k(1, 2, 2, 0, zeros).status().message(),
            "keep: expected 0 to 1, the columns that may be drawn, got 2");
  EXPECT_EQ(random_top_k(1, 2, 1, 0, bad).status().message(),
            "weights[1]: expected a finite number of at least 0, got -1");
  EXPECT_EQ(random_top_k(1, 3, 1, 0, bad).status().message(),
            "weights: expected no or 3 elements, got 2");
  EXPECT_EQ(random_top_k(-1, 3, 1, 0).status().message(), "rows: expected at least 0, got -1");
  EXPECT_EQ(random_top_k(1, -3, 1, 0).status().message(), "columns: expected at least 0, got -3");
}

// --- SVG2-like
// ------------------------------------------------------------------------------------

TEST(LogNormalClusters, ShareOutAllTokens) {
  const Clusters clusters = std::move(log_normal_clusters(3, 1000, 32760, 0.5, 4)).value();
  ASSERT_EQ(clusters.sizes.size(), 3000u);
  for (std::size_t head = 0; head < 3; ++head) {
    const auto begin = clusters.sizes.begin() + static_cast<std::ptrdiff_t>(1000 * head);
    EXPECT_EQ(std::accumulate(begin, begin + 1000, 0), 32760);
    double squares = 0.0;
    std::for_each(begin, begin + 1000, [&](double size) {
      squares += (size / 32.76 - 1.0) * (size / 32.76 - 1.0) / 1000;
    });
    // Of a log-normal, the coefficient of variation is sqrt(exp(sigma^2) - 1) = 0.533.
    EXPECT_NEAR(std::sqrt(squares), 0.533, 0.08);
  }
  EXPECT_EQ(log_normal_clusters(1, 7, 0, 0.5, 0).value().sizes, (std::vector<std::int32_t>(7, 0)));
  EXPECT_THAT(log_normal_clusters(1, 3, 10, 0.0, 0).value().sizes, ElementsAre(4, 3, 3));
}

TEST(LogNormalClusters, MalformedInputs) {
  EXPECT_EQ(log_normal_clusters(0, 7, 1, 0.5, 0).status().message(),
            "heads: expected at least 1, got 0");
  EXPECT_EQ(log_normal_clusters(1, 0, 1, 0.5, 0).status().message(),
            "clusters: expected 1 to 16777216, got 0");
  EXPECT_EQ(log_normal_clusters(1, 1, -1, 0.5, 0).status().message(),
            "tokens: expected 0 to 2147483392, got -1");
  EXPECT_EQ(log_normal_clusters(1, 1, 1, -0.5, 0).status().message(),
            "sigma: expected a number in [0, 16], got -0.5");
  EXPECT_EQ(svg2_like_layout({1, 10, 2, 2, 0.5, 1.5}, 0).status().message(),
            "keep: expected a share in [0, 1], got 1.5");
}

// --- Named layouts
// --------------------------------------------------------------------------------

struct NamedCounts {
  const char* name;
  std::int32_t heads;
  std::int32_t blocks;
  std::int32_t longest;  // list, in blocks
};

class NamedLayout : public testing::TestWithParam<NamedCounts> {};

TEST_P(NamedLayout, IsValidAndOfItsSize) {
  const Layout layout = std::move(named_layout(GetParam().name)).value();
  const Status status = validate(layout.view());
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(layout.heads, GetParam().heads);
  EXPECT_EQ(layout.q_blocks, GetParam().blocks);
  EXPECT_EQ(layout.max_list, GetParam().longest);
}

INSTANTIATE_TEST_SUITE_P(Benchmarks, NamedLayout,
                         testing::Values(NamedCounts{"full-512", 8, 512, 64},
                                         NamedCounts{"padded-5s", 8, 640, 64},
                                         NamedCounts{"padded-30s", 8, 3640, 64},
                                         NamedCounts{"vsa-444-480p", 12, 624, 63},
                                         NamedCounts{"vsa-444-720p", 12, 1440, 144},
                                         NamedCounts{"vsa-288-720p", 12, 660, 66},
                                         NamedCounts{"vsa-488-720p", 12, 660, 72},
                                         NamedCounts{"sta-30x45x80", 24, 850, 170}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(NamedLayout, SstaIsBetweenWindowAndBoth) {
  const Layout layout = std::move(named_layout("ssta-720p-121f")).value();
  EXPECT_TRUE(validate(layout.view()).ok());
  EXPECT_EQ(layout.heads, 16);
  EXPECT_EQ(layout.q_blocks, 910);
  const auto [shortest, longest] =
      std::minmax_element(layout.q2k_block_nums.begin(), layout.q2k_block_nums.end());
  EXPECT_GE(*shortest, 27 + 5);  // tiles of the window, and some of the top 32, of a block each
  EXPECT_LE(*longest, 3 * (27 + 32));
}

TEST(NamedLayout, Svg2CutsClustersPerHead) {
  const Layout layout = std::move(named_layout("svg2-480p-300-1000", 3)).value();
  EXPECT_TRUE(validate(layout.view()).ok());
  EXPECT_FALSE(layout.shared_partition);
  EXPECT_EQ(layout.q_scope, PartitionScope::kPerHead);
  EXPECT_EQ(q_occupancy(layout).value().rows, 12 * 32760);
  EXPECT_EQ(kv_occupancy(layout).value().rows, 12 * 32760);
  EXPECT_GE(layout.kv_blocks, 1000);
}

TEST(NamedLayout, RepresentativeFive) {
  const std::vector<std::int32_t> blocks = {3680, 4000, 4280, 4640, 4920};
  const Layout layout = std::move(representative_layout(kRepresentativeCases[2])).value();
  EXPECT_TRUE(validate(layout.view()).ok());
  EXPECT_EQ(layout.q_blocks, blocks[2]);
  EXPECT_EQ(layout.max_list, 64);
  // Small blocks are drawn more often than their share.
  std::int64_t rows = 0;
  for (const std::int32_t id : layout.q2k_block_index) {
    rows += layout.q_sizes[static_cast<std::size_t>(id)];
  }
  const double mean =
      static_cast<double>(rows) / static_cast<double>(layout.q2k_block_index.size());
  EXPECT_LT(mean, 213.0 * 34 * 62 / blocks[2]);
  EXPECT_EQ(representative_layout(kRepresentativeCases[2]).value().q2k_block_index,
            layout.q2k_block_index);
}

TEST(NamedLayout, UnknownNameListsAll) {
  const std::string message = named_layout("padded-6s").status().message();
  for (const std::string_view name : layout_names()) {
    EXPECT_THAT(message, HasSubstr(std::string(name)));
  }
  EXPECT_THAT(message, HasSubstr("got \"padded-6s\""));
}

}  // namespace
}  // namespace kpage
