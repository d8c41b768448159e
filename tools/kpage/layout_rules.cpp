#include "layout_rules.h"

#include <algorithm>
#include <functional>

#include "kpage/geometry.h"

#include "failure.h"

namespace kpage::cli {
namespace {

const std::vector<Rule>& rules() {
  static const std::vector<Rule> kRules = {
      {"vsa",
       "4x4x4",
       true,
       true,
       "0.1",
       {"--cube", "--keep", "--top-k", "--text-before", "--text-after"}},
      {"padded",
       "2x8x8",
       true,
       true,
       "0.1",
       {"--cube", "--keep", "--top-k", "--text-before", "--text-after"}},
      {"full", nullptr, true, true, "0.1", {"--chunk", "--keep", "--top-k", "--text-after"}},
      {"sta",
       "6x8x8",
       false,
       true,
       nullptr,
       {"--cube", "--window", "--text-before", "--text-after"}},
      {"ssta",
       "6x8x8",
       true,
       false,
       "0.1",
       {"--cube", "--window", "--keep", "--top-k", "--text-before", "--text-after"}},
      {"svg1",
       nullptr,
       false,
       true,
       "0.3, or 0.25 of hunyuan",
       {"--chunk", "--model", "--keep", "--text-after"}},
      {"svg2", nullptr, true, false, "0.2", {"--clusters", "--keep"}},
      {"radial", nullptr, false, true, nullptr, {"--chunk", "--model", "--decay", "--text-after"}},
  };
  return kRules;
}

using Names = std::vector<std::string_view>;

// "a, b, c", or "a, b and c" where the last is joined by a word.
std::string joined(const Names& names, const std::string& last = ", ") {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? last : ", ") + std::string(names[i]);
  }
  return text;
}

Names names_of(RuleSet set, const std::function<bool(const Rule&)>& chosen) {
  Names names;
  for (const Rule& rule : rules()) {
    if ((set == RuleSet::kAll || rule.of_captures) && chosen(rule)) {
      names.push_back(rule.name);
    }
  }
  return names;
}

// "4x4x4 (vsa), 6x8x8 (sta, ssta)": what rules have by default.
std::string defaults(RuleSet set, const char* Rule::* value) {
  std::string text;
  Names told;
  for (const Rule& rule : rules()) {
    const char* const usual = rule.*value;
    if (usual == nullptr || std::find(told.begin(), told.end(), usual) != told.end()) {
      continue;
    }
    const Names names = names_of(set, [&](const Rule& other) {
      return other.*value != nullptr && std::string_view(other.*value) == usual;
    });
    if (!names.empty()) {
      told.emplace_back(usual);
      text += (text.empty() ? "" : ", ") + std::string(usual) + " (" + joined(names) + ")";
    }
  }
  return text;
}

}  // namespace

bool Rule::takes(std::string_view flag) const {
  return flag == "--grid" || std::find(flags.begin(), flags.end(), flag) != flags.end();
}

bool is_named_layout(const std::string& name) {
  const Names names = layout_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Rule& find_rule(const std::string& name, RuleSet set) {
  for (const Rule& rule : rules()) {
    if (rule.name == name && (set == RuleSet::kAll || rule.of_captures)) {
      return rule;
    }
  }
  Names names = names_of(set, [](const Rule&) { return true; });
  if (set == RuleSet::kAll) {
    const Names named = layout_names();
    names.insert(names.end(), named.begin(), named.end());
  }
  throw bad_input("--layout: expected one of " + joined(names) + ", got " + name);
}

std::string rule_flag_help(std::string_view flag, RuleSet set) {
  const Names takers =
      names_of(set, [&](const Rule& rule) { return flag == "--layout" || rule.takes(flag); });
  if (takers.empty()) {
    return "";
  }
  const std::string who = joined(takers, " and ");
  if (flag == "--layout") {
    return "Rule: " + joined(takers) +
           " (full: full blocks of --chunk tokens, of which a list keeps a share, not all)" +
           (set == RuleSet::kAll ? "; or a benchmark's name such as padded-5s" : "");
  }
  if (flag == "--cube") {
    return "Tokens of a tile: " + defaults(set, &Rule::cube);
  }
  if (flag == "--keep") {
    const bool clusters = std::find(takers.begin(), takers.end(), "svg2") != takers.end();
    return std::string("Share of the tiles") + (clusters ? ", or of svg2's key clusters," : "") +
           " that each list keeps, above 0 and up to 1: " + defaults(set, &Rule::keep);
  }
  if (flag == "--top-k") {
    return "Tiles that each list keeps, instead of --keep: of " + who;
  }
  if (flag == "--window") {
    return "Window of " + who + " in tiles: 3x3x3; several are dealt to the heads in turn";
  }
  if (flag == "--clusters") {
    return "Query and key clusters of " + who + ": 300x1000";
  }
  if (flag == "--chunk") {
    return "Tokens of a block of " + who + ": 128";
  }
  if (flag == "--model") {
    return "Whose constants " + who + " have as released: wan (the default) or hunyuan";
  }
  if (flag == "--decay") {
    return "Of the windows of " + who + ", instead of the model's: 0.2 (wan)";
  }
  return std::string("Text tokens ") + (flag == "--text-before" ? "before" : "after") +
         " the video's: of " + who;
}

}  // namespace kpage::cli
