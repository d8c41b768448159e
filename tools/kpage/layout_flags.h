// The flags that say which layout a command works on: tensors in a file, or a system's rule on a
// grid.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "kpage/geometry.h"
#include "kpage/layout.h"

#include "console.h"
#include "layout_rules.h"

namespace kpage::cli {

struct LayoutCase {
  Layout layout;
  std::string name;              // for people
  std::string source;            // the file or flag that errors should name
  std::optional<Tiling> tiling;  // where the layout came from a grid of tiles
  bool random_lists = false;     // drawn where scores of a model's tensors would pick them
  std::uint64_t seed = 0;        // of random lists
};

// A system's rule and its parameters: flags --layout, --grid, --cube, ... A flag that the rule does
// not take is an error.
class SystemFlags {
 public:
  void declare(CLI::App& app, RuleSet rules);

  [[nodiscard]] bool given() const { return !system_.empty(); }
  [[nodiscard]] const std::string& system() const { return system_; }
  // Flags that are given, --layout aside.
  [[nodiscard]] std::vector<std::string> parameters() const;
  [[nodiscard]] bool has_text() const { return text_before() + text_after() > 0; }
  [[nodiscard]] std::int64_t tokens() const;  // of the grid and of text
  [[nodiscard]] std::string name() const;     // "vsa 4x4x4 on 21x45x80"

  // Fails where a flag is not the rule's, or not a number of its kind.
  void check_parameters() const;
  // Fails where the lists of `heads` (of all batch elements), and with `planned` a plan of them,
  // take more memory or steps than there are or than commands spend.
  void check_size(std::int64_t heads, bool planned) const;
  // The grid as tiles where they lie already if every tile is contiguous there, else end to end.
  [[nodiscard]] Tiling compact_tiling() const;
  // How many of `tiles` cubes a list keeps.
  [[nodiscard]] std::int32_t kept(std::int32_t tiles) const;
  // The rule picks blocks by scores of q and k; synthetic() draws its lists at random instead.
  [[nodiscard]] bool selects_by_scores() const;
  // synthetic() draws lists, of a rule or a benchmark's layout.
  [[nodiscard]] bool draws_lists() const;
  // The graph of a rule that looks at the geometry alone.
  [[nodiscard]] ClusterGraph static_graph(const Tiling& tiling, std::int32_t batch,
                                          std::int32_t heads) const;
  // A whole layout of the rule, without tensors. Heads where the rule leaves them open: as many as
  // windows, or one. Placement: at multiples of 128 rows. Seed: of the lists that are drawn.
  [[nodiscard]] LayoutCase synthetic(std::optional<std::int32_t> heads,
                                     std::optional<Placement> placement, std::uint64_t seed,
                                     bool planned) const;

 private:
  [[nodiscard]] Dims cube() const;
  [[nodiscard]] Dims grid() const;
  [[nodiscard]] std::int32_t chunk() const;
  // An error where tiles cannot lie there; other wrong flags are Failures.
  [[nodiscard]] Result<Tiling> tiling(Placement placement) const;
  [[nodiscard]] std::string tiling_flags() const;
  [[nodiscard]] Layout svg2(std::int32_t heads, std::uint64_t seed) const;
  [[nodiscard]] std::pair<std::int32_t, std::int32_t> clusters() const;  // of queries, of keys
  [[nodiscard]] std::vector<Dims> windows() const;
  [[nodiscard]] std::optional<double> keep() const;
  [[nodiscard]] std::int64_t text_before() const { return text_before_.value_or(0); }
  [[nodiscard]] std::int64_t text_after() const { return text_after_.value_or(0); }

  RuleSet rules_ = RuleSet::kAll;
  std::string system_;
  std::string grid_;
  std::string cube_;
  std::vector<std::string> windows_;
  std::string clusters_;
  std::string model_;
  std::optional<double> keep_;
  std::optional<double> decay_;
  std::optional<std::int32_t> top_k_;
  std::optional<std::int32_t> chunk_;
  std::optional<std::int32_t> text_before_;
  std::optional<std::int32_t> text_after_;
};

// What --seed moves.
enum class SeedOf {
  kLists,    // an error where a layout has no random ones
  kTensors,  // and lists
};

class LayoutFlags {
 public:
  void declare(CLI::App& app, SeedOf seed);
  [[nodiscard]] bool given() const { return !tensors_.empty() || system_.given(); }
  // The file that the layout is read from; empty where a rule makes it.
  [[nodiscard]] const std::string& file() const { return tensors_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_.value_or(0); }
  // Builds or reads the layout; exactly one of the two sources has to be given. `planned`: a plan
  // is made of it, which takes memory too.
  [[nodiscard]] LayoutCase make(const Console& console, bool planned) const;
  // Fails where any of these flags is given beside `source`, which does without them.
  void expect_none(const std::string& source) const;

 private:
  // Flags that say how to make a layout by --layout.
  [[nodiscard]] std::vector<std::string> parameters(bool with_seed) const;
  static void check_none(const std::string& source, const std::vector<std::string>& flags);

  std::string tensors_;
  SystemFlags system_;
  std::optional<std::int32_t> heads_;
  std::string placement_;
  std::optional<std::uint64_t> seed_;
  SeedOf seed_of_ = SeedOf::kLists;
};

// "21x45x80" as three whole numbers from 1; anything else is an error that names the flag.
[[nodiscard]] Dims parse_dims(const std::string& flag, const std::string& text);
[[nodiscard]] std::string dims_text(const Dims& dims);

}  // namespace kpage::cli
