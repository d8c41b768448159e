// Random numbers and what is drawn with them: graphs, clusters, the benchmarks' layouts.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kpage/geometry.h"

#include "base/random.h"
#include "support/graph_rows.h"

namespace kpage {
namespace {

using test::row_of;
using testing::ElementsAre;
using testing::HasSubstr;

// --- Random numbers and graphs

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
