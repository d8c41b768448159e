#include "html.h"

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

}  // namespace

Html::Html(const std::string& title) {
  out_ << "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
       << "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>"
       << escaped(title) << "</title><style>" << kStyle << "</style></head><body><main>\n<h1>"
       << escaped(title) << "</h1>";
}

void Html::text(const std::string& paragraph) { out_ << "<p>" << escaped(paragraph) << "</p>\n"; }

void Html::tiles(const std::vector<std::pair<std::string, std::string>>& figures) {
  out_ << "<div class=\"tiles\">";
  for (const auto& [value, label] : figures) {
    out_ << "<div class=\"tile\"><b>" << escaped(value) << "</b><span>" << escaped(label)
         << "</span></div>";
  }
  out_ << "</div>\n";
}

void Html::section(const std::string& title, const std::string& text, const std::string& content) {
  if (!content.empty()) {
    out_ << "<section><h2>" << escaped(title) << "</h2><p>" << escaped(text) << "</p>" << content
         << "</section>\n";
  }
}

std::string key(std::initializer_list<std::pair<const char*, const char*>> entries) {
  std::string text = "<div class=\"key\">";
  for (const auto& [color, label] : entries) {
    text += "<span><i style=\"background:var(--" + std::string(color) + ")\"></i>" +
            escaped(label) + "</span>";
  }
  return text + "</div>";
}

}  // namespace kpage::cli
