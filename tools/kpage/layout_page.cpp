#include "layout_page.h"

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "failure.h"
#include "html.h"
#include "layout_lists.h"
#include "pictures.h"

namespace kpage::cli {
namespace {

double share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

HeadLists total_of(const std::vector<HeadLists>& heads) {
  HeadLists total;
  for (const HeadLists& head : heads) {
    total.pairs += head.pairs;
    total.useful += head.useful;
    total.all += head.all;
    total.without_keys += head.without_keys;
    total.longest_list = std::max(total.longest_list, head.longest_list);
  }
  return total;
}

constexpr const char* kPickedByScores = "scores of a model's q and k would pick them";

std::int64_t all_block_pairs(const Layout& layout) {
  return std::int64_t{layout.batch} * layout.heads * layout.q_blocks * layout.kv_blocks;
}

std::vector<double> densities_of(const std::vector<HeadLists>& heads) {
  std::vector<double> densities;
  densities.reserve(heads.size());
  for (const HeadLists& head : heads) {
    densities.push_back(head.density());
  }
  return densities;
}

// One row where all heads are alike, two where they are many.
void add_densities(Page& page, const Layout& layout, const std::vector<HeadLists>& heads) {
  constexpr std::size_t kMostHeads = 64;
  const std::vector<double> densities = densities_of(heads);
  page.json["head_density"] = densities;
  if (heads.size() <= 1) {
    return;
  }
  const auto [least, most] = std::minmax_element(densities.begin(), densities.end());
  const auto row = [&page, top = *most](const std::string& label, double density) {
    page.row(label, percent(density), bar(top > 0 ? density / top : 0, 40));
  };
  page.section("Density by head");
  if (*least == *most) {
    page.row("every head", percent(*most));
  } else if (heads.size() > kMostHeads) {
    row("least", *least);
    row("most", *most);
  } else {
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const auto count = static_cast<std::size_t>(layout.heads);
      row((layout.batch > 1 ? "batch " + std::to_string(i / count) + " head " : "head ") +
              std::to_string(i % count),
          densities[i]);
    }
  }
}

}  // namespace

void add_lists(Page& page, const LayoutCase& made) {
  const Layout& layout = made.layout;
  const std::vector<HeadLists> heads = head_lists(layout);
  const HeadLists total = total_of(heads);
  const double of_blocks = share(total.pairs, all_block_pairs(layout));
  page.section("Lists");
  if (made.random_lists) {
    page.row("drawn at random", "seed " + std::to_string(made.seed), kPickedByScores);
  }
  page.row("batch x heads", std::to_string(layout.batch) + " x " + std::to_string(layout.heads));
  page.row("selected pairs of blocks", grouped(total.pairs), percent(of_blocks) + " of all");
  page.row("selected pairs of rows", scaled(static_cast<double>(total.useful)),
           percent(total.density()) + " of all");
  page.row("longest list", grouped(total.longest_list) + " blocks");
  page.row("query blocks without keys", grouped(total.without_keys),
           total.without_keys > 0 ? "they have rows, whose output is 0" : "");
  page.json["random_lists"] = made.random_lists;
  page.json["batch"] = layout.batch;
  page.json["heads"] = layout.heads;
  page.json["selected_block_pairs"] = total.pairs;
  page.json["block_density"] = of_blocks;
  page.json["useful_pairs"] = total.useful;
  page.json["density"] = total.density();
  page.json["longest_list"] = total.longest_list;
  page.json["q_blocks_without_keys"] = total.without_keys;
  add_densities(page, layout, heads);
}

void add_selection(Page& page, const Layout& layout, std::int32_t batch_head) {
  constexpr std::int32_t kRows = 24;
  constexpr std::int32_t kColumns = 48;  // a character is about half as wide as it is high
  if (layout.q_blocks == 0 || layout.kv_blocks == 0) {
    return;
  }
  const SelectionMap map = selection_map(layout, batch_head, kRows, kColumns);
  page.section("Selection of head " + std::to_string(batch_head) +
               ": key blocks (across) of query blocks (down), █ all of them, ▓ ▒ ░ three, two, "
               "one quarter or less");
  Json cells = Json::array();
  for (std::int32_t row = 0; row < map.rows; ++row) {
    std::string line = "  ";
    Json shares = Json::array();
    for (std::int32_t column = 0; column < map.columns; ++column) {
      const double selected = map.at(row, column);
      line += shade_text(selected);
      shares.push_back(selected);
    }
    page.line(line);
    cells.push_back(shares);
  }
  page.json["selection"] = {{"head", batch_head}, {"share", cells}};
}

void write_layout_report(std::ostream& file, const LayoutCase& made) {
  const Layout& layout = made.layout;
  const std::vector<HeadLists> heads = head_lists(layout);
  const HeadLists total = total_of(heads);
  const Occupancy q = value_of(q_occupancy(layout));
  Html html("Layout " + made.name);
  html.text(std::to_string(layout.batch) + " x " + std::to_string(layout.heads) + " heads, " +
            grouped(layout.q_blocks) + " query blocks and " + grouped(layout.kv_blocks) +
            " key/value blocks a head.");
  if (made.random_lists) {
    html.text("The lists of key blocks are drawn at random (seed " + std::to_string(made.seed) +
              "): " + kPickedByScores + ". How full blocks are does not depend on it.");
  }
  html.tiles({{percent(total.density()), "of all pairs of rows selected"},
              {percent(q.padding()), "padding in blocks of 128"},
              {percent(q.partial_fraction()), "of the blocks partial"},
              {grouped(total.longest_list), "blocks in the longest list"},
              {grouped(total.without_keys), "query blocks with rows and no key (output 0)"}});
  const std::string colours =
      key({{"useful", "full blocks of 128"}, {"partial", "partial blocks"}});
  html.section(
      layout.shared_partition ? "How full the blocks are" : "How full the query blocks are",
      "Blocks by their valid rows.", draw_histogram(q) + colours);
  if (!layout.shared_partition) {
    html.section("How full the key/value blocks are", "Blocks by their valid rows.",
                 draw_histogram(value_of(kv_occupancy(layout))) + colours);
  }
  if (made.tiling) {
    html.section("How full the cubes of the grid are", "Darker is fuller; the darkest are full.",
                 draw_occupancy_map(*made.tiling));
    html.section(
        "What one query cube attends to",
        std::string(
            "Head 0, a query cube (framed) in the middle of the video and the cubes on its ") +
            (made.random_lists ? "list, at random." : "list."),
        draw_neighbourhood(*made.tiling, layout));
  }
  html.section("Density by head", "Selected pairs of valid rows among all pairs.",
               draw_densities(densities_of(heads)));
  html.section("Selection map",
               std::string("Query blocks from top to bottom, key blocks from left to right; darker "
                           "where more of them are selected") +
                   (made.random_lists ? ", at random." : "."),
               draw_selection(layout));
  file << html.str();
}

}  // namespace kpage::cli
