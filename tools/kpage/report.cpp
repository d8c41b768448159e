#include "report.h"

#include <ostream>
#include <sstream>

#include "layout_flags.h"
#include "pictures.h"
#include "svg.h"

namespace kpage::cli {
namespace {

constexpr const char* kStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #15181d; --muted: #667080; --rule: #e3e6eb;
  --useful: #2367c9; --partial: #6fa3e8; --waste: #d3d8e0; --saved: #4caf7d; --bad: #c0392b;
  --s0: #eef1f5; --s1: #cfe0f7; --s2: #9fc2f0; --s3: #659ce3; --s4: #2f73cf; --s5: #17468f;
  --b0: #2367c9; --b1: #1a9a8a; --b2: #d98a1f; --hole: #e9ecf1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #101317; --card: #181c22; --ink: #e8ebf0; --muted: #97a1b0; --rule: #2a303a;
    --useful: #5b9bf0; --partial: #3a6fb8; --waste: #3a424e; --saved: #58b98a; --bad: #ef7565;
    --s0: #20262e; --s1: #1f3a5f; --s2: #265389; --s3: #3474bd; --s4: #5b9bf0; --s5: #a9ccfb;
    --b0: #5b9bf0; --b1: #38b6a5; --b2: #e5a448; --hole: #272d36;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; }
h2 { font-size: 17px; margin: 0 0 4px; }
p { margin: 0 0 14px; color: var(--muted); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 22px 0; }
.tile, section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.tile { padding: 14px 16px; }
.tile b { display: block; font-size: 23px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile span { color: var(--muted); font-size: 13px; }
section { padding: 20px 22px; margin: 0 0 16px; overflow-x: auto; }
svg { display: block; max-width: 100%; height: auto; margin: 6px 0 10px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 500; color: var(--muted); font-size: 13px; }
td.n { text-align: right; padding-right: 24px; } th.n { text-align: right; padding-right: 24px; }
.bad { color: var(--bad); font-weight: 600; }
.key { display: flex; flex-wrap: wrap; gap: 6px 18px; color: var(--muted); font-size: 13px; }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px; }
text { fill: var(--ink); font-size: 12px; }
text.tick { fill: var(--muted); font-size: 11px; } text.label { fill: var(--muted); }
text.value { font-size: 13px; font-weight: 600; }
.useful { fill: var(--useful); } .partial { fill: var(--partial); } .waste { fill: var(--waste); }
.saved { fill: var(--saved); } .hole { fill: var(--hole); }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); }
.s4 { fill: var(--s4); } .s5 { fill: var(--s5); }
.b0 { fill: var(--b0); } .b1 { fill: var(--b1); } .b2 { fill: var(--b2); }
.here { fill: none; stroke: var(--b2); stroke-width: 2.5; }
.axis { stroke: var(--muted); stroke-width: 1; } .grid { stroke: var(--rule); stroke-width: 1; }
.join { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 2 3; }
.ideal { stroke: var(--useful); stroke-width: 1; stroke-dasharray: 5 4; }
)css";

class Html {
 public:
  std::ostringstream out;

  void tile(const std::string& value, const std::string& label) {
    out << "<div class=\"tile\"><b>" << escaped(value) << "</b><span>" << escaped(label)
        << "</span></div>";
  }
  void section(const std::string& title, const std::string& text, const std::string& content) {
    if (!content.empty()) {
      out << "<section><h2>" << escaped(title) << "</h2><p>" << escaped(text) << "</p>" << content
          << "</section>\n";
    }
  }
};

std::string key(std::initializer_list<std::pair<const char*, const char*>> entries) {
  std::string text = "<div class=\"key\">";
  for (const auto& [color, label] : entries) {
    text += "<span><i style=\"background:var(--" + std::string(color) + ")\"></i>" +
            escaped(label) + "</span>";
  }
  return text + "</div>";
}

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
  Html html;
  html.out << "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
           << "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>"
           << escaped(input.title) << "</title><style>" << kStyle << "</style></head><body><main>\n"
           << "<h1>" << escaped(input.title) << "</h1><p>"
           << escaped(input.figures["capture"].get<std::string>()) << ": "
           << grouped(input.figures["tokens"].get<std::int64_t>()) << " tokens, "
           << input.figures["heads"].get<std::int64_t>() << " heads of "
           << input.figures["head_dim"].get<std::int64_t>() << ", "
           << input.figures["dtype"].get<std::string>() << ". " << grouped(input.layout.q_blocks)
           << " blocks a head, " << percent(input.figures["padding"].get<double>())
           << " padding in blocks of 128, " << percent(input.figures["partial"].get<double>())
           << " of them partial.</p>\n"
           << "<div class=\"tiles\">";
  html.tile(percent(run.density), "of all pairs selected");
  html.tile(percent(stats.efficiency()), "of executed pairs useful");
  html.tile(duration(run.forward_ms + run.backward_ms),
            run.backward_ms > 0 ? "forward + backward" : "forward");
  html.tile(
      rate(run.forward_flop * (run.backward_ms > 0 ? 3.5 : 1), run.forward_ms + run.backward_ms),
      "useful TFLOP/s");
  if (!input.checked.errors.empty()) {
    html.tile(scientific(input.checked.errors.front().error), "relative error of the output");
  }
  html.out << "</div>\n";
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
               draw_histogram(input.layout) +
                   key({{"useful", "full blocks of 128"}, {"partial", "partial blocks"}}));
  html.section("How full the cubes of the grid are", "Darker is fuller; the darkest are full.",
               draw_occupancy_map(input.tiling));
  html.section(
      "What one query cube attends to",
      "Head 0, a query cube (framed) in the middle of the video and the cubes on its list.",
      draw_neighbourhood(input.tiling, input.layout, block));
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
  html.out << "</main></body></html>\n";
  file << html.out.str();
}

}  // namespace kpage::cli
