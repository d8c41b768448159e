// Block graphs in compressed rows, and from cluster graphs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kpage/geometry.h"
#include "kpage/layout.h"
#include "kpage/status.h"

namespace kpage::layout {

// What a row of a graph is called in messages.
struct GraphNames {
  std::string_view row_offsets;
  std::string_view columns;
};

// Checks a graph in compressed rows: row_offsets [rows + 1] counts up from 0 to columns.size(); ids
// are in [0, limit) and stand in a row once.
[[nodiscard]] Status check_rows(const GraphNames& names, std::int64_t rows, std::int64_t limit,
                                std::span<const std::int64_t> row_offsets,
                                std::span<const std::int32_t> columns);

// Whether a map has the elements of its shape.
[[nodiscard]] Status check_map(std::string_view name, std::size_t elements,
                               const std::array<std::int64_t, 4>& shape);

// The non-zero elements of map [rows, columns].
[[nodiscard]] ClusterGraph rows_of_map(std::int64_t rows, std::int64_t columns,
                                       std::span<const std::uint8_t> map);

// Writes lists, known to be right, in the form of the layout: index, counts and max_list.
void store_lists(Layout& layout, std::span<const std::int64_t> row_offsets,
                 std::span<const std::int32_t> columns);

}  // namespace kpage::layout
