// Clusters of any size, split into blocks (paper 3.4.1).
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kpage/geometry.h"
#include "kpage/layout.h"

#include "base/hd.h"
#include "base/message.h"
#include "layout/faults.h"
#include "layout/graph.h"
#include "layout/intervals.h"

namespace kpage {
namespace {

Status check_clusters(std::string_view name, const Clusters& side, std::int64_t batch,
                      std::int64_t heads) {
  const std::string sizes = text(name, ".sizes");
  const std::string offsets = text(name, ".offsets");
  if (side.clusters < 0 || side.clusters > kMaxBlocks) {
    return invalid_argument(text(name, ".clusters"), text("0 to ", kMaxBlocks), side.clusters);
  }
  const std::int64_t sets = scope_count(side.scope, batch, heads);
  const std::int64_t count = sets * side.clusters;
  if (static_cast<std::int64_t>(side.sizes.size()) != count) {
    return invalid_argument(sizes, text(count, " elements"), side.sizes.size());
  }
  if (!side.offsets.empty() && side.offsets.size() != side.sizes.size()) {
    return invalid_argument(offsets, text("no or ", count, " elements"), side.offsets.size());
  }
  const auto at = [&](std::string_view which, std::int64_t flat) {
    return layout::scoped_element(which, side.scope, flat, batch, heads, side.clusters);
  };
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t size = side.sizes[static_cast<std::size_t>(i)];
    if (size < 0) {
      return invalid_argument(at(sizes, i), "at least 0 rows", size);
    }
    end = i % side.clusters == 0 ? 0 : end;
    const std::int64_t row = side.offsets.empty() ? end : side.offsets[static_cast<std::size_t>(i)];
    if (size > 0 && (row < 0 || row + size > kMaxRows)) {
      return invalid_argument(at(side.offsets.empty() ? sizes : offsets, i),
                              text("rows from 0 that end by ", kMaxRows),
                              text("rows ", row, " to ", row + size));
    }
    end += size;
  }
  for (std::int64_t set = 0; !side.offsets.empty() && set < sets; ++set) {
    const std::int64_t begin = set * side.clusters;
    const std::int64_t overlap = layout::first_overlap(side.offsets.data() + begin,
                                                       side.sizes.data() + begin, side.clusters);
    if (overlap >= 0) {
      return invalid_argument(
          at(offsets, begin + overlap), "rows that no other cluster of the head holds",
          text("first row ", side.offsets[static_cast<std::size_t>(begin + overlap)]));
    }
  }
  return {};
}

// The blocks of each cluster of a side.
struct Split {
  std::int32_t blocks = 0;            // of the set that has most
  std::vector<std::int32_t> sizes;    // [scope_count, blocks]
  std::vector<std::int32_t> offsets;  // the same
  std::vector<std::int32_t> first;    // [scope_count, clusters + 1]: the first block of a cluster
};

Split split(const Clusters& side, std::int64_t sets) {
  Split out;
  const std::int32_t clusters = side.clusters;
  for (std::int64_t set = 0; set < sets; ++set) {
    std::int32_t block = 0;
    for (std::int32_t c = 0; c < clusters; ++c) {
      out.first.push_back(block);
      block += ceil_div(side.sizes[static_cast<std::size_t>(set * clusters + c)], kBlockRows);
    }
    out.first.push_back(block);
    out.blocks = std::max(out.blocks, block);
  }
  out.sizes.assign(static_cast<std::size_t>(sets * out.blocks), 0);
  out.offsets.assign(out.sizes.size(), 0);
  for (std::int64_t set = 0; set < sets; ++set) {
    auto block = static_cast<std::size_t>(set * out.blocks);
    std::int32_t end = 0;
    for (std::int32_t c = 0; c < clusters; ++c) {
      const auto i = static_cast<std::size_t>(set * clusters + c);
      const std::int32_t row = side.offsets.empty() ? end : side.offsets[i];
      for (std::int32_t done = 0; done < side.sizes[i]; done += kBlockRows, ++block) {
        out.offsets[block] = row + done;
        out.sizes[block] = std::min(side.sizes[i] - done, kBlockRows);
      }
      end += side.sizes[i];
    }
  }
  return out;
}

// Every block of a cluster gets all blocks of the clusters that it attends to.
ClusterGraph expand(std::int32_t batch, std::int32_t heads, const Clusters& q, const Split& q_split,
                    const Clusters& kv, const Split& kv_split, const ClusterGraph& graph) {
  ClusterGraph blocks;
  blocks.row_offsets.push_back(0);
  const std::int64_t pairs = std::int64_t{batch} * heads;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const auto set = [&](PartitionScope scope) {
      return scope == PartitionScope::kShared    ? 0
             : scope == PartitionScope::kPerHead ? pair % heads
                                                 : pair;
    };
    const std::int32_t* q_first = q_split.first.data() + set(q.scope) * (q.clusters + 1);
    const std::int32_t* kv_first = kv_split.first.data() + set(kv.scope) * (kv.clusters + 1);
    for (std::int64_t c = 0; c < q.clusters; ++c) {
      const auto row = static_cast<std::size_t>(pair * q.clusters + c);
      const auto begin = static_cast<std::ptrdiff_t>(blocks.columns.size());
      for (std::int64_t i = graph.row_offsets[row]; i < graph.row_offsets[row + 1]; ++i) {
        const std::int32_t column = graph.columns[static_cast<std::size_t>(i)];
        for (std::int32_t b = kv_first[column]; b < kv_first[column + 1]; ++b) {
          blocks.columns.push_back(b);
        }
      }
      const std::vector<std::int32_t> list(blocks.columns.begin() + begin, blocks.columns.end());
      const std::int32_t copies = q_first[c + 1] - q_first[c];
      if (copies == 0) {
        blocks.columns.resize(static_cast<std::size_t>(begin));
      }
      for (std::int32_t copy = 0; copy < copies; ++copy) {
        if (copy > 0) {
          blocks.columns.insert(blocks.columns.end(), list.begin(), list.end());
        }
        blocks.row_offsets.push_back(static_cast<std::int64_t>(blocks.columns.size()));
      }
    }
    // Heads with fewer blocks than others get empty ones.
    blocks.row_offsets.resize(static_cast<std::size_t>((pair + 1) * q_split.blocks + 1),
                              static_cast<std::int64_t>(blocks.columns.size()));
  }
  return blocks;
}

bool same(const Clusters& a, const Clusters& b) {
  return &a == &b || (a.clusters == b.clusters && a.scope == b.scope && a.sizes == b.sizes &&
                      a.offsets == b.offsets);
}

Status check_sides(std::int32_t batch, std::int32_t heads, const Clusters& q, const Clusters& kv) {
  Status status = layout::check_batch_heads(batch, heads);
  if (status.ok()) {
    status = check_clusters("q", q, batch, heads);
  }
  if (status.ok() && &kv != &q) {
    status = check_clusters("kv", kv, batch, heads);
  }
  return status;
}

Result<Layout> build(std::int32_t batch, std::int32_t heads, const Clusters& q, const Clusters& kv,
                     const ClusterGraph& graph) {
  Layout out;
  out.batch = batch;
  out.heads = heads;
  out.shared_partition = same(q, kv);
  out.q_scope = q.scope;
  out.kv_scope = kv.scope;
  Split q_split = split(q, scope_count(q.scope, batch, heads));
  Split kv_split = out.shared_partition ? q_split : split(kv, scope_count(kv.scope, batch, heads));
  for (const auto& [name, blocks] :
       {std::pair{"q.sizes", q_split.blocks}, std::pair{"kv.sizes", kv_split.blocks}}) {
    if (blocks > kMaxBlocks) {
      return invalid_argument(name, text("clusters that make at most ", kMaxBlocks, " blocks"),
                              blocks);
    }
  }
  const ClusterGraph blocks = expand(batch, heads, q, q_split, kv, kv_split, graph);
  out.q_blocks = q_split.blocks;
  out.kv_blocks = kv_split.blocks;
  layout::store_lists(out, blocks.row_offsets, blocks.columns);
  out.q_sizes = std::move(q_split.sizes);
  out.q_offsets = std::move(q_split.offsets);
  if (!out.shared_partition) {
    out.kv_sizes = std::move(kv_split.sizes);
    out.kv_offsets = std::move(kv_split.offsets);
  }
  return out;
}

}  // namespace

Result<Layout> split_clusters(std::int32_t batch, std::int32_t heads, const Clusters& q,
                              const Clusters& kv, std::span<const std::uint8_t> map) {
  Status status = check_sides(batch, heads, q, kv);
  if (status.ok()) {
    status = layout::check_map("map", map.size(), {batch, heads, q.clusters, kv.clusters});
  }
  if (!status.ok()) {
    return status;
  }
  return build(batch, heads, q, kv,
               layout::rows_of_map(std::int64_t{batch} * heads * q.clusters, kv.clusters, map));
}

Result<Layout> cluster_layout(std::int32_t batch, std::int32_t heads, const Clusters& q,
                              const Clusters& kv, const ClusterGraph& graph) {
  Status status = check_sides(batch, heads, q, kv);
  if (status.ok()) {
    status = layout::check_rows({"graph.row_offsets", "graph.columns"},
                                std::int64_t{batch} * heads * q.clusters, kv.clusters,
                                graph.row_offsets, graph.columns);
  }
  if (!status.ok()) {
    return status;
  }
  return build(batch, heads, q, kv, graph);
}

}  // namespace kpage
