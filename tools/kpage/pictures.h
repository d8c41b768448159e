// The pictures of a report, each an inline SVG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kpage/geometry.h"
#include "kpage/layout.h"
#include "kpage/plan.h"

namespace kpage::cli {

// How many blocks have how many valid rows.
[[nodiscard]] std::string draw_histogram(const Occupancy& side);
// Densities of heads, [batch * heads], as bars.
[[nodiscard]] std::string draw_densities(const std::vector<double>& densities);
// Cubes of the grid, layer by layer, shaded by how full they are. Empty where they are too many.
[[nodiscard]] std::string draw_occupancy_map(const Tiling& tiling);
// Which key blocks each query block attends to: a square of NQ x NK for each of the first heads of
// batch element 0.
[[nodiscard]] std::string draw_selection(const Layout& layout);
// The cubes that the cube in the middle of the video attends to in head 0. Empty where the grid is
// not cut into cubes, or into too many.
[[nodiscard]] std::string draw_neighbourhood(const Tiling& tiling, const Layout& layout);
// The first blocks of a query block's list as they lie in blocks of 128 rows, and the tiles that
// its walk packs their pages into.
[[nodiscard]] std::string draw_packing(const Plan& plan, std::int32_t block);
// From the pairs of whole blocks to those executed and useful (paper, Figure 6).
[[nodiscard]] std::string draw_waterfall(const PlanStats& stats);

}  // namespace kpage::cli
