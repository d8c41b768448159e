#include "layout_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/hd.h"
#include "commands.h"
#include "failure.h"
#include "layout_rules.h"
#include "layout_size.h"
#include "page.h"
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

constexpr std::array<std::pair<const char*, Placement>, 4> kPlacements = {
    {{"blk128", Placement::kBlk128},
     {"tile", Placement::kTile},
     {"dense", Placement::kDense},
     {"raster", Placement::kRaster}}};

}  // namespace

Dims parse_dims(const std::string& flag, const std::string& text) {
  const auto extents =
      parse_extents(flag, text, 3, "time x height x width such as 21x45x80, whole numbers from 1");
  return {extents[0], extents[1], extents[2]};
}

std::string dims_text(const Dims& dims) {
  return std::to_string(dims.t) + "x" + std::to_string(dims.h) + "x" + std::to_string(dims.w);
}

void SystemFlags::declare(CLI::App& app, RuleSet rules) {
  rules_ = rules;
  const auto add = [&](const std::string& flag, auto& value) {
    const std::string help = rule_flag_help(flag, rules);
    if (!help.empty()) {
      app.add_option(flag, value, help);
    }
  };
  add("--layout", system_);
  app.add_option("--grid", grid_, "Tokens of the video over time, height and width: 21x45x80");
  add("--cube", cube_);
  add("--keep", keep_);
  add("--top-k", top_k_);
  add("--window", windows_);
  add("--clusters", clusters_);
  add("--chunk", chunk_);
  add("--model", model_);
  add("--decay", decay_);
  add("--text-before", text_before_);
  add("--text-after", text_after_);
}

std::vector<std::string> SystemFlags::parameters() const {
  std::vector<std::string> given;
  const auto add = [&given](const char* flag, bool is_given) {
    if (is_given) {
      given.emplace_back(flag);
    }
  };
  add("--grid", !grid_.empty());
  add("--cube", !cube_.empty());
  add("--keep", keep_.has_value());
  add("--top-k", top_k_.has_value());
  add("--window", !windows_.empty());
  add("--clusters", !clusters_.empty());
  add("--chunk", chunk_.has_value());
  add("--model", !model_.empty());
  add("--decay", decay_.has_value());
  add("--text-before", text_before_.has_value());
  add("--text-after", text_after_.has_value());
  return given;
}

void SystemFlags::check_parameters() const {
  const Rule& rule = find_rule(system_, rules_);
  for (const std::string& flag : parameters()) {
    if (!rule.takes(flag)) {
      std::string what = flag;
      what.append(": ").append(system_).append(" does not take it; it takes --grid");
      for (const std::string_view other : rule.flags) {
        what.append(", ").append(other);
      }
      throw bad_input(what);
    }
  }
  for (const auto& [flag, tokens] :
       {std::pair("--text-before", text_before()), std::pair("--text-after", text_after())}) {
    if (tokens < 0) {
      throw bad_input(std::string(flag) + ": expected a number from 0, got " +
                      std::to_string(tokens));
    }
  }
  if (tokens() > kMaxRows) {
    throw bad_input("--grid: expected at most " + std::to_string(kMaxRows) + " tokens, got " +
                    grid_ + (has_text() ? " with text" : ""));
  }
}

Dims SystemFlags::grid() const {
  if (grid_.empty()) {
    throw bad_input("--grid: expected with --layout, such as --grid 21x45x80");
  }
  const Dims grid = parse_dims("--grid", grid_);
  // Three 32-bit extents may overflow a volume of 64.
  const std::int64_t area = std::int64_t{grid.h} * grid.w;
  if (area > kMaxRows || area * grid.t > kMaxRows) {
    throw bad_input("--grid: expected at most " + std::to_string(kMaxRows) + " tokens, got " +
                    grid_);
  }
  return grid;
}

std::int64_t SystemFlags::tokens() const { return grid().volume() + text_before() + text_after(); }

Dims SystemFlags::cube() const {
  const char* usual = find_rule(system_, rules_).cube;
  return usual == nullptr ? Dims{} : parse_dims("--cube", cube_.empty() ? usual : cube_);
}

std::int32_t SystemFlags::chunk() const {
  const std::int32_t rows = chunk_.value_or(kBlockRows);
  if (rows < 1 || rows > kBlockRows) {
    throw bad_input("--chunk: expected 1 to " + std::to_string(kBlockRows) + " tokens, got " +
                    std::to_string(rows));
  }
  return rows;
}

std::string SystemFlags::name() const {
  const Dims shape = cube();
  return system_ + (shape.t > 0 ? " " + dims_text(shape) : "") + " on " + dims_text(grid());
}

bool SystemFlags::draws_lists() const {
  // Of the benchmarks' layouts, sliding windows alone are not drawn.
  return is_named_layout(system_) ? !system_.starts_with("sta-") : selects_by_scores();
}

bool SystemFlags::selects_by_scores() const { return find_rule(system_, rules_).scores; }

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
  return vsa_top_k(1 - keep().value_or(0.1), tiles);
}

std::optional<double> SystemFlags::keep() const {
  if (keep_ && !(*keep_ > 0 && *keep_ <= 1)) {
    throw bad_input("--keep: expected a share above 0 and up to 1, got " + std::to_string(*keep_));
  }
  return keep_;
}

std::vector<Dims> SystemFlags::windows() const {
  std::vector<Dims> windows;
  windows.reserve(windows_.size());
  for (const std::string& window : windows_) {
    windows.push_back(parse_dims("--window", window));
  }
  return windows.empty() ? std::vector<Dims>{{3, 3, 3}} : windows;
}

std::pair<std::int32_t, std::int32_t> SystemFlags::clusters() const {
  const auto clusters = parse_extents("--clusters", clusters_.empty() ? "300x1000" : clusters_, 2,
                                      "query x key clusters such as 300x1000");
  return {clusters[0], clusters[1]};
}

void SystemFlags::check_size(std::int64_t heads, bool planned) const {
  const std::string source = "--layout " + system_;
  const Dims video = grid();
  LayoutSize size;
  size.heads = static_cast<double>(heads);
  size.tokens = static_cast<double>(tokens());
  size.planned = planned;
  if (system_ == "svg2") {  // a cluster ends with a block of its own
    const auto [of_q, of_kv] = clusters();
    size.blocks = of_q + size.tokens / kBlockRows;
    size.longest = of_kv + size.tokens / kBlockRows;
    size.selected = size.blocks * size.longest * keep().value_or(Svg2Shape().keep);
    cli::check_size(source, size);
    return;
  }
  const bool cubes = cube().t > 0;
  const Dims all = cubes ? video : Dims{1, 1, static_cast<std::int32_t>(video.volume())};
  const Dims tile = cubes ? cube() : Dims{1, 1, chunk()};
  const auto tiles_across = [](std::int64_t extent, std::int64_t of_tile) {
    return static_cast<std::int32_t>(ceil_div(extent, of_tile));
  };
  const Dims across = {tiles_across(all.t, tile.t), tiles_across(all.h, tile.h),
                       tiles_across(all.w, tile.w)};
  const auto volume_within = [](const Dims& dims, const Dims& most) {
    return Dims{std::min(dims.t, most.t), std::min(dims.h, most.h), std::min(dims.w, most.w)}
        .volume();
  };
  const std::int64_t tiles = across.volume();
  if (tiles > kMaxBlocks) {
    throw bad_input(source + ": expected at most " + std::to_string(kMaxBlocks) + " tiles, got " +
                    dims_text(across));
  }
  // Radial looks at every column of its pairs of frames, as often as blocks cut them.
  constexpr double kMostSteps = 17179869184.0;
  const double steps = size.tokens * (static_cast<double>(video.t) + static_cast<double>(tiles));
  if (system_ == "radial" && steps > kMostSteps) {
    throw bad_input(source + ": expected tokens x (frames + blocks) up to " + fixed(kMostSteps, 0) +
                    ", got " + std::to_string(tokens()) + " x (" + std::to_string(video.t) + " + " +
                    std::to_string(tiles) + ")");
  }
  // Text is cut into chunks of a tile's volume, and tiles into blocks.
  const double volume = double{1} * tile.t * tile.h * tile.w;
  double text_blocks = 0;
  for (const std::int64_t text : {text_before(), text_after()}) {
    const auto length = static_cast<double>(text);
    text_blocks += std::ceil(length / volume) * std::ceil(std::min(length, volume) / kBlockRows);
  }
  std::int64_t listed = selects_by_scores() ? kept(static_cast<std::int32_t>(tiles)) : 0;
  if (system_ == "sta" || system_ == "ssta") {
    std::int64_t widest = 0;
    for (const Dims& window : windows()) {
      widest = std::max(widest, volume_within(window, across));
    }
    listed += widest;
  }
  listed = listed == 0 ? tiles : std::min(listed, tiles);
  const auto of_tile =
      static_cast<double>(ceil_div(volume_within(tile, all), std::int64_t{kBlockRows}));
  const double video_blocks = static_cast<double>(tiles) * of_tile;
  const double list = static_cast<double>(listed) * of_tile;
  size.blocks = video_blocks + text_blocks;
  size.longest = text_blocks > 0 ? size.blocks : list;
  size.selected = video_blocks * (list + text_blocks) + text_blocks * size.blocks;
  cli::check_size(source, size);
}

Result<Tiling> SystemFlags::tiling(Placement placement) const {
  const Dims video = grid();
  const Dims shape = cube();
  const auto before = static_cast<std::int32_t>(text_before());
  const auto after = static_cast<std::int32_t>(text_after());
  if (shape.t == 0) {
    return linear_tiling(static_cast<std::int32_t>(video.volume()), after, chunk(), placement);
  }
  Sequence sequence;
  sequence.grid = video;
  if (before > 0) {
    sequence.prefix.push_back(before);
  }
  if (after > 0) {
    sequence.suffix.push_back(after);
  }
  return make_tiling(sequence, shape, placement);
}

std::string SystemFlags::tiling_flags() const {
  const Dims shape = cube();
  return "--grid " + grid_ + (shape.t > 0 ? " --cube " + dims_text(shape) : "");
}

Tiling SystemFlags::compact_tiling() const {
  Result<Tiling> in_place = tiling(Placement::kRaster);
  return in_place.ok() ? std::move(in_place).value()
                       : value_of(tiling(Placement::kDense), tiling_flags());
}

ClusterGraph SystemFlags::static_graph(const Tiling& tiling, std::int32_t batch,
                                       std::int32_t heads) const {
  if (system_ == "sta" || system_ == "ssta") {
    if (std::cmp_greater(windows_.size(), heads)) {
      throw bad_input("--window: expected at most one for each of " + std::to_string(heads) +
                      " heads, got " + std::to_string(windows_.size()));
    }
    const std::vector<Dims> given = windows();
    std::vector<Dims> dealt;
    for (std::size_t head = 0; std::cmp_less(head, heads); ++head) {
      dealt.push_back(given[head % given.size()]);
    }
    return repeat(value_of(sliding_windows(tiling, dealt), "--window"), batch);
  }
  const std::int32_t frames = grid().t;
  if (!model_.empty() && model_ != "wan" && model_ != "hunyuan") {
    throw bad_input("--model: expected wan or hunyuan, got " + model_);
  }
  const bool hunyuan = model_ == "hunyuan";
  if (system_ == "svg1") {
    Svg1Rule rule = hunyuan ? kSvg1Hunyuan : kSvg1Wan;
    rule.density = keep().value_or(rule.density);
    return repeat(value_of(svg1_graph(tiling, frames, rule), "--layout svg1"), batch * heads);
  }
  RadialRule rule = hunyuan ? kRadialHunyuan : kRadialWan;
  rule.decay = decay_.value_or(rule.decay);
  return repeat(value_of(radial_graph(tiling, frames, rule), "--layout radial"), batch * heads);
}

Layout SystemFlags::svg2(std::int32_t heads, std::uint64_t seed) const {
  Svg2Shape shape;
  shape.heads = heads;
  shape.tokens = static_cast<std::int32_t>(grid().volume());
  std::tie(shape.q_clusters, shape.kv_clusters) = clusters();
  shape.keep = keep().value_or(shape.keep);
  return value_of(svg2_like_layout(shape, seed), "--layout svg2");
}

LayoutCase SystemFlags::synthetic(std::optional<std::int32_t> head_count,
                                  std::optional<Placement> placement, std::uint64_t seed,
                                  bool planned) const {
  const std::string source = "--layout " + system_;
  if (is_named_layout(system_)) {
    if (!parameters().empty() || head_count || placement) {
      throw bad_input(source + ": has its own grid, cubes, lists and heads; expected it alone");
    }
    return {
        value_of(named_layout(system_, seed), source), system_, source, {}, draws_lists(), seed};
  }
  check_parameters();
  const std::int32_t heads =
      head_count.value_or(std::max(1, static_cast<std::int32_t>(windows_.size())));
  constexpr std::int32_t kMostHeads = 1024;  // far past any model, and of a layout that fits memory
  if (heads < 1 || heads > kMostHeads) {
    throw bad_input("--heads: expected a number from 1 to " + std::to_string(kMostHeads) +
                    ", got " + std::to_string(heads));
  }
  check_size(heads, planned);
  if (system_ == "svg2") {
    if (placement) {
      throw bad_input("--placement: clusters of svg2 lie end to end");
    }
    return {svg2(heads, seed), name(), source, {}, true, seed};
  }
  Tiling cut = value_of(tiling(placement.value_or(Placement::kBlk128)), tiling_flags());
  ClusterGraph graph;
  if (selects_by_scores()) {
    const std::int32_t video_tiles = cut.count() - cut.prefix_tiles - cut.suffix_tiles;
    const ClusterGraph video = value_of(
        random_top_k(std::int64_t{heads} * video_tiles, video_tiles, kept(video_tiles), seed));
    graph = value_of(with_dense_segments(cut, heads, video), source);
    if (system_ == "ssta") {
      graph = value_of(unite(graph, static_graph(cut, 1, heads)), source);
    }
  } else {
    graph = static_graph(cut, 1, heads);
  }
  Layout layout = value_of(tile_layout(1, heads, cut, graph), source);
  return {std::move(layout), name(), source, std::move(cut), draws_lists(), seed};
}

void LayoutFlags::declare(CLI::App& app, SeedOf seed) {
  seed_of_ = seed;
  app.add_option("tensors", tensors_,
                 "Safetensors file with q2k_block_index, q2k_block_nums, q_block_sizes and, where "
                 "needed, kv_block_sizes, q_block_offsets, kv_block_offsets");
  system_.declare(app, RuleSet::kAll);
  app.add_option("--heads", heads_, "Heads of a layout made by --layout");
  app.add_option(
      "--placement", placement_,
      "Where its tiles lie: blk128 (blocks at multiples of 128 rows), tile (at multiples "
      "of their volume), dense (end to end), raster (where their tokens are)");
  app.add_option("--seed", seed_,
                 seed == SeedOf::kTensors
                     ? "Seed of the tensors, and of lists that scores of a model's would pick: 0"
                     : "Seed of lists that scores would pick, which are random here: 0")
      ->check(seed_number());
}

std::vector<std::string> LayoutFlags::parameters(bool with_seed) const {
  std::vector<std::string> given = system_.parameters();
  if (heads_) {
    given.emplace_back("--heads");
  }
  if (!placement_.empty()) {
    given.emplace_back("--placement");
  }
  if (seed_ && with_seed) {
    given.emplace_back("--seed");
  }
  return given;
}

void LayoutFlags::expect_none(const std::string& source) const {
  check_none(source, parameters(true));
}

void LayoutFlags::check_none(const std::string& source, const std::vector<std::string>& flags) {
  if (!flags.empty()) {
    throw bad_input(flags.front() + ": goes with --layout; with " + source + " it does nothing");
  }
}

LayoutCase LayoutFlags::make(const Console& console, bool planned) const {
  if (tensors_.empty() == !system_.given()) {
    throw bad_input(tensors_.empty() ? "expected a layout: a file of tensors, or --layout"
                                     : "expected one of a file of tensors and --layout, got both");
  }
  if (!system_.given()) {
    check_none(tensors_, parameters(seed_of_ == SeedOf::kLists));
    const Progress progress(console, "reading " + tensors_);
    return {read_layout(SafetensorsFile(tensors_)), tensors_, tensors_, {}};
  }
  std::optional<Placement> placement;
  if (!placement_.empty()) {
    const auto* found = std::find_if(kPlacements.begin(), kPlacements.end(),
                                     [&](const auto& entry) { return placement_ == entry.first; });
    if (found == kPlacements.end()) {
      throw bad_input("--placement: expected blk128, tile, dense or raster, got " + placement_);
    }
    placement = found->second;
  }
  if (seed_ && seed_of_ == SeedOf::kLists && !system_.draws_lists()) {
    throw bad_input("--seed: " + system_.system() + " draws nothing at random");
  }
  const Progress progress(console, "layout");
  return system_.synthetic(heads_, placement, seed(), planned);
}

}  // namespace kpage::cli
