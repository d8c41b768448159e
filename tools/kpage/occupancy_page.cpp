#include "occupancy_page.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "failure.h"
#include "layout_flags.h"
#include "plan/format.h"

namespace kpage::cli {
namespace {

// The fullest sizes first; beyond a dozen different ones, sizes are shown in classes of 16.
void add_histogram(Page& page, const Occupancy& side) {
  constexpr std::ptrdiff_t kMostRows = 12;
  const bool classes = std::count_if(side.histogram.begin(), side.histogram.end(),
                                     [](std::int64_t n) { return n > 0; }) > kMostRows;
  std::map<std::int32_t, std::int64_t, std::greater<>> bins;  // by the least size in them
  for (std::int32_t rows = 0; rows <= kBlockRows; ++rows) {
    const std::int64_t count = side.histogram[static_cast<std::size_t>(rows)];
    const bool alone = !classes || rows == 0 || rows == kBlockRows;
    if (count > 0) {
      bins[alone ? rows : std::max(1, rows / plan::kPageRows * plan::kPageRows)] += count;
    }
  }
  std::int64_t most = 1;
  for (const auto& [rows, count] : bins) {
    most = std::max(most, count);
  }
  for (const auto& [rows, count] : bins) {
    const bool is_class = classes && rows != 0 && rows != kBlockRows;
    const std::int32_t last = rows / plan::kPageRows * plan::kPageRows + plan::kPageRows - 1;
    page.row(std::to_string(rows) + (is_class ? " to " + std::to_string(last) : "") + " rows",
             grouped(count), bar(static_cast<double>(count) / static_cast<double>(most), 40));
  }
}

// Blocks by valid rows, those that there are: {"64": 1100, "16": 340}.
Json histogram_json(const Occupancy& side) {
  Json counts = Json::object();
  for (std::int32_t rows = kBlockRows; rows >= 0; --rows) {
    if (const std::int64_t count = side.histogram[static_cast<std::size_t>(rows)]; count > 0) {
      counts[std::to_string(rows)] = count;
    }
  }
  return counts;
}

void add(Page& page, const Occupancy& q, const Occupancy* kv) {
  page.json["blocks"] = q.blocks;
  page.json["padding"] = q.padding();
  page.json["partial"] = q.partial_fraction();
  page.json["histogram"] = histogram_json(q);
  const auto section = [&page](const char* title, const Occupancy& side) {
    page.section(title);
    page.row("blocks", grouped(side.blocks),
             side.empty > 0 ? grouped(side.empty) + " of them without rows" : "");
    page.row("valid rows", grouped(side.rows));
    page.row("padding", percent(side.padding()), "of blocks of 128 that are not empty");
    page.row("partial", percent(side.partial_fraction()), "of the blocks that are not empty");
    add_histogram(page, side);
  };
  section(kv == nullptr ? "Blocks" : "Query blocks", q);
  if (kv != nullptr) {
    page.json["kv_block_count"] = kv->blocks;
    page.json["kv_padding"] = kv->padding();
    page.json["kv_partial"] = kv->partial_fraction();
    page.json["kv_histogram"] = histogram_json(*kv);
    section("Key/value blocks", *kv);
  }
}

}  // namespace

void add_occupancy(Page& page, const Layout& layout) {
  const Occupancy q = value_of(q_occupancy(layout));
  if (layout.shared_partition) {
    add(page, q, nullptr);
  } else {
    const Occupancy kv = value_of(kv_occupancy(layout));
    add(page, q, &kv);
  }
}

void add_occupancy(Page& page, const Plan& plan) {
  const PlanShape& shape = plan.shape();
  const auto view = plan::ForwardView::at(shape, plan.forward().data());
  const auto side = [&](const plan::Extent* extents, PartitionScope scope, std::int32_t blocks) {
    const std::int64_t count = plan::scopes(scope, shape) * blocks;
    std::vector<std::int32_t> sizes;
    sizes.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      sizes.push_back(extents[i].rows);
    }
    return value_of(occupancy(sizes));
  };
  const Occupancy q = side(view.q_extents, shape.q_scope, shape.q_blocks);
  const Occupancy kv = side(view.kv_extents, shape.kv_scope, shape.kv_blocks);
  add(page, q, q.histogram == kv.histogram ? nullptr : &kv);
}

void add_occupancy_map(Page& page, const Tiling& tiling) {
  const Dims cubes = tiling.cubes;
  constexpr std::int32_t kMostColumns = 120;
  constexpr std::int64_t kMostCubes = 100000;
  const bool is_chunked = cubes.t * cubes.h <= 1;  // a sequence in a row: no grid to look at
  if (cubes.volume() == 0 || is_chunked || cubes.volume() > kMostCubes) {
    return;
  }
  const auto first_cube = tiling.tiles.sizes.begin() + tiling.prefix_tiles;
  page.json["cubes"] = {cubes.t, cubes.h, cubes.w};
  page.json["cube_rows"] = std::vector<std::int32_t>(first_cube, first_cube + cubes.volume());
  if (cubes.w > kMostColumns) {
    return;
  }
  const auto volume = static_cast<double>(tiling.tile.volume());
  page.section("Cubes of the grid: " + dims_text(cubes) +
               ", █ full, ▓ ▒ ░ three, two, one quarter or less");
  auto tile = static_cast<std::size_t>(tiling.prefix_tiles);
  std::vector<std::string> before;
  std::int32_t first_like = 0;
  const auto flush = [&](std::int32_t end) {
    if (before.empty()) {
      return;
    }
    const std::string last = end - first_like > 1 ? " to " + std::to_string(end - 1) : "";
    page.line("layer " + std::to_string(first_like) + last);
    for (const std::string& row : before) {
      page.line("  " + row);
    }
  };
  for (std::int32_t t = 0; t < cubes.t; ++t) {
    std::vector<std::string> layer;
    for (std::int32_t h = 0; h < cubes.h; ++h) {
      std::string row;
      for (std::int32_t w = 0; w < cubes.w; ++w) {
        row += shade_text(tiling.tiles.sizes[tile++] / volume);
      }
      layer.push_back(row);
    }
    if (layer != before) {
      flush(t);
      before = std::move(layer);
      first_like = t;
    }
  }
  flush(cubes.t);
}

}  // namespace kpage::cli
