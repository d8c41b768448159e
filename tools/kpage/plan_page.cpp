#include "plan_page.h"

#include "kpage/plan_figures.h"

namespace kpage::cli {
namespace {

double ratio(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 1.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

void add_plan_figures(Page& page, const PlanStats& stats) {
  for (const PlanFigure& figure : plan_figures(stats)) {
    page.json[figure.name] = figure.value;
  }
  page.json["efficiency"] = stats.efficiency();

  page.section("Query-key pairs, and what share of them is useful");
  const auto pairs = [&](const char* label, std::int64_t value) {
    const double share = ratio(stats.useful_pairs, value);
    page.row(label, scaled(static_cast<double>(value)), percent(share) + "  " + bar(share, 24));
  };
  pairs("useful", stats.useful_pairs);
  pairs("whole blocks of 128 x 128", stats.whole_block_pairs);
  pairs("pages packed, M128", stats.paged_pairs);
  pairs("packed and routed", stats.routed_pairs);
  pairs("with tails of walks", stats.routed_tail_pairs);
  if (stats.backward_pairs > 0) {
    pairs("backward, packed", stats.backward_pairs);
    pairs("backward, with tails", stats.backward_tail_pairs);
    page.row("of them masked by adjacency", scaled(static_cast<double>(stats.backward_union_pairs)),
             percent(ratio(stats.backward_union_pairs, stats.backward_pairs)));
  }

  page.section("Work");
  page.row("query blocks", grouped(stats.q_blocks),
           grouped(stats.q_blocks_empty) + " without rows, " +
               grouped(stats.q_blocks_without_keys) + " with rows but no keys" +
               (stats.q_blocks_without_keys > 0 ? " (output 0)" : "") + ", " +
               grouped(stats.q_rows) + " rows");
  page.row("key/value blocks", grouped(stats.kv_blocks),
           grouped(stats.kv_blocks_empty) + " without rows, " + grouped(stats.kv_rows) + " rows");
  page.row("selected pairs of blocks", grouped(stats.edges));
  page.row("Q128 route", grouped(stats.q128_blocks) + " blocks",
           grouped(stats.q128_tiles) + " tiles, longest walk " + grouped(stats.q128_longest_walk));
  page.row("Q64 route", grouped(stats.q64_blocks) + " blocks",
           grouped(stats.q64_tiles) + " tiles, longest walk " + grouped(stats.q64_longest_walk));
  if (stats.owners8 + stats.owners4 > 0) {
    page.row("owners of 8 and 4 pages", grouped(stats.owners8) + " + " + grouped(stats.owners4),
             grouped(stats.mixed_owners) + " of several blocks, " + grouped(stats.backward_items) +
                 " work items");
  }
}

}  // namespace kpage::cli
