// The rows of a graph of tiles or clusters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kpage/geometry.h"

namespace kpage::test {

inline std::vector<std::int32_t> row_of(const ClusterGraph& graph, std::size_t row) {
  return {graph.columns.begin() + graph.row_offsets[row],
          graph.columns.begin() + graph.row_offsets[row + 1]};
}

}  // namespace kpage::test
