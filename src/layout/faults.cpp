#include "layout/faults.h"

#include <limits>
#include <string>

#include "base/message.h"

namespace kpage::layout {

Status check_batch_heads(std::int32_t batch, std::int32_t heads) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  if (batch < 1) {
    return invalid_argument("batch", "at least 1", batch);
  }
  if (heads < 1 || heads > kMost / batch) {
    return invalid_argument("heads", text("1 to ", kMost / batch), heads);
  }
  return {};
}

std::string_view SideShape::sizes_name() const {
  return side == Side::kQ ? "q_block_sizes" : "kv_block_sizes";
}

std::string_view SideShape::offsets_name() const {
  return side == Side::kQ ? "q_block_offsets" : "kv_block_offsets";
}

std::string scoped_element(std::string_view name, PartitionScope scope, std::int64_t flat,
                           std::int64_t batch, std::int64_t heads, std::int64_t blocks) {
  switch (scope) {
    case PartitionScope::kShared:
      return element(name, flat, {blocks});
    case PartitionScope::kPerHead:
      return element(name, flat, {heads, blocks});
    case PartitionScope::kPerBatchHead:
      break;
  }
  return element(name, flat, {batch, heads, blocks});
}

namespace {

std::string at(const SideShape& side, std::string_view name, std::int64_t flat) {
  return scoped_element(name, side.scope, flat, side.batch, side.heads, side.blocks);
}

std::string list_entry(const GraphShape& graph, std::int64_t flat) {
  return element("q2k_block_index", flat,
                 {graph.batch, graph.heads, graph.q_blocks, graph.max_list});
}

}  // namespace

Status size_out_of_range(const SideShape& side, std::int64_t flat, std::int64_t size) {
  return invalid_argument(at(side, side.sizes_name(), flat),
                          text("valid rows in [0, ", kBlockRows, "]"), size);
}

Status offset_out_of_range(const SideShape& side, std::int64_t flat, std::int64_t offset) {
  return invalid_argument(at(side, side.offsets_name(), flat),
                          text("a first row of at least 0, and rows that end by ", kMaxRows),
                          offset);
}

Status blocks_overlap(const SideShape& side, std::int64_t flat, std::int64_t offset) {
  return invalid_argument(at(side, side.offsets_name(), flat),
                          "rows that no other block of the head holds", text("first row ", offset));
}

Status count_out_of_range(const GraphShape& graph, std::int64_t flat, std::int64_t count) {
  return invalid_argument(
      element("q2k_block_nums", flat, {graph.batch, graph.heads, graph.q_blocks}),
      text("a list length in [0, ", graph.max_list, "]"), count);
}

Status id_out_of_range(const GraphShape& graph, std::int64_t flat, std::int64_t id) {
  return invalid_argument(list_entry(graph, flat), text("an id in [0, ", graph.kv_blocks, ")"), id);
}

Status id_repeated(const GraphShape& graph, std::int64_t flat, std::int64_t id) {
  return invalid_argument(list_entry(graph, flat), "an id that the list does not have yet", id);
}

}  // namespace kpage::layout
