// How full the blocks of a layout or plan are, as rows and JSON.
#pragma once

#include "kpage/geometry.h"
#include "kpage/layout.h"
#include "kpage/plan.h"

#include "page.h"

namespace kpage::cli {

// Blocks, padding and partial blocks of both sides, with a histogram of valid rows.
void add_occupancy(Page& page, const Layout& layout);
void add_occupancy(Page& page, const Plan& plan);

// Cubes of the grid, a layer of time at a time, shaded by how full they are; in JSON their valid
// rows in raster order of cubes.
void add_occupancy_map(Page& page, const Tiling& tiling);

}  // namespace kpage::cli
