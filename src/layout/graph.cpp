#include "layout/graph.h"

#include <algorithm>
#include <utility>

#include "base/message.h"
#include "layout/faults.h"

namespace kpage {
namespace layout {

Status check_rows(const GraphNames& names, std::int64_t rows, std::int64_t limit,
                  std::span<const std::int64_t> row_offsets,
                  std::span<const std::int32_t> columns) {
  const auto row_count = static_cast<std::int64_t>(row_offsets.size());
  const auto column_count = static_cast<std::int64_t>(columns.size());
  if (row_count != rows + 1) {
    return invalid_argument(names.row_offsets, text(rows + 1, " elements"), row_count);
  }
  if (row_offsets.front() != 0) {
    return invalid_argument(element(names.row_offsets, 0, {row_count}), "0", row_offsets.front());
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t begin = row_offsets[static_cast<std::size_t>(row)];
    const std::int64_t end = row_offsets[static_cast<std::size_t>(row + 1)];
    if (end < begin || end > column_count) {
      return invalid_argument(element(names.row_offsets, row + 1, {row_count}),
                              text("a number in [", begin, ", ", column_count, "]"), end);
    }
  }
  if (row_offsets.back() != column_count) {
    return invalid_argument(element(names.row_offsets, rows, {row_count}),
                            text(column_count, ", the number of elements of ", names.columns),
                            row_offsets.back());
  }
  std::vector<std::int64_t> seen(static_cast<std::size_t>(limit), -1);  // the last row with that id
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = row_offsets[static_cast<std::size_t>(row)];
         i < row_offsets[static_cast<std::size_t>(row + 1)]; ++i) {
      const std::int32_t id = columns[static_cast<std::size_t>(i)];
      if (id < 0 || id >= limit) {
        return invalid_argument(element(names.columns, i, {column_count}),
                                text("an id in [0, ", limit, ")"), id);
      }
      if (std::exchange(seen[static_cast<std::size_t>(id)], row) == row) {
        return invalid_argument(element(names.columns, i, {column_count}),
                                text("an id that row ", row, " does not have yet"), id);
      }
    }
  }
  return {};
}

Status check_map(std::string_view name, std::size_t elements,
                 const std::array<std::int64_t, 4>& shape) {
  // Divided, not multiplied: the product may overflow.
  std::size_t left = elements;
  bool fits = true;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    empty = empty || extent == 0;
    fits = fits && (extent == 0 || left % static_cast<std::size_t>(extent) == 0);
    left = extent == 0 ? left : left / static_cast<std::size_t>(extent);
  }
  if (empty ? elements != 0 : !fits || left != 1) {
    return invalid_argument(
        name, text("the elements of ", shape_text({shape[0], shape[1], shape[2], shape[3]})),
        elements);
  }
  return {};
}

ClusterGraph rows_of_map(std::int64_t rows, std::int64_t columns,
                         std::span<const std::uint8_t> map) {
  ClusterGraph graph;
  graph.row_offsets.reserve(static_cast<std::size_t>(rows + 1));
  graph.row_offsets.push_back(0);
  graph.columns.reserve(map.size() -
                        static_cast<std::size_t>(std::count(map.begin(), map.end(), 0)));
  const std::uint8_t* cell = map.data();
  for (std::int64_t row = 0; row < rows; ++row, cell += columns) {
    for (std::int64_t column = 0; column < columns; ++column) {
      if (cell[column] != 0) {
        graph.columns.push_back(static_cast<std::int32_t>(column));
      }
    }
    graph.row_offsets.push_back(static_cast<std::int64_t>(graph.columns.size()));
  }
  return graph;
}

void store_lists(Layout& layout, std::span<const std::int64_t> row_offsets,
                 std::span<const std::int32_t> columns) {
  const std::size_t lists = row_offsets.size() - 1;
  layout.q2k_block_nums.resize(lists);
  layout.max_list = 0;
  for (std::size_t list = 0; list < lists; ++list) {
    const auto length = static_cast<std::int32_t>(row_offsets[list + 1] - row_offsets[list]);
    layout.q2k_block_nums[list] = length;
    layout.max_list = std::max(layout.max_list, length);
  }
  layout.q2k_block_index.assign(lists * static_cast<std::size_t>(layout.max_list), -1);
  for (std::size_t list = 0; list < lists; ++list) {
    std::copy(columns.data() + row_offsets[list], columns.data() + row_offsets[list + 1],
              layout.q2k_block_index.data() + list * static_cast<std::size_t>(layout.max_list));
  }
}

}  // namespace layout

namespace {

Status check_counts(const Layout& target) {
  if (Status status = layout::check_batch_heads(target.batch, target.heads); !status.ok()) {
    return status;
  }
  for (const auto& [name, blocks] : {std::pair{"layout.q_blocks", target.q_blocks},
                                     std::pair{"layout.kv_blocks", target.kv_blocks}}) {
    if (blocks < 0 || blocks > kMaxBlocks) {
      return invalid_argument(name, text("0 to ", kMaxBlocks), blocks);
    }
  }
  return {};
}

std::int64_t list_count(const Layout& target) {
  return std::int64_t{target.batch} * target.heads * target.q_blocks;
}

std::int32_t key_blocks(const Layout& target) {
  return target.shared_partition ? target.q_blocks : target.kv_blocks;
}

}  // namespace

Status set_graph_from_csr(Layout& target, std::span<const std::int64_t> row_offsets,
                          std::span<const std::int32_t> column_indices) {
  Status status = check_counts(target);
  if (status.ok()) {
    status = layout::check_rows({"row_offsets", "column_indices"}, list_count(target),
                                key_blocks(target), row_offsets, column_indices);
  }
  if (status.ok()) {
    layout::store_lists(target, row_offsets, column_indices);
  }
  return status;
}

Status set_graph_from_block_map(Layout& target, std::span<const std::uint8_t> map) {
  if (Status status = check_counts(target); !status.ok()) {
    return status;
  }
  const std::int64_t lists = list_count(target);
  const std::int32_t blocks = key_blocks(target);
  if (Status status = layout::check_map("map", map.size(),
                                        {target.batch, target.heads, target.q_blocks, blocks});
      !status.ok()) {
    return status;
  }
  const ClusterGraph graph = layout::rows_of_map(lists, blocks, map);
  layout::store_lists(target, graph.row_offsets, graph.columns);
  return {};
}

}  // namespace kpage
