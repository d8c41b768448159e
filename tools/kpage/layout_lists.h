// What the lists of a layout select: how much for each head, and where.
#pragma once

#include <cstdint>
#include <vector>

#include "kpage/layout.h"

namespace kpage::cli {

// Of one head of one batch element.
struct HeadLists {
  std::int64_t pairs = 0;   // of blocks, selected
  std::int64_t useful = 0;  // of valid rows, selected
  std::int64_t all = 0;     // of valid rows
  std::int32_t longest_list = 0;
  std::int64_t without_keys = 0;  // query blocks with rows that select no key: their output is 0

  // Useful pairs among all pairs of valid rows.
  [[nodiscard]] double density() const;
};
// [batch * heads]. The layout is a valid one.
[[nodiscard]] std::vector<HeadLists> head_lists(const Layout& layout);

// Query blocks from top to bottom by key blocks from left to right, as cells that stand for several
// of each where there are more than `most_rows` or `most_columns`.
struct SelectionMap {
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  std::vector<double> share;  // [rows, columns]: of the cell's pairs of blocks, those selected

  [[nodiscard]] double at(std::int32_t row, std::int32_t column) const {
    return share[static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) +
                 static_cast<std::size_t>(column)];
  }
};
[[nodiscard]] SelectionMap selection_map(const Layout& layout, std::int32_t batch_head,
                                         std::int32_t most_rows, std::int32_t most_columns);

}  // namespace kpage::cli
