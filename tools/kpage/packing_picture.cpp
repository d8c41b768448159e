// The picture of one walk: blocks before, tiles after. Cut by the same traversal that runs it.
#include <algorithm>
#include <string>
#include <vector>

#include "pictures.h"
#include "plan/format.h"
#include "svg.h"

namespace kpage::cli {
namespace {

constexpr double kWidth = 880;
constexpr double kPage = 15;  // height of a page
constexpr double kGap = 3;
constexpr std::int32_t kMostBlocks = 40;

// Neighbouring blocks of the list differ in tone, so that one sees what lies beside what.
std::string tone(std::int32_t entry) { return "b" + std::to_string(entry % 3); }

// A page of `rows` valid rows: what is valid of it is filled.
void draw_page(Svg& svg, double x, double y, double width, std::int32_t rows,
               const std::string& style_class) {
  svg.rect(x, y, width, kPage - 1, "hole");
  if (rows > 0) {
    svg.rect(x, y, width * rows / plan::kPageRows, kPage - 1, style_class);
  }
}

}  // namespace

std::string draw_packing(const Plan& plan, std::int32_t block) {
  const plan::ForwardView view = plan::ForwardView::at(plan.shape(), plan.forward().data());
  const plan::Walk& walk = view.walks[block];
  const std::int32_t* entries = view.walk_entries(block);
  const plan::Extent* extents = view.kv_blocks(0);
  const std::int32_t shown = std::min(walk.entries, kMostBlocks);
  if (shown == 0) {
    return "";
  }
  // Blocks whose pages the picture follows through the walk; others are drawn in grey.
  const double column = std::min((kWidth - kGap * (shown - 1)) / shown, 40.0);
  constexpr double kTop = 22;
  const double before_height = plan::kBlockPages * kPage;

  std::vector<plan::TileSegments<plan::kTilePages>> tiles;
  tiles.reserve(static_cast<std::size_t>(plan::walk_tiles(walk)));
  plan::Cursor cursor;
  const std::int32_t runs = plan::walk_runs(walk);
  const auto run_at = [&](std::int32_t i) {
    return plan::run_of(walk, i, extents[entries[plan::entry_of_run(walk, i)]]);
  };
  for (std::int32_t tile = 0; tile < plan::walk_tiles(walk); ++tile) {
    tiles.push_back(plan::next_tile<plan::kTilePages>(cursor, runs, run_at));
  }
  const auto tiles_shown = static_cast<std::int32_t>(
      std::min<std::size_t>(tiles.size(), static_cast<std::size_t>(shown)));
  Svg svg(kWidth, 2 * (before_height + kTop) + 26, "A query block's list before and after packing");
  svg.text(0, 12,
           "before: " + std::to_string(shown) + " of " + std::to_string(walk.entries) +
               " blocks of the list, each a tile of 8 pages",
           "label");
  for (std::int32_t i = 0; i < shown; ++i) {
    for (std::int32_t page = 0; page < plan::kBlockPages; ++page) {
      const std::int32_t rows =
          std::clamp(extents[entries[i]].rows - page * plan::kPageRows, 0, plan::kPageRows);
      draw_page(svg, i * (column + kGap), kTop + page * kPage, column, rows, tone(i));
    }
  }
  const double top = before_height + kTop + 26;
  svg.text(0, top + 12,
           "after: the whole walk is " + std::to_string(tiles.size()) + " tiles" +
               (tiles_shown < static_cast<std::int32_t>(tiles.size())
                    ? ", of which the first " + std::to_string(tiles_shown)
                    : ""),
           "label");
  for (std::int32_t tile = 0; tile < tiles_shown; ++tile) {
    const auto& cut = tiles[static_cast<std::size_t>(tile)];
    const double x = tile * (column + kGap);
    for (std::int32_t page = 0; page < plan::kTilePages; ++page) {
      draw_page(svg, x, top + kTop + page * kPage, column, 0, "");
    }
    for (std::int32_t i = 0; i < cut.count; ++i) {
      const plan::Segment& segment = cut.segment[i];
      for (std::int32_t page = 0; page < segment.pages; ++page) {
        const std::int32_t rows =
            std::clamp(segment.rows - page * plan::kPageRows, 0, plan::kPageRows);
        draw_page(svg, x, top + kTop + (segment.slot + page) * kPage, column, rows,
                  tone(plan::entry_of_run(walk, cut.run[i])));
      }
    }
  }
  return svg.str();
}

}  // namespace kpage::cli
