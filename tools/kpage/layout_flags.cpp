#include "layout_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "failure.h"
#include "progress.h"
#include "safetensors.h"
#include "tensor_layout.h"

namespace kpage::cli {
namespace {

// `count` whole numbers from 1, joined by x.
std::vector<std::int32_t> parse_extents(const std::string& flag, const std::string& text,
                                        std::size_t count, const std::string& expected) {
  const auto fail = [&] {
    return bad_input(flag + ": expected " + expected + ", got " + (text.empty() ? "\"\"" : text));
  };
  std::vector<std::int32_t> extents;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    std::int32_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 1) {
      throw fail();
    }
    extents.push_back(value);
    if (next == end) {
      break;
    }
    if (*next != 'x') {
      throw fail();
    }
    at = next + 1;
  }
  if (extents.size() != count) {
    throw fail();
  }
  return extents;
}

// What a rule needs and takes by default.
struct System {
  const char* name;
  const char* cube;  // null: it does not cut the grid into cubes
  bool scores;       // picks blocks by scores of q and k
};
constexpr std::array kSystems = {
    System{"vsa", "4x4x4", true},  System{"padded", "2x8x8", true},  System{"full", nullptr, true},
    System{"sta", "6x8x8", false}, System{"ssta", "6x8x8", true},    System{"svg1", nullptr, false},
    System{"svg2", nullptr, true}, System{"radial", nullptr, false},
};

bool is_named(const std::string& name) {
  const std::vector<std::string_view> names = layout_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

const System& find_system(const std::string& name) {
  const auto* found = std::find_if(kSystems.begin(), kSystems.end(),
                                   [&](const System& system) { return name == system.name; });
  if (found == kSystems.end()) {
    std::string names;
    for (const System& system : kSystems) {
      names += (names.empty() ? "" : ", ") + std::string(system.name);
    }
    for (const std::string_view named : layout_names()) {
      names += ", " + std::string(named);
    }
    throw bad_input("--layout: expected one of " + names + ", got " + name);
  }
  return *found;
}

}  // namespace

Dims parse_dims(const std::string& flag, const std::string& text) {
  const auto extents =
      parse_extents(flag, text, 3, "time x height x width such as 21x45x80, whole numbers from 1");
  return {extents[0], extents[1], extents[2]};
}

std::string dims_text(const Dims& dims) {
  return std::to_string(dims.t) + "x" + std::to_string(dims.h) + "x" + std::to_string(dims.w);
}

void SystemFlags::declare(CLI::App& app) {
  app.add_option("--layout", system_,
                 "Rule: vsa, padded (cubes with pooled top-k), full (blocks of 128), sta, ssta, "
                 "svg1, svg2, radial; or a benchmark's name such as padded-5s");
  app.add_option("--grid", grid_, "Tokens of the video over time, height and width: 21x45x80");
  app.add_option("--cube", cube_,
                 "Tokens of a tile: 4x4x4 (vsa), 2x8x8 (padded), 6x8x8 (sta, ssta)");
  app.add_option("--keep", keep_, "Share of the tiles that each list keeps, above 0 and up to 1");
  app.add_option("--top-k", top_k_, "Tiles that each list keeps, instead of --keep");
  app.add_option("--window", windows_,
                 "Window of sta and ssta in tiles, 3x3x3; several are dealt to the heads in turn");
  app.add_option("--clusters", clusters_, "Query and key clusters of svg2: 300x1000");
  app.add_option("--text-before", text_before_, "Text tokens before the video's");
  app.add_option("--text-after", text_after_, "Text tokens after the video's");
}

Dims SystemFlags::grid() const {
  if (grid_.empty()) {
    throw bad_input("--grid: expected with --layout, such as --grid 21x45x80");
  }
  return parse_dims("--grid", grid_);
}

Dims SystemFlags::cube() const {
  const char* usual = find_system(system_).cube;
  if (usual == nullptr) {
    if (!cube_.empty()) {
      throw bad_input("--cube: " + system_ + " does not cut the grid into cubes");
    }
    return {0, 0, 0};
  }
  return parse_dims("--cube", cube_.empty() ? usual : cube_);
}

std::string SystemFlags::name() const {
  const Dims shape = cube();
  return system_ + (shape.t > 0 ? " " + dims_text(shape) : "") + " on " + dims_text(grid());
}

bool SystemFlags::selects_by_scores() const { return find_system(system_).scores; }

std::int32_t SystemFlags::kept(std::int32_t tiles) const {
  if (keep_ && top_k_) {
    throw bad_input("--top-k: expected --keep or --top-k, got both");
  }
  if (top_k_) {
    if (*top_k_ < 1 || *top_k_ > tiles) {
      throw bad_input("--top-k: expected 1 to " + std::to_string(tiles) + " tiles, got " +
                      std::to_string(*top_k_));
    }
    return *top_k_;
  }
  const double keep = keep_.value_or(0.1);
  if (!(keep > 0 && keep <= 1)) {
    throw bad_input("--keep: expected a share above 0 and up to 1, got " + std::to_string(keep));
  }
  return vsa_top_k(1 - keep, tiles);
}

Tiling SystemFlags::tiling(bool dense) const {
  for (const auto& [flag, tokens] :
       {std::pair("--text-before", text_before_), std::pair("--text-after", text_after_)}) {
    if (tokens < 0) {
      throw bad_input(std::string(flag) + ": expected a number from 0, got " +
                      std::to_string(tokens));
    }
  }
  const Dims video = grid();
  const Dims shape = cube();
  if (video.volume() > kMaxRows - std::int64_t{text_before_} - text_after_) {
    throw bad_input("--grid: expected at most " + std::to_string(kMaxRows) + " tokens, got " +
                    dims_text(video));
  }
  if (shape.t == 0) {
    if (text_before_ > 0) {
      throw bad_input("--text-before: " + system_ + " takes text after the video only");
    }
    return value_of(linear_tiling(static_cast<std::int32_t>(video.volume()), text_after_));
  }
  Sequence sequence;
  sequence.grid = video;
  if (text_before_ > 0) {
    sequence.prefix.push_back(text_before_);
  }
  if (text_after_ > 0) {
    sequence.suffix.push_back(text_after_);
  }
  if (dense) {
    Result<Tiling> in_place = make_tiling(sequence, shape, Placement::kRaster);
    if (in_place.ok()) {
      return std::move(in_place).value();
    }
  }
  return value_of(make_tiling(sequence, shape, dense ? Placement::kDense : Placement::kBlk128),
                  "--grid " + grid_ + " --cube " + dims_text(shape));
}

ClusterGraph SystemFlags::static_graph(const Tiling& tiling, std::int32_t heads) const {
  const Dims video = grid();
  if (system_ == "sta" || system_ == "ssta") {
    std::vector<Dims> windows;
    for (std::int32_t head = 0; head < heads; ++head) {
      const auto which = static_cast<std::size_t>(head);
      windows.push_back(
          parse_dims("--window", windows_.empty() ? "3x3x3" : windows_[which % windows_.size()]));
    }
    return value_of(sliding_windows(tiling, windows), "--window");
  }
  ClusterGraph one;
  if (system_ == "svg1") {
    Svg1Rule rule;
    rule.density = keep_.value_or(rule.density);
    one = value_of(svg1_graph(tiling, video.t, rule), "--layout svg1");
  } else {
    one = value_of(radial_graph(tiling, video.t, {}), "--layout radial");
  }
  return repeat(one, heads);
}

LayoutCase SystemFlags::synthetic(std::optional<std::int32_t> head_count,
                                  std::uint64_t seed) const {
  const std::string source = "--layout " + system_;
  if (is_named(system_)) {
    if (!grid_.empty() || !cube_.empty() || keep_ || top_k_ || head_count) {
      throw bad_input(source + ": has its own grid, cubes, lists and heads; expected it alone");
    }
    return {value_of(named_layout(system_, seed), source), system_, source, {}};
  }
  const std::int32_t heads = head_count.value_or(1);
  constexpr std::int32_t kMostHeads = 1024;  // far past any model, and of a layout that fits memory
  if (heads < 1 || heads > kMostHeads) {
    throw bad_input("--heads: expected a number from 1 to " + std::to_string(kMostHeads) +
                    ", got " + std::to_string(heads));
  }
  if (!find_system(system_).cube && !cube_.empty()) {
    throw bad_input("--cube: " + system_ + " does not cut the grid into cubes");
  }
  if (system_ == "svg2") {
    const auto clusters = parse_extents("--clusters", clusters_.empty() ? "300x1000" : clusters_, 2,
                                        "query x key clusters such as 300x1000");
    Svg2Shape shape;
    shape.heads = heads;
    shape.tokens = static_cast<std::int32_t>(std::min<std::int64_t>(grid().volume(), kMaxRows));
    shape.q_clusters = clusters[0];
    shape.kv_clusters = clusters[1];
    shape.keep = keep_.value_or(shape.keep);
    return {value_of(svg2_like_layout(shape, seed), source), name(), source, {}};
  }
  Tiling cut = tiling(false);
  ClusterGraph graph;
  if (selects_by_scores()) {
    const std::int32_t video_tiles = cut.count() - cut.prefix_tiles - cut.suffix_tiles;
    const ClusterGraph video = value_of(
        random_top_k(std::int64_t{heads} * video_tiles, video_tiles, kept(video_tiles), seed));
    graph = value_of(with_dense_segments(cut, heads, video), source);
    if (system_ == "ssta") {
      graph = value_of(unite(graph, static_graph(cut, heads)), source);
    }
  } else {
    graph = static_graph(cut, heads);
  }
  Layout layout = value_of(tile_layout(1, heads, cut, graph), source);
  return {std::move(layout), name(), source, std::move(cut)};
}

void LayoutFlags::declare(CLI::App& app) {
  app.add_option("tensors", tensors_,
                 "Safetensors file with q2k_block_index, q2k_block_nums, q_block_sizes and, where "
                 "needed, kv_block_sizes, q_block_offsets, kv_block_offsets");
  system_.declare(app);
  app.add_option("--heads", heads_, "Heads of a layout made by --layout");
  app.add_option("--seed", seed_, "Seed of the lists that scores would pick");
}

LayoutCase LayoutFlags::make(const Console& console) const {
  if (tensors_.empty() == !system_.given()) {
    throw bad_input(tensors_.empty() ? "expected a layout: a file of tensors, or --layout"
                                     : "expected one of a file of tensors and --layout, got both");
  }
  if (system_.given()) {
    const auto progress = Progress::of_call(console, "layout");
    return system_.synthetic(heads_, seed_);
  }
  const auto progress = Progress::of_call(console, "reading " + tensors_);
  return {read_layout(SafetensorsFile(tensors_)), tensors_, tensors_, {}};
}

}  // namespace kpage::cli
