// Layouts from geometry: grids of video tokens cut into tiles, which tile attends to which by the
// published systems' static rules, and synthetic graphs for tests and benchmarks.
//
// A tile is what a system's rule speaks of: a cube of the grid or a chunk of text. A block is what
// attention runs on: tiles over 128 rows are split into full blocks and a remainder.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kpage/export.h"
#include "kpage/layout.h"
#include "kpage/status.h"

namespace KPAGE_EXPORT kpage {

// Extents over time, height and width; tokens in raster order have width innermost.
struct Dims {
  std::int32_t t = 0;
  std::int32_t h = 0;
  std::int32_t w = 0;

  [[nodiscard]] constexpr std::int64_t volume() const { return std::int64_t{t} * h * w; }
  friend constexpr bool operator==(const Dims&, const Dims&) = default;
};

// Tokens of a sequence in the model's order: segments before the grid (text, audio, ...), the grid
// in raster order, segments after it. Any part may be empty.
struct Sequence {
  std::vector<std::int32_t> prefix;  // lengths
  Dims grid;
  std::vector<std::int32_t> suffix;  // lengths

  [[nodiscard]] std::int64_t tokens() const;
};

// Which rows tiles take.
enum class Placement : std::int32_t {
  kBlk128,  // block b at row 128 * b
  kTile,    // tile i at row i * tile volume, as systems that pad every tile to its volume have it
  kDense,   // tiles end to end, without padding
  kRaster,  // tokens stay where they are; every tile's tokens must be contiguous there
};

// A sequence cut into tiles. Prefix chunks come first, then the cubes of the grid in raster order
// of cubes, then suffix chunks: consecutive cubes share most of a window, and so do their lists.
// Within a cube tokens are in raster order of the cube cropped to the grid, so valid rows are a
// prefix.
struct Tiling {
  Sequence sequence;
  Dims tile;   // of a cube; segments are cut into chunks of its volume
  Dims cubes;  // how many, each way
  std::int32_t prefix_tiles = 0;
  std::int32_t suffix_tiles = 0;
  Clusters tiles;                          // sizes and offsets: [tiles]; shared by all heads
  std::int32_t rows = 0;                   // one past the last row, padding included
  std::vector<std::int32_t> row_of_token;  // [tokens]
  std::vector<std::int32_t> token_of_row;  // [rows]; -1 in padding

  [[nodiscard]] std::int32_t count() const { return tiles.clusters; }
};

// Bad extents, more rows than kMaxRows, and tiles that are not contiguous (kRaster) are errors.
[[nodiscard]] Result<Tiling> make_tiling(const Sequence& sequence, Dims tile,
                                         Placement placement = Placement::kBlk128);

// Which tiles a tile attends to, in compressed rows.
struct ClusterGraph {
  std::vector<std::int64_t> row_offsets;  // [B * H * query tiles + 1]
  std::vector<std::int32_t> columns;      // [row_offsets.back()]: key/value tiles
};

// The block layout of a graph over tiles or clusters: split_clusters() for graphs in compressed
// rows. K/V use the Q partition where `kv` is the same object as `q`.
[[nodiscard]] Result<Layout> cluster_layout(std::int32_t batch, std::int32_t heads,
                                            const Clusters& q, const Clusters& kv,
                                            const ClusterGraph& graph);
[[nodiscard]] Result<Layout> tile_layout(std::int32_t batch, std::int32_t heads,
                                         const Tiling& tiling, const ClusterGraph& graph);

// In a row, the columns of either graph, ascending. Both have the same rows.
[[nodiscard]] Result<ClusterGraph> unite(const ClusterGraph& a, const ClusterGraph& b);

// --- Static rules -----------------------------------------------------------------------------

// Sliding tiles (STA, and the window part of SSTA): the centre of a query cube's window is clamped
// so that the window stays inside the grid where it fits. Text attends to all and all attend to it.
// `windows`, in cubes, one a head. Rows: [windows.size() * tiles].
[[nodiscard]] Result<ClusterGraph> sliding_windows(const Tiling& tiling,
                                                   std::span<const Dims> windows);

// How many of `tiles` a sparsity in [0, 1] keeps by VSA's rule: ceil((1 - sparsity) * tiles), at
// least one.
[[nodiscard]] std::int32_t vsa_top_k(double sparsity, std::int32_t tiles);
// SSTA's top-k: half of `top_k` up to 31 latent frames.
[[nodiscard]] std::int32_t ssta_top_k(std::int32_t top_k, std::int32_t latent_frames);
// VSA with prefix segments: prefix queries attend to all, and all to the prefix; `video` has the
// selected cubes, numbered from 0, of each cube. Rows of `video`: [heads * cubes].
[[nodiscard]] Result<ClusterGraph> with_dense_segments(const Tiling& tiling, std::int32_t heads,
                                                       const ClusterGraph& video);

// The same graph `times` over, for heads that share a rule.
[[nodiscard]] ClusterGraph repeat(const ClusterGraph& graph, std::int32_t times);

// A sequence of `tokens` in chunks of `chunk` rows, the last one partial, and text after it in
// chunks of its own. What the rules below take; with chunks of 64, lists are as fine as
// SpargeAttn's.
[[nodiscard]] Result<Tiling> linear_tiling(std::int32_t tokens, std::int32_t text_tokens = 0,
                                           std::int32_t chunk = kBlockRows,
                                           Placement placement = Placement::kBlk128);

// SVG1 at block level: every pair of blocks that the band or the sink touches, and the diagonal,
// where the band rounds down to nothing. (The system masks single tokens at the band's edges; a
// block graph cannot.)
struct Svg1Rule {
  double density = 0.3;  // what the released scripts call sparsity
  bool first_frame_sink = true;
  bool band_up = true;  // round the band to 128 rows up and include its end; or down, without it
};
inline constexpr Svg1Rule kSvg1Wan{0.3, true, true};
inline constexpr Svg1Rule kSvg1Hunyuan{0.25, false, false};
// Half width of the band, in tokens.
[[nodiscard]] Result<std::int32_t> svg1_band(std::int32_t frames, std::int32_t frame_tokens,
                                             std::int32_t text_tokens, const Svg1Rule& rule);
// Rows: [tiles], for one head.
[[nodiscard]] Result<ClusterGraph> svg1_graph(const Tiling& tiling, std::int32_t frames,
                                              const Svg1Rule& rule);
// Temporal heads of SVG1: token `frame * frame_tokens + patch` moves to row `patch * frames +
// frame`. Returns row_of_token, [frames * frame_tokens].
[[nodiscard]] std::vector<std::int32_t> token_major_order(std::int32_t frames,
                                                          std::int32_t frame_tokens);

// Radial attention: the window of a pair of frames halves as their distance doubles, down to a
// block; from there on fewer pairs have one. A block pair counts where the windows fill the rows
// that it has densely enough, and the diagonal always.
struct RadialRule {
  double decay = 0.2;
  bool first_frame_sink = true;
  bool next_frame_whole = false;  // the window of neighbouring frames: all of the frame, or half
};
inline constexpr RadialRule kRadialWan{0.2, true, false};
inline constexpr RadialRule kRadialHunyuan{0.95, false, true};
// Rows: [tiles], for one head.
[[nodiscard]] Result<ClusterGraph> radial_graph(const Tiling& tiling, std::int32_t frames,
                                                const RadialRule& rule);

// --- Synthetic graphs and layouts, the same for a seed on every machine -----------------------

// `keep` different columns a row, drawn without replacement, each with a probability in proportion
// to its weight; without weights, evenly. Columns of weight 0 are never drawn. Ascending in a row.
[[nodiscard]] Result<ClusterGraph> random_top_k(std::int64_t rows, std::int32_t columns,
                                                std::int32_t keep, std::uint64_t seed,
                                                std::span<const double> weights = {});

// `tokens` shared out to `clusters` in proportion to log-normal draws. Returns [heads, clusters].
[[nodiscard]] Result<Clusters> log_normal_clusters(std::int32_t heads, std::int32_t clusters,
                                                   std::int32_t tokens, double sigma,
                                                   std::uint64_t seed);

// In the likeness of SVG2: independent log-normal partitions of Q and K/V for each head, random
// lists of round(keep * kv_clusters) clusters, at least one, of which at least one has keys.
struct Svg2Shape {
  std::int32_t heads = 1;
  std::int32_t tokens = 0;
  std::int32_t q_clusters = 0;
  std::int32_t kv_clusters = 0;
  double sigma = 0.5;
  double keep = 0.2;
};
[[nodiscard]] Result<Layout> svg2_like_layout(const Svg2Shape& shape, std::uint64_t seed);

// Cubes with random lists of `keep` tiles, split into blocks.
[[nodiscard]] Result<Layout> random_tile_layout(const Tiling& tiling, std::int32_t heads,
                                                std::int32_t keep, std::uint64_t seed);

// Five layouts in the likeness of the paper's representative five (4.1): (2,8,8) cubes over
// T x 34 x 62, 8 heads, lists that favour small blocks as block-mean scores do.
struct RepresentativeCase {
  std::int32_t frames;
  std::int32_t keep;
};
inline constexpr std::array<RepresentativeCase, 5> kRepresentativeCases{
    {{184, 150}, {199, 90}, {213, 64}, {231, 128}, {245, 160}}};
[[nodiscard]] Result<Layout> representative_layout(const RepresentativeCase& which,
                                                   std::uint64_t seed = 0);
[[nodiscard]] std::vector<Layout> representative_layouts(std::uint64_t seed = 0);

// The layouts that benchmarks speak of, by name ("padded-5s", "vsa-444-720p", ...). STA has its own
// windows, SSTA windows and random lists, all others random lists.
[[nodiscard]] std::vector<std::string_view> layout_names();
[[nodiscard]] Result<Layout> named_layout(std::string_view name, std::uint64_t seed = 0);

// --- Occupancy --------------------------------------------------------------------------------

// How full blocks are. Summed over the sets of a partition: once where all heads share it.
struct Occupancy {
  std::int64_t blocks = 0;
  std::int64_t empty = 0;    // without valid rows; they count for nothing below
  std::int64_t partial = 0;  // 1 to 127 valid rows
  std::int64_t rows = 0;     // valid rows
  std::array<std::int64_t, kBlockRows + 1> histogram{};  // blocks by valid rows

  // 1 - rows / (128 x blocks that are not empty); 0 where there are none.
  [[nodiscard]] double padding() const;
  // Partial blocks among those that are not empty.
  [[nodiscard]] double partial_fraction() const;
};
// sizes: [blocks], each 0..128.
[[nodiscard]] Result<Occupancy> occupancy(std::span<const std::int32_t> sizes);
[[nodiscard]] Result<Occupancy> q_occupancy(const Layout& layout);
[[nodiscard]] Result<Occupancy> kv_occupancy(const Layout& layout);

}  // namespace kpage
