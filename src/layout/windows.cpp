// Static rules over tiles: sliding windows, segments that attend to all, unions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

#include "kpage/geometry.h"

#include "base/message.h"
#include "layout/graph.h"

namespace kpage {
namespace {

struct Range {
  std::int32_t begin;
  std::int32_t end;
};

// The tiles that a query at `q` of `count` sees in one dimension through a window of `width`.
Range window_of(std::int32_t q, std::int32_t width, std::int32_t count) {
  const std::int32_t half = width / 2;
  // The upper bound wins where a window is wider than the grid.
  const std::int32_t centre = std::min(std::max(q, half), count - 1 - half);
  return {std::max(centre - half, 0), static_cast<std::int32_t>(std::min<std::int64_t>(
                                          std::int64_t{centre} + half + 1, count))};
}

void append_range(std::vector<std::int32_t>& columns, std::int32_t begin, std::int32_t end) {
  const std::size_t at = columns.size();
  columns.resize(at + static_cast<std::size_t>(end - begin));
  std::iota(columns.begin() + static_cast<std::ptrdiff_t>(at), columns.end(), begin);
}

// Builds the rows of all heads: segments attend to all tiles and all tiles to segments;
// append(head, cube) adds the cubes, as tiles, that a cube of the grid attends to.
template <class Append>
ClusterGraph with_segments(const Tiling& tiling, std::int64_t heads, const Append& append) {
  ClusterGraph graph;
  graph.row_offsets.reserve(static_cast<std::size_t>(heads * tiling.count() + 1));
  graph.row_offsets.push_back(0);
  const std::int32_t first_cube = tiling.prefix_tiles;
  const std::int32_t end_cube = tiling.count() - tiling.suffix_tiles;
  for (std::int64_t head = 0; head < heads; ++head) {
    for (std::int32_t tile = 0; tile < tiling.count(); ++tile) {
      if (tile < first_cube || tile >= end_cube) {
        append_range(graph.columns, 0, tiling.count());
      } else {
        append_range(graph.columns, 0, first_cube);
        append(head, tile - first_cube, graph.columns);
        append_range(graph.columns, end_cube, tiling.count());
      }
      graph.row_offsets.push_back(static_cast<std::int64_t>(graph.columns.size()));
    }
  }
  return graph;
}

}  // namespace

Result<ClusterGraph> sliding_windows(const Tiling& tiling, std::span<const Dims> windows) {
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const Dims& window = windows[i];
    if (window.t < 1 || window.h < 1 || window.w < 1) {
      return invalid_argument(element("windows", static_cast<std::int64_t>(i),
                                      {static_cast<std::int64_t>(windows.size())}),
                              "extents of at least 1 tile",
                              text(window.t, "x", window.h, "x", window.w));
    }
  }
  const Dims& cubes = tiling.cubes;
  return with_segments(
      tiling, static_cast<std::int64_t>(windows.size()),
      [&](std::int64_t head, std::int32_t cube, std::vector<std::int32_t>& columns) {
        const Dims& window = windows[static_cast<std::size_t>(head)];
        const Range t = window_of(cube / (cubes.h * cubes.w), window.t, cubes.t);
        const Range h = window_of(cube / cubes.w % cubes.h, window.h, cubes.h);
        const Range w = window_of(cube % cubes.w, window.w, cubes.w);
        for (std::int32_t i = t.begin; i < t.end; ++i) {
          for (std::int32_t j = h.begin; j < h.end; ++j) {
            const std::int32_t row = tiling.prefix_tiles + (i * cubes.h + j) * cubes.w;
            append_range(columns, row + w.begin, row + w.end);
          }
        }
      });
}

std::int32_t vsa_top_k(double sparsity, std::int32_t tiles) {
  // In double, as the system computes it: 1 - 0.95 is a little over 0.05, and rounds up.
  const double kept = std::ceil((1.0 - sparsity) * tiles);
  return static_cast<std::int32_t>(std::max(1.0, std::min(kept, static_cast<double>(tiles))));
}

std::int32_t ssta_top_k(std::int32_t top_k, std::int32_t latent_frames) {
  return latent_frames <= 31 ? top_k / 2 : top_k;
}

Result<ClusterGraph> with_dense_segments(const Tiling& tiling, std::int32_t heads,
                                         const ClusterGraph& video) {
  if (heads < 1) {
    return invalid_argument("heads", "at least 1", heads);
  }
  const std::int64_t cubes = tiling.cubes.volume();
  if (Status status = layout::check_rows({"video.row_offsets", "video.columns"}, heads * cubes,
                                         cubes, video.row_offsets, video.columns);
      !status.ok()) {
    return status;
  }
  return with_segments(
      tiling, heads, [&](std::int64_t head, std::int32_t cube, std::vector<std::int32_t>& columns) {
        const auto row = static_cast<std::size_t>(head * cubes + cube);
        std::transform(video.columns.begin() + video.row_offsets[row],
                       video.columns.begin() + video.row_offsets[row + 1],
                       std::back_inserter(columns),
                       [&](std::int32_t column) { return tiling.prefix_tiles + column; });
      });
}

Result<ClusterGraph> unite(const ClusterGraph& a, const ClusterGraph& b) {
  if (a.row_offsets.size() != b.row_offsets.size() || a.row_offsets.empty()) {
    return invalid_argument(
        "b.row_offsets",
        text("as many elements as a.row_offsets, ", a.row_offsets.size(), ", and at least 1"),
        b.row_offsets.size());
  }
  const auto sorted_row = [](const ClusterGraph& graph, std::size_t row) {
    std::vector<std::int32_t> columns(graph.columns.begin() + graph.row_offsets[row],
                                      graph.columns.begin() + graph.row_offsets[row + 1]);
    std::sort(columns.begin(), columns.end());
    return columns;
  };
  ClusterGraph out;
  out.row_offsets.push_back(0);
  for (std::size_t row = 0; row + 1 < a.row_offsets.size(); ++row) {
    const std::vector<std::int32_t> left = sorted_row(a, row);
    const std::vector<std::int32_t> right = sorted_row(b, row);
    std::set_union(left.begin(), left.end(), right.begin(), right.end(),
                   std::back_inserter(out.columns));
    out.row_offsets.push_back(static_cast<std::int64_t>(out.columns.size()));
  }
  return out;
}

ClusterGraph repeat(const ClusterGraph& graph, std::int32_t times) {
  ClusterGraph out;
  out.row_offsets.push_back(0);
  for (std::int32_t i = 0; i < times; ++i) {
    const std::int64_t begin = out.row_offsets.back();
    std::transform(graph.row_offsets.begin() + 1, graph.row_offsets.end(),
                   std::back_inserter(out.row_offsets),
                   [&](std::int64_t offset) { return begin + offset; });
    out.columns.insert(out.columns.end(), graph.columns.begin(), graph.columns.end());
  }
  return out;
}

}  // namespace kpage
