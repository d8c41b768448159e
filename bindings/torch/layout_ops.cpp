// Layouts and their geometry. These ops take numbers and give tensors on the CPU: what depends on a
// model's grid and not on what its tensors hold.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include "kpage/geometry.h"

#include "ops.h"
#include "tensors.h"

namespace kpage::bindings {
namespace {

using torch::headeronly::ScalarType;

template <class Integer>
Tensor integers(std::span<const Integer> values, std::span<const std::int64_t> shape) {
  const torch::stable::Device cpu(torch::headeronly::DeviceType::CPU);
  constexpr ScalarType kType = sizeof(Integer) == 4 ? ScalarType::Int : ScalarType::Long;
  Tensor out = torch::stable::full({shape.data(), shape.size()}, 0.0, kType, std::nullopt, cpu);
  std::copy(values.begin(), values.end(), static_cast<Integer*>(out.mutable_data_ptr()));
  return out;
}

Tensor ints(std::span<const std::int32_t> values, std::span<const std::int64_t> shape) {
  return integers(values, shape);
}

Tensor row(std::span<const std::int32_t> values) {
  return ints(values, std::array{static_cast<std::int64_t>(values.size())});
}

// Of one side: [N], [H, N] or [B, H, N]; no elements where the layout has none.
Tensor partition(const Layout& layout, std::span<const std::int32_t> values, PartitionScope scope,
                 std::int64_t blocks) {
  if (values.empty()) {
    return row({});
  }
  const std::array<std::int64_t, 3> shape{layout.batch, layout.heads, blocks};
  return ints(values, std::span(shape).last(static_cast<std::size_t>(scope) + 1));
}

// An integer of Python's as the library's: one that it cannot hold becomes an extreme, which no
// argument may have.
std::int32_t narrowed(std::int64_t value) {
  using Limits = std::numeric_limits<std::int32_t>;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, Limits::min(), Limits::max()));
}

std::vector<std::int32_t> narrowed(const std::vector<std::int64_t>& values) {
  std::vector<std::int32_t> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(),
                 [](std::int64_t value) { return narrowed(value); });
  return out;
}

template <class Value>
Value checked(Result<Value> result) {
  throw_if_error(result.status());
  return std::move(result).value();
}

// t, h, w; Python has checked that there are three.
Dims dims(std::span<const std::int64_t> values) {
  return {narrowed(values[0]), narrowed(values[1]), narrowed(values[2])};
}

// row_offsets int64 [rows + 1], columns int32.
std::vector<Tensor> compressed_rows(const ClusterGraph& graph) {
  const std::span<const std::int64_t> offsets(graph.row_offsets);
  return {integers(offsets, std::array{static_cast<std::int64_t>(offsets.size())}),
          row(graph.columns)};
}

// --- Geometry ---------------------------------------------------------------------------------

constexpr std::array<std::pair<std::string_view, Placement>, 4> kPlacements{
    {{"blk128", Placement::kBlk128},
     {"tile", Placement::kTile},
     {"dense", Placement::kDense},
     {"raster", Placement::kRaster}}};

Tiling tiling_of(const Shape& prefix, const Shape& grid, const Shape& suffix, const Shape& cube,
                 const std::string& placement) {
  const auto* found = std::find_if(kPlacements.begin(), kPlacements.end(),
                                   [&](const auto& known) { return known.first == placement; });
  if (found == kPlacements.end()) {
    throw_if_error(
        Status(ErrorCode::kInvalidArgument,
               "placement: expected one of blk128, tile, dense, raster, got \"" + placement + '"'));
  }
  return checked(
      make_tiling({narrowed(prefix), dims(grid), narrowed(suffix)}, dims(cube), found->second));
}

std::vector<Tensor> tiling(const Shape& prefix, const Shape& grid, const Shape& suffix,
                           const Shape& cube, const std::string& placement) {
  const Tiling made = tiling_of(prefix, grid, suffix, cube, placement);
  const ClusterGraph nothing{
      std::vector<std::int64_t>(static_cast<std::size_t>(made.count()) + 1, 0), {}};
  const Layout blocks = checked(tile_layout(1, 1, made, nothing));
  const std::array<std::int32_t, 5> counts{made.cubes.t, made.cubes.h, made.cubes.w,
                                           made.prefix_tiles, made.suffix_tiles};
  return {row(counts),           row(made.tiles.sizes), row(made.tiles.offsets),
          row(blocks.q_sizes),   row(blocks.q_offsets), row(made.row_of_token),
          row(made.token_of_row)};
}

std::vector<Tensor> sliding_windows(const Shape& prefix, const Shape& grid, const Shape& suffix,
                                    const Shape& cube, const Shape& windows) {
  std::vector<Dims> of_heads;
  for (std::size_t i = 0; i + 2 < windows.size(); i += 3) {
    of_heads.push_back(dims(std::span(windows).subspan(i, 3)));
  }
  // Placement does not matter to a graph.
  const Tiling made = tiling_of(prefix, grid, suffix, cube, "dense");
  return compressed_rows(checked(kpage::sliding_windows(made, of_heads)));
}

Tiling frames_tiling(std::int64_t frames, std::int64_t frame_tokens, std::int64_t text_tokens,
                     std::int64_t chunk) {
  const bool fits = frames >= 0 && frame_tokens >= 0 && frame_tokens <= kMaxRows &&
                    (frame_tokens == 0 || frames <= kMaxRows / frame_tokens);
  return checked(linear_tiling(fits ? narrowed(frames * frame_tokens) : -1, narrowed(text_tokens),
                               narrowed(chunk), Placement::kDense));
}

std::int64_t svg1_band(std::int64_t frames, std::int64_t frame_tokens, std::int64_t text_tokens,
                       double density, bool band_up) {
  return checked(kpage::svg1_band(narrowed(frames), narrowed(frame_tokens), narrowed(text_tokens),
                                  {density, true, band_up}));
}

std::vector<Tensor> svg1_graph(std::int64_t frames, std::int64_t frame_tokens,
                               std::int64_t text_tokens, std::int64_t chunk, double density,
                               bool first_frame_sink, bool band_up) {
  return compressed_rows(
      checked(kpage::svg1_graph(frames_tiling(frames, frame_tokens, text_tokens, chunk),
                                narrowed(frames), {density, first_frame_sink, band_up})));
}

std::vector<Tensor> radial_graph(std::int64_t frames, std::int64_t frame_tokens,
                                 std::int64_t text_tokens, std::int64_t chunk, double decay,
                                 bool first_frame_sink, bool next_frame_whole) {
  return compressed_rows(
      checked(kpage::radial_graph(frames_tiling(frames, frame_tokens, text_tokens, chunk),
                                  narrowed(frames), {decay, first_frame_sink, next_frame_whole})));
}

Tensor token_major_order(std::int64_t frames, std::int64_t frame_tokens) {
  return row(kpage::token_major_order(narrowed(frames), narrowed(frame_tokens)));
}

std::int64_t vsa_top_k(double sparsity, std::int64_t tiles) {
  return kpage::vsa_top_k(sparsity, narrowed(tiles));
}

std::int64_t ssta_top_k(std::int64_t top_k, std::int64_t latent_frames) {
  return kpage::ssta_top_k(narrowed(top_k), narrowed(latent_frames));
}

STABLE_TORCH_LIBRARY_FRAGMENT(kpage, m) {
  m.def("tiling(int[] prefix, int[] grid, int[] suffix, int[] cube, str placement) -> Tensor[]");
  m.def(
      "sliding_windows(int[] prefix, int[] grid, int[] suffix, int[] cube, int[] windows) -> "
      "Tensor[]");
  m.def(
      "svg1_band(int frames, int frame_tokens, int text_tokens, float density, bool band_up) -> "
      "int");
  m.def(
      "svg1_graph(int frames, int frame_tokens, int text_tokens, int chunk, float density, bool "
      "first_frame_sink, bool band_up) -> Tensor[]");
  m.def(
      "radial_graph(int frames, int frame_tokens, int text_tokens, int chunk, float decay, bool "
      "first_frame_sink, bool next_frame_whole) -> Tensor[]");
  m.def("token_major_order(int frames, int frame_tokens) -> Tensor");
  m.def("vsa_top_k(float sparsity, int tiles) -> int");
  m.def("ssta_top_k(int top_k, int latent_frames) -> int");
}

STABLE_TORCH_LIBRARY_IMPL(kpage, CompositeExplicitAutograd, m) {
  m.impl("tiling", TORCH_BOX(&tiling));
  m.impl("sliding_windows", TORCH_BOX(&sliding_windows));
  m.impl("svg1_band", TORCH_BOX(&svg1_band));
  m.impl("svg1_graph", TORCH_BOX(&svg1_graph));
  m.impl("radial_graph", TORCH_BOX(&radial_graph));
  m.impl("token_major_order", TORCH_BOX(&token_major_order));
  m.impl("vsa_top_k", TORCH_BOX(&vsa_top_k));
  m.impl("ssta_top_k", TORCH_BOX(&ssta_top_k));
}

}  // namespace

std::vector<std::string> layout_names() {
  const std::vector<std::string_view> names = kpage::layout_names();
  return {names.begin(), names.end()};
}

std::vector<Tensor> named_layout(const std::string& name, std::int64_t seed) {
  const Layout layout = checked(kpage::named_layout(name, static_cast<std::uint64_t>(seed)));
  const std::array<std::int64_t, 4> lists{layout.batch, layout.heads, layout.q_blocks,
                                          layout.max_list};
  return {ints(layout.q2k_block_index, lists),
          ints(layout.q2k_block_nums, std::span(lists).first(3)),
          partition(layout, layout.q_sizes, layout.q_scope, layout.q_blocks),
          partition(layout, layout.kv_sizes, layout.kv_scope, layout.kv_blocks),
          partition(layout, layout.q_offsets, layout.q_scope, layout.q_blocks),
          partition(layout, layout.kv_offsets, layout.kv_scope, layout.kv_blocks)};
}

}  // namespace kpage::bindings
