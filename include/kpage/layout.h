// A layout says what to compute: partitions of the rows into blocks, and for each query block the
// key/value blocks it attends to. It knows nothing of tiles, pages or kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kpage/export.h"
#include "kpage/status.h"

namespace KPAGE_EXPORT kpage {

inline constexpr std::int32_t kBlockRows = 128;       // most valid rows a block may have
inline constexpr std::int32_t kMaxBlocks = 1 << 24;   // blocks of a head, on either side
inline constexpr std::int32_t kMaxRows = 0x7fffff00;  // one past the last row a block may reach

// Which leading dimensions a partition's tensors have: [N], [H, N] or [B, H, N], with H the query
// heads, exactly: a leading 1 is not broadcast.
enum class PartitionScope : std::int32_t { kShared, kPerHead, kPerBatchHead };

// How one side's rows are cut into blocks. Block b holds the rows
// [offsets[b], offsets[b] + sizes[b]); all other rows are padding. The offset of an empty block is
// ignored.
struct PartitionView {
  const std::int32_t* sizes = nullptr;    // [N] | [H, N] | [B, H, N], each 0..128
  const std::int32_t* offsets = nullptr;  // the same shape; null: block b starts at row 128 * b
  std::int32_t blocks = 0;                // N
  PartitionScope scope = PartitionScope::kShared;
};

// A layout over the caller's memory. All pointers are of one device.
struct LayoutView {
  std::int32_t batch = 1;  // B
  std::int32_t heads = 1;  // H, the query heads
  PartitionView q;
  PartitionView kv;                               // may be the same tensors as q
  const std::int32_t* q2k_block_index = nullptr;  // [B, H, NQ, Kmax]
  const std::int32_t* q2k_block_nums = nullptr;   // [B, H, NQ]: the valid prefix of each list
  std::int32_t max_list = 0;                      // Kmax
};

// How many sets of sizes a partition has.
[[nodiscard]] constexpr std::int64_t scope_count(PartitionScope scope, std::int64_t batch,
                                                 std::int64_t heads) {
  return scope == PartitionScope::kShared    ? 1
         : scope == PartitionScope::kPerHead ? heads
                                             : batch * heads;
}

// A layout that owns its memory.
struct Layout {
  std::int32_t batch = 1;
  std::int32_t heads = 1;
  std::int32_t q_blocks = 0;
  std::int32_t kv_blocks = 0;
  PartitionScope q_scope = PartitionScope::kShared;
  PartitionScope kv_scope = PartitionScope::kShared;
  bool shared_partition = true;         // K/V use the Q partition, offsets included
  std::vector<std::int32_t> q_sizes;    // [scope_count, NQ]
  std::vector<std::int32_t> q_offsets;  // the same, or empty: 128 * b
  std::vector<std::int32_t> kv_sizes;   // [scope_count, NK]; empty where shared_partition
  std::vector<std::int32_t> kv_offsets;
  std::int32_t max_list = 0;
  std::vector<std::int32_t> q2k_block_index;  // [B, H, NQ, Kmax]
  std::vector<std::int32_t> q2k_block_nums;   // [B, H, NQ]

  [[nodiscard]] LayoutView view() const;
};

// Checks all that a layout in host memory has to hold: counts within Kmax, ids in range and without
// duplicates in a list, sizes within 0..128, rows that fit, and no row in two blocks of one side of
// a head. The message names the argument and the position.
[[nodiscard]] Status validate(const LayoutView& layout);

// Fills index, counts and max_list of `layout` from other forms of a block graph. The rest of the
// layout (batch, heads, block counts) must be set.
//   CSR: row_offsets [B * H * NQ + 1], column_indices [row_offsets.back()].
//   Block map: [B, H, NQ, NK], non-zero where the query block attends to the key/value block.
[[nodiscard]] Status set_graph_from_csr(Layout& layout, std::span<const std::int64_t> row_offsets,
                                        std::span<const std::int32_t> column_indices);
[[nodiscard]] Status set_graph_from_block_map(Layout& layout, std::span<const std::uint8_t> map);

// Clusters of any size, laid end to end or anywhere.
struct Clusters {
  std::vector<std::int32_t> sizes;    // [scope_count, clusters], each >= 0
  std::vector<std::int32_t> offsets;  // the same; empty: end to end, in order
  std::int32_t clusters = 0;
  PartitionScope scope = PartitionScope::kShared;
};

// Cuts clusters into blocks of at most 128 rows, full ones and a remainder, all with the cluster's
// neighbourhood (paper 3.4.1). `map` is [B, H, CQ, CK], non-zero where the query
// cluster attends to the key/value cluster. Heads with fewer blocks than others get empty ones.
[[nodiscard]] Result<Layout> split_clusters(std::int32_t batch, std::int32_t heads,
                                            const Clusters& q, const Clusters& kv,
                                            std::span<const std::uint8_t> map);

}  // namespace kpage
