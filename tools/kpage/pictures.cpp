#include "pictures.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/hd.h"
#include "failure.h"
#include "layout_lists.h"
#include "page.h"
#include "svg.h"

namespace kpage::cli {
namespace {

constexpr double kWidth = 880;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr const char* kNothing = "s0";

// Nothing, and five classes up to full: "s0" .. "s5".
std::string shade(double fraction) {
  if (fraction <= 0) {
    return kNothing;
  }
  return "s" + std::to_string(std::clamp(1 + static_cast<int>(fraction * 5), 1, 5));
}

// Tiles over 128 rows are several blocks that follow each other.
std::vector<std::int32_t> tiles_of_blocks(const Tiling& tiling) {
  std::vector<std::int32_t> tiles;
  for (std::int32_t tile = 0; tile < tiling.count(); ++tile) {
    const std::int32_t blocks = ceil_div(tiling.tiles.sizes[at(tile)], kBlockRows);
    tiles.insert(tiles.end(), at(blocks), tile);
  }
  return tiles;
}

// Panels side by side, line after line, each with a line of text above it.
struct Panels {
  std::int32_t count;
  std::int32_t across;
  double width;
  double height;  // of the panel alone

  static constexpr double kGap = 16;
  static constexpr double kText = 20;
  static constexpr double kLine = 34;  // from the end of a panel to the next line's begin

  [[nodiscard]] double x(std::int32_t i) const { return i % across * (width + kGap); }
  [[nodiscard]] double y(std::int32_t i) const {
    const std::int32_t line = i / across;
    return line * (height + kLine);
  }
  [[nodiscard]] double all() const {
    const std::int32_t lines = ceil_div(count, across);
    return lines * (height + kLine);
  }
  [[nodiscard]] static double widest(std::int32_t across) {
    return (kWidth - kGap * (across - 1)) / across;
  }
};

// There is a grid of cubes, and not too many of them for a picture.
bool has_grid(const Tiling& tiling) {
  constexpr std::int64_t kMostCubes = 20000;
  const Dims& cubes = tiling.cubes;
  return cubes.volume() > 0 && cubes.volume() <= kMostCubes && cubes.h * cubes.t > 1;
}

// The cubes of the grid, a panel for each layer of time; `style` of each tile, and one in a frame.
template <class Style>
std::string draw_layers(const Tiling& tiling, const std::string& description, const Style& style,
                        std::int32_t framed) {
  const Dims& cubes = tiling.cubes;
  const std::int32_t across = std::min(cubes.t, cubes.w > 40 ? 2 : 3);
  const double width = Panels::widest(across);
  const double cell = std::min(width / cubes.w, 27.0);
  const Panels panels{cubes.t, across, width, cell * cubes.h};
  Svg svg(kWidth, panels.all(), description);
  std::int32_t tile = tiling.prefix_tiles;
  for (std::int32_t t = 0; t < cubes.t; ++t) {
    const double top = panels.y(t) + Panels::kText;
    svg.text(panels.x(t), panels.y(t) + 12, "layer " + std::to_string(t) + " of time", "label");
    for (std::int32_t h = 0; h < cubes.h; ++h) {
      for (std::int32_t w = 0; w < cubes.w; ++w, ++tile) {
        const double x = panels.x(t) + w * cell;
        const double y = top + h * cell;
        svg.cell(x, y, cell - 1, cell - 1, style(tile));
        if (tile == framed) {
          svg.rect(x - 0.5, y - 0.5, cell, cell, "here", "the query cube");
        }
      }
    }
  }
  return svg.str();
}

}  // namespace

std::string draw_histogram(const Occupancy& side) {
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
  if (!has_grid(tiling)) {
    return "";
  }
  const auto volume = static_cast<double>(tiling.tile.volume());
  constexpr std::int32_t kNone = -1;
  return draw_layers(
      tiling, "How full the cubes of the grid are",
      [&](std::int32_t tile) {
        const double share = tiling.tiles.sizes[at(tile)] / volume;
        return share >= 1 ? std::string("s5") : shade(share * 0.8);  // the darkest are full ones
      },
      kNone);
}

std::string draw_densities(const std::vector<double>& densities) {
  if (densities.empty()) {
    return "";
  }
  constexpr double kLeft = 56;
  constexpr double kTop = 18;
  constexpr double kHeight = 130;
  constexpr double kWidest = 48;
  constexpr std::size_t kMostValues = 16;  // of which each bar has its own
  const double most = *std::max_element(densities.begin(), densities.end());
  const double scale = most > 0 ? kHeight / most : 0;
  const double step =
      std::min(kWidest, (kWidth - kLeft - 24) / static_cast<double>(densities.size()));
  Svg svg(kWidth, kTop + kHeight + 40, "Density of each head");
  svg.line(kLeft, kTop, kWidth - 24, kTop, "grid");
  svg.line(kLeft, kTop + kHeight / 2, kWidth - 24, kTop + kHeight / 2, "grid");
  svg.text(kLeft - 8, kTop + 4, percent(most), "tick", "end");
  svg.text(kLeft - 8, kTop + kHeight + 4, "0", "tick", "end");
  const std::size_t labelled = (densities.size() + kMostValues - 1) / kMostValues;
  for (std::size_t i = 0; i < densities.size(); ++i) {
    const double x = kLeft + static_cast<double>(i) * step;
    const double height = densities[i] * scale;
    svg.rect(x + 0.1 * step, kTop + kHeight - height, 0.8 * step, height, "useful",
             "head " + std::to_string(i) + ": " + percent(densities[i]), step > 8 ? 2 : 0);
    if (labelled == 1) {
      svg.text(x + step / 2, kTop + kHeight - height - 4, percent(densities[i]), "tick", "middle");
    }
    if (i % labelled == 0) {
      svg.text(x + step / 2, kTop + kHeight + 16, std::to_string(i), "tick", "middle");
    }
  }
  svg.line(kLeft, kTop + kHeight, kWidth - 24, kTop + kHeight, "axis");
  svg.text(kLeft, kTop + kHeight + 34, "head", "label");
  return svg.str();
}

std::string draw_selection(const Layout& layout) {
  constexpr std::int32_t kMostHeads = 12;
  constexpr std::int32_t kMostCells = 72;
  if (layout.q_blocks == 0 || layout.kv_blocks == 0) {
    return "";
  }
  const std::int32_t heads = std::min(layout.heads, kMostHeads);
  const std::int32_t across = std::min(heads, 4);
  const double panel = std::min(Panels::widest(across), 420.0);
  const Panels panels{heads, across, panel, panel};
  Svg svg(kWidth, panels.all(), "Which key blocks each query block attends to, by head");
  for (std::int32_t head = 0; head < heads; ++head) {
    const SelectionMap map = selection_map(layout, head, kMostCells, kMostCells);
    const double x = panels.x(head);
    const double y = panels.y(head) + Panels::kText;
    svg.text(x, panels.y(head) + 12, "head " + std::to_string(head), "label");
    svg.cell(x, y, panel, panel, kNothing);
    const double width = panel / map.columns;
    const double height = panel / map.rows;
    for (std::int32_t row = 0; row < map.rows; ++row) {
      // Neighbours of one shade are one cell.
      for (std::int32_t column = 0, end = 0; column < map.columns; column = end) {
        const std::string style = shade(map.at(row, column));
        end = column + 1;
        while (end < map.columns && shade(map.at(row, end)) == style) {
          ++end;
        }
        if (style != kNothing) {
          svg.cell(x + column * width, y + row * height, (end - column) * width, height, style);
        }
      }
    }
  }
  return svg.str();
}

std::string draw_neighbourhood(const Tiling& tiling, const Layout& layout) {
  const Dims& cubes = tiling.cubes;
  const std::vector<std::int32_t> tile_of_block = tiles_of_blocks(tiling);
  if (std::cmp_not_equal(tile_of_block.size(), layout.q_blocks) || !has_grid(tiling)) {
    return "";
  }
  const std::int32_t middle =
      tiling.prefix_tiles + (cubes.t / 2 * cubes.h + cubes.h / 2) * cubes.w + cubes.w / 2;
  const auto first = std::find(tile_of_block.begin(), tile_of_block.end(), middle);
  const std::int64_t block = first - tile_of_block.begin();
  std::vector<bool> chosen(at(tiling.count()));
  for (std::int32_t i = 0; i < layout.q2k_block_nums[at(block)]; ++i) {
    const std::int32_t id = layout.q2k_block_index[at(block * layout.max_list + i)];
    chosen[at(tile_of_block[at(id)])] = true;
  }
  return draw_layers(
      tiling, "Cubes that one query cube attends to",
      [&](std::int32_t tile) { return chosen[at(tile)] ? "s4" : kNothing; }, middle);
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
