// The rules that --layout names, the flags that each takes, and what help says of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kpage::cli {

// A rule, the cubes it cuts the grid into by default, and the flags it takes besides --grid.
struct Rule {
  std::string_view name;
  const char* cube;  // null: it does not cut the grid into cubes
  bool scores;       // picks blocks by scores of q and k
  bool of_captures;  // kpage run picks blocks of a capture by it
  const char* keep;  // what --keep is by default; null: it does not take it
  std::vector<std::string_view> flags;

  [[nodiscard]] bool takes(std::string_view flag) const;
};

// Which rules a command takes.
enum class RuleSet {
  kAll,         // and the names of benchmarks' layouts
  kOfCaptures,  // those that pick blocks of given tensors here
};

// An error where `name` is no rule of the set; `named` layouts are not rules.
[[nodiscard]] const Rule& find_rule(const std::string& name, RuleSet set);
// A benchmark's layout.
[[nodiscard]] bool is_named_layout(const std::string& name);
// The help of a flag, which names only rules of the set; empty where none of them takes it.
[[nodiscard]] std::string rule_flag_help(std::string_view flag, RuleSet set);

}  // namespace kpage::cli
