#include "report.h"

#include <initializer_list>
#include <ostream>
#include <utility>
#include <vector>

#include "failure.h"
#include "html.h"
#include "pictures.h"
#include "svg.h"

namespace kpage::cli {
namespace {

std::string row(std::initializer_list<std::string> cells, const char* tag = "td") {
  std::string text = "<tr>";
  bool first = true;
  for (const std::string& cell : cells) {
    text += "<" + std::string(tag) + (first ? ">" : " class=\"n\">") + cell + "</" + tag + ">";
    first = false;
  }
  return text + "</tr>";
}

std::string rate(double flop, double ms) { return ms > 0 ? fixed(flop / ms / 1e9, 3) : "-"; }

std::string time_table(const ReportInput& input) {
  const RunFigures& run = input.run;
  std::string text =
      "<table>" + row({"step", "time", "useful TFLOP/s"}, "th") +
      row({"picking blocks", duration(run.select_ms), ""}) +
      row({"plan", duration(run.plan_ms), ""}) +
      row({"forward", duration(run.forward_ms), rate(run.forward_flop, run.forward_ms)});
  if (run.backward_ms > 0) {
    text +=
        row({"backward", duration(run.backward_ms), rate(2.5 * run.forward_flop, run.backward_ms)});
  }
  return text + "</table>";
}

std::string error_table(const CheckResult& checked) {
  if (checked.errors.empty()) {
    return "";
  }
  std::string text = "<table>" + row({"result", "error", "limit", "cosine", ""}, "th");
  for (const CheckedError& error : checked.errors) {
    const bool is_lse = error.name == "lse";
    text += row({escaped(error.name) + (is_lse ? ", absolute" : ", relative l2"),
                 scientific(error.error), scientific(error.limit),
                 is_lse ? "-" : fixed(error.cosine, 7),
                 error.passed ? "within" : "<span class=\"bad\">exceeded</span>"});
  }
  return text + "</table>";
}

std::string pair_table(const PlanStats& stats) {
  std::string text =
      "<table>" + row({"execution", "query-key pairs", "useful", "of whole blocks"}, "th");
  const auto add = [&](const char* name, std::int64_t pairs) {
    const auto share = [&](std::int64_t part, std::int64_t whole) {
      return whole == 0 ? std::string("-")
                        : percent(static_cast<double>(part) / static_cast<double>(whole));
    };
    text += row({name, grouped(pairs), share(stats.useful_pairs, pairs),
                 share(pairs, stats.whole_block_pairs)});
  };
  add("whole blocks of 128 x 128", stats.whole_block_pairs);
  add("pages packed, M128", stats.paged_pairs);
  add("packed and routed", stats.routed_pairs);
  add("packed and routed, with tails of walks", stats.routed_tail_pairs);
  if (stats.backward_pairs > 0) {
    add("backward, packed by owners", stats.backward_pairs);
    add("backward, with tails of walks", stats.backward_tail_pairs);
  }
  add("useful", stats.useful_pairs);
  return text + "</table>";
}

}  // namespace

void write_report(std::ostream& file, const ReportInput& input) {
  const PlanStats stats = input.plan.stats();
  const RunFigures& run = input.run;
  // A query block in the middle of the video is a typical one.
  const std::int32_t block = input.layout.q_blocks / 2;
  Html html(input.title);
  html.text(input.figures["capture"].get<std::string>() + ": " +
            grouped(input.figures["tokens"].get<std::int64_t>()) + " tokens, " +
            std::to_string(input.figures["heads"].get<std::int64_t>()) + " heads of " +
            std::to_string(input.figures["head_dim"].get<std::int64_t>()) + ", " +
            input.figures["dtype"].get<std::string>() + ". " + grouped(input.layout.q_blocks) +
            " blocks a head, " + percent(input.figures["padding"].get<double>()) +
            " padding in blocks of 128, " + percent(input.figures["partial"].get<double>()) +
            " of them partial.");
  const auto without_keys = input.figures["q_blocks_without_keys"].get<std::int64_t>();
  if (without_keys > 0) {
    html.text(grouped(without_keys) +
              " query blocks with rows have no keys on their lists: their output is 0.");
  }
  std::vector<std::pair<std::string, std::string>> tiles = {
      {percent(run.density), "of all pairs selected"},
      {percent(stats.efficiency()), "of executed pairs useful"},
      {duration(run.forward_ms + run.backward_ms),
       run.backward_ms > 0 ? "forward + backward" : "forward"},
      {rate(run.forward_flop * (run.backward_ms > 0 ? 3.5 : 1), run.forward_ms + run.backward_ms),
       "useful TFLOP/s"}};
  if (!input.checked.errors.empty()) {
    tiles.emplace_back(scientific(input.checked.errors.front().error),
                       "relative error of the output");
  }
  html.tiles(tiles);
  html.section(
      "Where the work goes",
      "Query-key pairs from blocks of 128 x 128 to what is executed. Packing fills tiles "
      "with the valid pages of several blocks; routing halves tiles of short query blocks.",
      draw_waterfall(stats) +
          key({{"useful", "useful pairs"}, {"waste", "padding"}, {"saved", "saved"}}) +
          pair_table(stats));
  html.section("One walk, before and after packing",
               "A block's 8 pages of 16 rows from top to bottom, filled as far as rows are valid; "
               "neighbours in the list differ in colour, dummies and padding are grey.",
               draw_packing(input.plan, block));
  html.section("How full the blocks are", "Blocks of one head by their valid rows.",
               draw_histogram(value_of(q_occupancy(input.layout))) +
                   key({{"useful", "full blocks of 128"}, {"partial", "partial blocks"}}));
  html.section("How full the cubes of the grid are", "Darker is fuller; the darkest are full.",
               draw_occupancy_map(input.tiling));
  html.section(
      "What one query cube attends to",
      "Head 0, a query cube (framed) in the middle of the video and the cubes on its list.",
      draw_neighbourhood(input.tiling, input.layout));
  html.section("Selection map",
               "Query blocks from top to bottom, key blocks from left to right; darker where more "
               "of them are selected.",
               draw_selection(input.layout));
  html.section("Time",
               "Useful TFLOP/s count valid pairs only: 4 D forward, 10 D backward for each.",
               time_table(input));
  const bool backward = input.checked.key_rows > 0;
  html.section(
      "Error against the fp64 oracle",
      grouped(input.checked.query_rows) + " query rows" +
          (backward ? " and " + grouped(input.checked.key_rows) + " key rows" : "") +
          " drawn at random; the oracle sees the layout, never the plan." +
          (backward ? " Gradients are compared with those that follow from the run's o and lse."
                    : ""),
      error_table(input.checked));
  file << html.str();
}

}  // namespace kpage::cli
