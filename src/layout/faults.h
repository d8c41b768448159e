// The wording of what can be wrong with a layout. Host validation and plans built on a device,
// which learn of a fault afterwards as an argument, a flat position and a value, say the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kpage/layout.h"
#include "kpage/status.h"

namespace kpage::layout {

// At least one of each, and pairs that an int32 counts.
[[nodiscard]] Status check_batch_heads(std::int32_t batch, std::int32_t heads);

enum class Side : std::int32_t { kQ, kKv };

// One side's partition, for messages: its names and the shape of its tensors.
struct SideShape {
  Side side = Side::kQ;
  PartitionScope scope = PartitionScope::kShared;
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t blocks = 0;

  [[nodiscard]] std::string_view sizes_name() const;    // "q_block_sizes"
  [[nodiscard]] std::string_view offsets_name() const;  // "q_block_offsets"
};

// "name[...]" with the leading dimensions that the scope has.
[[nodiscard]] std::string scoped_element(std::string_view name, PartitionScope scope,
                                         std::int64_t flat, std::int64_t batch, std::int64_t heads,
                                         std::int64_t blocks);

// `flat` counts through sizes or offsets, [scope_count, blocks].
[[nodiscard]] Status size_out_of_range(const SideShape& side, std::int64_t flat, std::int64_t size);
[[nodiscard]] Status offset_out_of_range(const SideShape& side, std::int64_t flat,
                                         std::int64_t offset);
[[nodiscard]] Status blocks_overlap(const SideShape& side, std::int64_t flat, std::int64_t offset);

// The block graph, for messages: [batch, heads, q_blocks, max_list] over kv_blocks.
struct GraphShape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t q_blocks = 0;
  std::int64_t kv_blocks = 0;
  std::int64_t max_list = 0;
};

// `flat` counts through q2k_block_nums.
[[nodiscard]] Status count_out_of_range(const GraphShape& graph, std::int64_t flat,
                                        std::int64_t count);
// `flat` counts through q2k_block_index.
[[nodiscard]] Status id_out_of_range(const GraphShape& graph, std::int64_t flat, std::int64_t id);
[[nodiscard]] Status id_repeated(const GraphShape& graph, std::int64_t flat, std::int64_t id);

}  // namespace kpage::layout
