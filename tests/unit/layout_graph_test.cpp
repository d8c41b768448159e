// Layout::view(), block graphs from CSR and maps, and clusters split into blocks.
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kpage/geometry.h"
#include "kpage/layout.h"

namespace kpage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::int32_t> list_of(const Layout& layout, std::int64_t list) {
  const std::int32_t* begin = layout.q2k_block_index.data() + list * layout.max_list;
  return {begin, begin + layout.q2k_block_nums[static_cast<std::size_t>(list)]};
}

Layout empty_graph() {
  Layout layout;
  layout.batch = 1;
  layout.heads = 2;
  layout.q_blocks = 2;
  layout.kv_blocks = 3;
  layout.shared_partition = false;
  layout.q_sizes = {128, 5};
  layout.kv_sizes = {128, 128, 1};
  return layout;
}

TEST(LayoutView, SharesThePartition) {
  Layout layout = empty_graph();
  EXPECT_EQ(layout.view().kv.sizes, layout.kv_sizes.data());
  EXPECT_EQ(layout.view().kv.offsets, nullptr);
  EXPECT_EQ(layout.view().kv.blocks, 3);
  layout.shared_partition = true;
  layout.q_offsets = {7, 200};
  EXPECT_EQ(layout.view().kv.sizes, layout.q_sizes.data());
  EXPECT_EQ(layout.view().kv.offsets, layout.q_offsets.data());
  EXPECT_EQ(layout.view().kv.blocks, 2);
}

TEST(LayoutGraph, FromCsr) {
  Layout layout = empty_graph();
  const std::vector<std::int64_t> rows = {0, 2, 2, 5, 6};
  const std::vector<std::int32_t> columns = {2, 0, 1, 0, 2, 2};
  ASSERT_TRUE(set_graph_from_csr(layout, rows, columns).ok());
  EXPECT_EQ(layout.max_list, 3);
  EXPECT_THAT(layout.q2k_block_nums, ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(list_of(layout, 0), ElementsAre(2, 0));
  EXPECT_THAT(list_of(layout, 1), IsEmpty());
  EXPECT_THAT(list_of(layout, 2), ElementsAre(1, 0, 2));
  EXPECT_THAT(list_of(layout, 3), ElementsAre(2));
  EXPECT_TRUE(validate(layout.view()).ok());
}

TEST(LayoutGraph, FromBlockMap) {
  Layout layout = empty_graph();
  const std::vector<std::uint8_t> map = {1, 0, 1, 0, 0, 0, 255, 1, 1, 0, 2, 0};
  ASSERT_TRUE(set_graph_from_block_map(layout, map).ok());
  EXPECT_EQ(layout.max_list, 3);
  EXPECT_THAT(list_of(layout, 0), ElementsAre(0, 2));
  EXPECT_THAT(list_of(layout, 1), IsEmpty());
  EXPECT_THAT(list_of(layout, 2), ElementsAre(0, 1, 2));
  EXPECT_THAT(list_of(layout, 3), ElementsAre(1));
  EXPECT_TRUE(validate(layout.view()).ok());
}

TEST(LayoutGraph, OfNothing) {
  Layout layout;
  EXPECT_TRUE(set_graph_from_block_map(layout, {}).ok());
  EXPECT_TRUE(set_graph_from_csr(layout, std::vector<std::int64_t>{0}, {}).ok());
  EXPECT_EQ(layout.max_list, 0);
  EXPECT_TRUE(validate(layout.view()).ok());
}

struct MalformedCsr {
  std::vector<std::int64_t> rows;
  std::vector<std::int32_t> columns;
  const char* message;
};

TEST(LayoutGraph, MalformedCsrLeavesTheLayoutAlone) {
  const std::vector<MalformedCsr> table = {
      {{}, {}, "row_offsets: expected 5 elements, got 0"},
      {{0, 1, 1, 1}, {0}, "row_offsets: expected 5 elements, got 4"},
      {{1, 1, 1, 1, 1}, {0}, "row_offsets[0]: expected 0, got 1"},
      {{0, 2, 1, 2, 2}, {0, 1}, "row_offsets[2]: expected a number in [2, 2], got 1"},
      {{0, 0, 0, 9, 9}, {0}, "row_offsets[3]: expected a number in [0, 1], got 9"},
      {{0, 0, 0, 0, 1},
       {0, 1},
       "row_offsets[4]: expected 2, the number of elements of column_indices, got 1"},
      {{0, 1, 1, 1, 2}, {0, 3}, "column_indices[1]: expected an id in [0, 3), got 3"},
      {{0, 1, 1, 1, 2}, {-1, 0}, "column_indices[0]: expected an id in [0, 3), got -1"},
      {{0, 1, 1, 4, 4},
       {0, 1, 2, 1},
       "column_indices[3]: expected an id that row 2 does not have yet, got 1"},
  };
  for (const MalformedCsr& csr : table) {
    Layout layout = empty_graph();
    layout.max_list = 77;
    const Status status = set_graph_from_csr(layout, csr.rows, csr.columns);
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.message(), csr.message);
    EXPECT_EQ(layout.max_list, 77);
    EXPECT_THAT(layout.q2k_block_nums, IsEmpty());
  }
}

TEST(LayoutGraph, MalformedCountsAndMaps) {
  Layout layout = empty_graph();
  const std::vector<std::uint8_t> map(11, 1);
  EXPECT_EQ(set_graph_from_block_map(layout, map).message(),
            "map: expected the elements of [1, 2, 2, 3], got 11");
  layout.kv_blocks = 0;
  EXPECT_EQ(set_graph_from_block_map(layout, map).message(),
            "map: expected the elements of [1, 2, 2, 0], got 11");
  layout.q_blocks = -4;
  EXPECT_EQ(set_graph_from_block_map(layout, map).message(),
            "layout.q_blocks: expected 0 to 16777216, got -4");
  layout.batch = 0;
  EXPECT_EQ(set_graph_from_csr(layout, {}, {}).message(), "batch: expected at least 1, got 0");
}

// --- Clusters ---------------------------------------------------------------------------------

TEST(SplitClusters, FullBlocksAndARemainder) {
  Clusters q;
  q.clusters = 3;
  q.sizes = {300, 0, 16};
  Clusters kv;
  kv.clusters = 4;
  kv.sizes = {128, 129, 0, 1};
  const std::vector<std::uint8_t> map = {0, 1, 1, 1,   // the cluster of 300 rows
                                         1, 1, 1, 1,   // the empty one
                                         1, 0, 0, 0};  // the one of 16
  const Result<Layout> result = split_clusters(1, 1, q, kv, map);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const Layout& layout = result.value();
  EXPECT_FALSE(layout.shared_partition);
  EXPECT_THAT(layout.q_sizes, ElementsAre(128, 128, 44, 16));
  EXPECT_THAT(layout.q_offsets, ElementsAre(0, 128, 256, 300));
  EXPECT_THAT(layout.kv_sizes, ElementsAre(128, 128, 1, 1));
  EXPECT_THAT(layout.kv_offsets, ElementsAre(0, 128, 256, 257));
  for (std::int64_t block = 0; block < 3; ++block) {
    EXPECT_THAT(list_of(layout, block), ElementsAre(1, 2, 3));
  }
  EXPECT_THAT(list_of(layout, 3), ElementsAre(0));
  EXPECT_TRUE(validate(layout.view()).ok());
}

TEST(SplitClusters, HeadsWithFewerBlocksGetEmptyOnes) {
  Clusters clusters;
  clusters.clusters = 2;
  clusters.scope = PartitionScope::kPerHead;
  clusters.sizes = {257, 64, 1, 2};
  clusters.offsets = {1000, 3, 5, 8};
  const std::vector<std::uint8_t> map(8, 1);
  const Result<Layout> result = split_clusters(1, 2, clusters, clusters, map);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const Layout& layout = result.value();
  EXPECT_TRUE(layout.shared_partition);
  EXPECT_EQ(layout.q_blocks, 4);
  EXPECT_EQ(layout.kv_blocks, 4);
  EXPECT_EQ(layout.q_scope, PartitionScope::kPerHead);
  EXPECT_THAT(layout.q_sizes, ElementsAre(128, 128, 1, 64, 1, 2, 0, 0));
  EXPECT_THAT(layout.q_offsets, ElementsAre(1000, 1128, 1256, 3, 5, 8, 0, 0));
  EXPECT_THAT(layout.q2k_block_nums, ElementsAre(4, 4, 4, 4, 2, 2, 0, 0));
  EXPECT_THAT(list_of(layout, 5), ElementsAre(0, 1));
  EXPECT_TRUE(validate(layout.view()).ok());
}

// The graph is per batch element and head even where the partition is shared.
TEST(SplitClusters, BatchesHaveTheirOwnGraph) {
  Clusters clusters;
  clusters.clusters = 2;
  clusters.sizes = {130, 10};
  const std::vector<std::uint8_t> map = {1, 0, 0, 1, 0, 1, 1, 0};
  const Result<Layout> result = split_clusters(2, 1, clusters, clusters, map);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_THAT(list_of(result.value(), 0), ElementsAre(0, 1));
  EXPECT_THAT(list_of(result.value(), 1), ElementsAre(0, 1));
  EXPECT_THAT(list_of(result.value(), 2), ElementsAre(2));
  EXPECT_THAT(list_of(result.value(), 3), ElementsAre(2));
  EXPECT_THAT(list_of(result.value(), 5), ElementsAre(0, 1));
}

TEST(SplitClusters, MalformedInputs) {
  struct Case {
    Clusters q;
    std::int32_t batch;
    std::size_t cells;
    const char* message;
  };
  const PartitionScope shared = PartitionScope::kShared;
  const std::vector<Case> table = {
      {{{1, 2}, {}, 2, shared}, 0, 4, "batch: expected at least 1, got 0"},
      {{{1, 2}, {}, -1, shared}, 1, 4, "q.clusters: expected 0 to 16777216, got -1"},
      {{{1, 2}, {}, 3, shared}, 1, 9, "q.sizes: expected 3 elements, got 2"},
      {{{1, 2}, {0}, 2, shared}, 1, 4, "q.offsets: expected no or 2 elements, got 1"},
      {{{1, -2}, {}, 2, shared}, 1, 4, "q.sizes[1]: expected at least 0 rows, got -2"},
      {{{1, 2}, {-1, 5}, 2, shared},
       1,
       4,
       "q.offsets[0]: expected rows from 0 that end by 2147483392, got rows -1 to 0"},
      {{{2000000000, 200000000}, {}, 2, shared},
       1,
       4,
       "q.sizes[1]: expected rows from 0 that end by 2147483392, got rows 2000000000 to "
       "2200000000"},
      {{{100, 2}, {0, 99}, 2, shared},
       1,
       4,
       "q.offsets[1]: expected rows that no other cluster of the head holds, got first row 99"},
      {{{1, 2}, {}, 2, PartitionScope::kPerBatchHead}, 2, 8, "q.sizes: expected 4 elements, got 2"},
      {{{1, 2}, {}, 2, shared}, 1, 3, "map: expected the elements of [1, 1, 2, 2], got 3"},
  };
  for (const Case& malformed : table) {
    const std::vector<std::uint8_t> map(malformed.cells, 1);
    const Result<Layout> result = split_clusters(malformed.batch, 1, malformed.q, malformed.q, map);
    EXPECT_EQ(result.status().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(result.status().message(), malformed.message);
  }
}

TEST(SplitClusters, FromCompressedRowsAsFromAMap) {
  Clusters clusters;
  clusters.clusters = 3;
  clusters.sizes = {130, 10, 256};
  const std::vector<std::uint8_t> map = {1, 0, 1, 0, 1, 0, 1, 1, 1};
  const ClusterGraph graph{{0, 2, 3, 6}, {0, 2, 1, 0, 1, 2}};
  const Result<Layout> a = split_clusters(1, 1, clusters, clusters, map);
  const Result<Layout> b = cluster_layout(1, 1, clusters, clusters, graph);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a.value().q2k_block_index, b.value().q2k_block_index);
  EXPECT_EQ(a.value().q2k_block_nums, b.value().q2k_block_nums);
  EXPECT_EQ(cluster_layout(1, 1, clusters, clusters, {{0, 1}, {0}}).status().message(),
            "graph.row_offsets: expected 4 elements, got 2");
}

}  // namespace
}  // namespace kpage
