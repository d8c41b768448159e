// The flags that say which layout a command works on: tensors in a file, or a system's rule on a
// grid.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "kpage/geometry.h"
#include "kpage/layout.h"

#include "console.h"

namespace kpage::cli {

struct LayoutCase {
  Layout layout;
  std::string name;              // for people
  std::string source;            // the file or flag that errors should name
  std::optional<Tiling> tiling;  // where the layout came from a grid of tiles
};

// A system's rule and its parameters: flags --layout, --grid, --cube, ...
class SystemFlags {
 public:
  void declare(CLI::App& app);

  [[nodiscard]] bool given() const { return !system_.empty(); }
  [[nodiscard]] const std::string& system() const { return system_; }
  [[nodiscard]] std::int32_t text_before() const { return text_before_; }
  [[nodiscard]] std::int32_t text_after() const { return text_after_; }
  [[nodiscard]] std::string name() const;  // "vsa 4x4x4 on 21x45x80"

  // The grid as tiles. `dense`: rows end to end, or where they are if every block is contiguous
  // there; else blocks at multiples of 128 rows.
  [[nodiscard]] Tiling tiling(bool dense) const;
  // How many of `tiles` cubes a list keeps.
  [[nodiscard]] std::int32_t kept(std::int32_t tiles) const;
  // The rule picks blocks by scores of q and k; synthetic() draws its lists at random instead.
  [[nodiscard]] bool selects_by_scores() const;
  // The graph of a rule that looks at the geometry alone.
  [[nodiscard]] ClusterGraph static_graph(const Tiling& tiling, std::int32_t heads) const;
  // A whole layout of the rule, without tensors; one head where the rule leaves it open.
  [[nodiscard]] LayoutCase synthetic(std::optional<std::int32_t> heads, std::uint64_t seed) const;

 private:
  [[nodiscard]] Dims cube() const;
  [[nodiscard]] Dims grid() const;

  std::string system_;
  std::string grid_;
  std::string cube_;
  std::vector<std::string> windows_;
  std::string clusters_;
  std::optional<double> keep_;
  std::optional<std::int32_t> top_k_;
  std::int32_t text_before_ = 0;
  std::int32_t text_after_ = 0;
};

class LayoutFlags {
 public:
  void declare(CLI::App& app);
  [[nodiscard]] bool given() const { return !tensors_.empty() || system_.given(); }
  // Builds or reads the layout; exactly one of the two sources has to be given.
  [[nodiscard]] LayoutCase make(const Console& console) const;

 private:
  std::string tensors_;
  SystemFlags system_;
  std::optional<std::int32_t> heads_;
  std::uint64_t seed_ = 0;
};

// "21x45x80" as three whole numbers from 1; anything else is an error that names the flag.
[[nodiscard]] Dims parse_dims(const std::string& flag, const std::string& text);
[[nodiscard]] std::string dims_text(const Dims& dims);

}  // namespace kpage::cli
