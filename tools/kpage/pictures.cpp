#include "pictures.h"

#include <algorithm>
#include <array>
#include <vector>

#include "failure.h"
#include "layout_flags.h"
#include "page.h"
#include "svg.h"

namespace kpage::cli {
namespace {

constexpr double kWidth = 880;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Five classes from nothing to full: "s0" .. "s5".
std::string shade(double fraction) {
  if (fraction <= 0) {
    return "s0";
  }
  return "s" + std::to_string(std::clamp(1 + static_cast<int>(fraction * 5), 1, 5));
}

}  // namespace

std::string draw_histogram(const Layout& layout) {
  const Occupancy side = value_of(q_occupancy(layout));
  const std::int64_t most = std::max<std::int64_t>(
      1, *std::max_element(side.histogram.begin() + 1, side.histogram.end()));
  constexpr double kLeft = 56;
  constexpr double kTop = 18;
  constexpr double kHeight = 130;
  constexpr double kStep = (kWidth - kLeft - 24) / kBlockRows;
  Svg svg(kWidth, kTop + kHeight + 40, "Blocks by valid rows");
  svg.line(kLeft, kTop, kWidth - 24, kTop, "grid");
  svg.line(kLeft, kTop + kHeight / 2, kWidth - 24, kTop + kHeight / 2, "grid");
  svg.text(kLeft - 8, kTop + 4, grouped(most), "tick", "end");
  svg.text(kLeft - 8, kTop + kHeight + 4, "0", "tick", "end");
  for (std::int32_t rows = 1; rows <= kBlockRows; ++rows) {
    const std::int64_t count = side.histogram[at(rows)];
    if (count > 0) {
      const double height =
          std::max(2.0, kHeight * static_cast<double>(count) / static_cast<double>(most));
      svg.rect(kLeft + (rows - 1) * kStep + 0.5, kTop + kHeight - height, kStep - 1, height,
               rows == kBlockRows ? "useful" : "partial",
               grouped(count) + " blocks of " + std::to_string(rows) + " rows", 1);
    }
  }
  svg.line(kLeft, kTop + kHeight, kWidth - 24, kTop + kHeight, "axis");
  for (std::int32_t rows = 16; rows <= kBlockRows; rows += 16) {
    svg.text(kLeft + (rows - 0.5) * kStep, kTop + kHeight + 16, std::to_string(rows), "tick",
             "middle");
  }
  svg.text(kLeft + 64 * kStep, kTop + kHeight + 34, "valid rows of a block", "label", "middle");
  return svg.str();
}

std::string draw_occupancy_map(const Tiling& tiling) {
  const Dims cubes = tiling.cubes;
  constexpr std::int64_t kMostCubes = 20000;
  if (cubes.volume() == 0 || cubes.volume() > kMostCubes || cubes.h * cubes.t <= 1) {
    return "";
  }
  const std::int32_t across = std::min(cubes.t, cubes.w > 40 ? 2 : 3);
  const double panel = (kWidth - 16.0 * (across - 1)) / across;
  const double cell = std::min(panel / cubes.w, 27.0);
  const double panel_height = cell * cubes.h + 34;
  const std::int32_t down = (cubes.t + across - 1) / across;
  Svg svg(kWidth, panel_height * down, "How full the cubes of the grid are");
  const auto volume = static_cast<double>(tiling.tile.volume());
  auto tile = at(tiling.prefix_tiles);
  for (std::int32_t t = 0; t < cubes.t; ++t) {
    const double x = (t % across) * (panel + 16);
    const double y = (t / across) * panel_height;
    svg.text(x, y + 12, "layer " + std::to_string(t) + " of time", "label");
    for (std::int32_t h = 0; h < cubes.h; ++h) {
      for (std::int32_t w = 0; w < cubes.w; ++w) {
        const double share = static_cast<double>(tiling.tiles.sizes[tile++]) / volume;
        svg.cell(x + w * cell, y + 20 + h * cell, cell - 1, cell - 1,
                 share >= 1 ? "s5" : shade(share * 0.8));
      }
    }
  }
  return svg.str();
}

std::string draw_selection(const Layout& layout) {
  constexpr std::int32_t kMostHeads = 12;
  constexpr std::int32_t kMostCells = 72;
  const std::int32_t heads = std::min(layout.heads, kMostHeads);
  const std::int32_t across = std::min(heads, 4);
  const double panel = std::min((kWidth - 16.0 * (across - 1)) / across, 420.0);
  const std::int32_t down = (heads + across - 1) / across;
  Svg svg(kWidth, down * (panel + 30), "Which key blocks each query block attends to, by head");
  const std::int32_t rows = std::min(layout.q_blocks, kMostCells);
  const std::int32_t columns = std::min(layout.kv_blocks, kMostCells);
  for (std::int32_t head = 0; head < heads; ++head) {
    std::vector<double> hits(at(rows * columns));
    for (std::int32_t q = 0; q < layout.q_blocks; ++q) {
      const std::int64_t list = std::int64_t{head} * layout.q_blocks + q;
      for (std::int32_t i = 0; i < layout.q2k_block_nums[at(list)]; ++i) {
        const std::int32_t k = layout.q2k_block_index[at(list * layout.max_list + i)];
        const std::int64_t row = std::int64_t{q} * rows / layout.q_blocks;
        const std::int64_t column = std::int64_t{k} * columns / layout.kv_blocks;
        hits[at(row * columns + column)] += 1;
      }
    }
    const double per_cell = static_cast<double>(layout.q_blocks) / rows *
                            static_cast<double>(layout.kv_blocks) / columns;
    const double x = (head % across) * (panel + 16);
    const double y = (head / across) * (panel + 30);
    svg.text(x, y + 12, "head " + std::to_string(head), "label");
    svg.cell(x, y + 20, panel, panel, "s0");
    const double width = panel / columns;
    const double height = panel / rows;
    for (std::int32_t row = 0; row < rows; ++row) {
      for (std::int32_t column = 0; column < columns; ++column) {
        const double share = hits[at(row * columns + column)] / per_cell;
        if (share > 0) {
          svg.cell(x + column * width, y + 20 + row * height, width, height, shade(share));
        }
      }
    }
  }
  return svg.str();
}

std::string draw_neighbourhood(const Tiling& tiling, const Layout& layout, std::int32_t block) {
  const Dims cubes = tiling.cubes;
  const bool block_is_tile = layout.q_blocks == tiling.count();
  if (!block_is_tile || cubes.volume() > 20000 || cubes.h * cubes.t <= 1) {
    return "";
  }
  std::vector<bool> chosen(at(tiling.count()));
  for (std::int32_t i = 0; i < layout.q2k_block_nums[at(block)]; ++i) {
    chosen[at(layout.q2k_block_index[at(std::int64_t{block} * layout.max_list + i)])] = true;
  }
  const std::int32_t across = std::min(cubes.t, cubes.w > 40 ? 2 : 3);
  const double panel = (kWidth - 16.0 * (across - 1)) / across;
  const double cell = std::min(panel / cubes.w, 27.0);
  const double panel_height = cell * cubes.h + 34;
  Svg svg(kWidth, panel_height * ((cubes.t + across - 1) / across),
          "Cubes that one query cube attends to");
  std::int32_t tile = tiling.prefix_tiles;
  for (std::int32_t t = 0; t < cubes.t; ++t) {
    const double x = (t % across) * (panel + 16);
    const double y = (t / across) * panel_height;
    svg.text(x, y + 12, "layer " + std::to_string(t) + " of time", "label");
    for (std::int32_t h = 0; h < cubes.h; ++h) {
      for (std::int32_t w = 0; w < cubes.w; ++w, ++tile) {
        svg.cell(x + w * cell, y + 20 + h * cell, cell - 1, cell - 1,
                 chosen[at(tile)] ? "s4" : "s0");
        if (tile == block) {
          svg.rect(x + w * cell - 0.5, y + 19.5 + h * cell, cell, cell, "here", "the query cube");
        }
      }
    }
  }
  return svg.str();
}

std::string draw_waterfall(const PlanStats& stats) {
  struct Step {
    const char* name;
    std::int64_t from;
    std::int64_t to;  // equal to 0 for totals, which stand on the axis
    bool total;
  };
  const std::array steps = {
      Step{"whole blocks", stats.whole_block_pairs, 0, true},
      Step{"K/V pages packed", stats.whole_block_pairs, stats.paged_pairs, false},
      Step{"Q64 / Q128 routes", stats.paged_pairs, stats.routed_pairs, false},
      Step{"packed and routed", stats.routed_pairs, 0, true},
      Step{"tails of walks", stats.routed_pairs, stats.routed_tail_pairs, false},
      Step{"executed", stats.routed_tail_pairs, 0, true},
  };
  const auto most = static_cast<double>(
      std::max<std::int64_t>(1, std::max(stats.whole_block_pairs, stats.routed_tail_pairs)));
  constexpr double kTop = 40;
  constexpr double kHeight = 240;
  constexpr double kStep = kWidth / 6;
  constexpr double kBar = 92;
  Svg svg(kWidth, kTop + kHeight + 44, "From the pairs of whole blocks to those executed");
  const auto y_of = [&](std::int64_t pairs) {
    return kTop + kHeight * (1 - static_cast<double>(pairs) / most);
  };
  const double useful_y = y_of(stats.useful_pairs);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const double x = static_cast<double>(i) * kStep + (kStep - kBar) / 2;
    const double middle = x + kBar / 2;
    const double top = step.total ? y_of(step.from) : y_of(std::max(step.from, step.to));
    if (step.total) {
      svg.rect(x, top, kBar, std::max(0.0, useful_y - top), "waste",
               scaled(static_cast<double>(step.from - stats.useful_pairs)) + " pairs of padding",
               2);
      svg.rect(x, useful_y, kBar, kTop + kHeight - useful_y, "useful",
               scaled(static_cast<double>(stats.useful_pairs)) + " useful pairs");
      svg.text(middle, top - 20, scaled(static_cast<double>(step.from)), "value", "middle");
      const double share =
          step.from == 0 ? 1.0
                         : static_cast<double>(stats.useful_pairs) / static_cast<double>(step.from);
      svg.text(middle, top - 6, percent(share) + " useful", "tick", "middle");
    } else {
      const double bottom = y_of(std::min(step.from, step.to));
      const bool saved = step.to <= step.from;
      svg.rect(x, top, kBar, std::max(1.5, bottom - top), saved ? "saved" : "waste", "", 2);
      svg.text(middle, top - 6,
               (saved ? "\u2212" : "+") + scaled(static_cast<double>(std::max(step.from, step.to) -
                                                                     std::min(step.from, step.to))),
               "value", "middle");
    }
    if (i + 1 < steps.size()) {
      const double level = y_of(step.total ? step.from : step.to);
      svg.line(x + kBar, level, x + kStep, level, "join");
    }
    svg.text(middle, kTop + kHeight + 18, step.name, "label", "middle");
  }
  svg.line(0, kTop + kHeight, kWidth, kTop + kHeight, "axis");
  svg.line(0, useful_y, kWidth, useful_y, "ideal");
  svg.text(4, useful_y - 5, "useful", "tick");
  return svg.str();
}

}  // namespace kpage::cli
