// Static rules over frames of raster tokens, at block level: SVG1's band and Radial's windows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kpage/geometry.h"

#include "base/hd.h"
#include "base/message.h"
#include "layout/graph.h"

namespace kpage {
namespace {

// What both rules need of a tiling: its grid in raster order in chunks, `frames` of equal length.
struct Chunked {
  std::int64_t tokens;
  std::int64_t frame;
  std::int64_t chunk;
  std::int32_t video;  // tiles of the grid; those after it are text
  std::int32_t tiles;

  [[nodiscard]] std::int64_t begin(std::int64_t tile) const { return tile * chunk; }
  [[nodiscard]] std::int64_t end(std::int64_t tile) const {
    return std::min(begin(tile) + chunk, tokens);
  }
};

Result<Chunked> chunked(const Tiling& tiling, std::int32_t frames) {
  const Dims& grid = tiling.sequence.grid;
  if (tiling.prefix_tiles != 0 || grid.t != 1 || grid.h != 1 || tiling.tile.t != 1 ||
      tiling.tile.h != 1) {
    return invalid_argument("tiling", "one that linear_tiling() makes",
                            text("a grid of ", grid.t, "x", grid.h, "x", grid.w, " and ",
                                 tiling.prefix_tiles, " tiles before it"));
  }
  if (frames < 1 || grid.w % frames != 0) {
    return invalid_argument("frames", text("a divisor of the ", grid.w, " tokens of the grid"),
                            frames);
  }
  // The rules are made in a map of tiles by tiles.
  constexpr std::int32_t kMostTiles = 1 << 15;
  if (tiling.count() > kMostTiles) {
    return invalid_argument("tiling", text("at most ", kMostTiles, " tiles"), tiling.count());
  }
  return Chunked{grid.w, grid.w / frames, tiling.tile.w, tiling.cubes.w, tiling.count()};
}

// A map of tiles in which text attends to all and all attend to it.
std::vector<std::uint8_t> text_only(const Chunked& at) {
  std::vector<std::uint8_t> map(static_cast<std::size_t>(at.tiles) *
                                static_cast<std::size_t>(at.tiles));
  for (std::int64_t q = 0; q < at.tiles; ++q) {
    for (std::int64_t k = 0; k < at.tiles; ++k) {
      map[static_cast<std::size_t>(q * at.tiles + k)] = q >= at.video || k >= at.video;
    }
  }
  return map;
}

std::int32_t bit_length(std::int64_t number) {
  std::int32_t bits = 0;
  for (; number > 0; number >>= 1) {
    ++bits;
  }
  return bits;
}

// Radial's window for a pair of frames: how far apart tokens of the pair may be within their
// frames; -1 where none attend.
double radial_width(const RadialRule& rule, std::int64_t frame, std::int64_t i, std::int64_t j) {
  if (j == 0 && rule.first_frame_sink) {
    return static_cast<double>(frame);
  }
  const std::int64_t distance = std::abs(i - j);
  const double reach = std::ldexp(1.0, bit_length(frame) - bit_length(distance));
  if (reach < kBlockRows && distance % static_cast<std::int64_t>(kBlockRows / reach) != 0) {
    return -1.0;  // windows stop narrowing at a block; frames are thinned out instead
  }
  if (distance == 0) {
    return static_cast<double>(frame);
  }
  if (distance == 1) {
    return static_cast<double>(rule.next_frame_whole ? frame : frame / 2);
  }
  return std::max(reach * rule.decay, static_cast<double>(kBlockRows));
}

// Whether rows [r0, r1) and columns [c0, c1), counted within their frames, fill their block pair:
// of the columns that have any row within `width`, more than 0.6 have more than a third of the rows
// of the query block, `block_rows`.
bool fills(std::int64_t r0, std::int64_t r1, std::int64_t c0, std::int64_t c1, std::int64_t width,
           std::int64_t block_rows) {
  std::int64_t any = 0;
  std::int64_t dense = 0;
  for (std::int64_t c = c0; c < c1; ++c) {
    const std::int64_t rows = std::min(r1, c + width + 1) - std::max(r0, c - width);
    any += rows > 0;
    dense += 3 * rows > block_rows;
  }
  return 5 * dense > 3 * any;
}

}  // namespace

Result<std::int32_t> svg1_band(std::int32_t frames, std::int32_t frame_tokens,
                               std::int32_t text_tokens, const Svg1Rule& rule) {
  if (frames < 1) {
    return invalid_argument("frames", "at least 1", frames);
  }
  if (frame_tokens < 1 || frame_tokens > kMaxRows / frames) {
    return invalid_argument("frame_tokens", text("1 to ", kMaxRows / frames), frame_tokens);
  }
  if (text_tokens < 0) {
    return invalid_argument("text_tokens", "at least 0", text_tokens);
  }
  if (!(rule.density >= 0.0 && rule.density <= 1.0)) {
    return invalid_argument("rule.density", "a number in [0, 1]", rule.density);
  }
  const double tokens = static_cast<double>(frames) * frame_tokens + text_tokens;
  const double video = std::clamp(rule.density - 2.0 * text_tokens / tokens, 0.0, 1.0);
  const double half_width = tokens * (1.0 - std::sqrt(1.0 - video));
  const double blocks = half_width / kBlockRows;
  return static_cast<std::int32_t>(rule.band_up ? std::ceil(blocks) : std::floor(blocks)) *
         kBlockRows;
}

Result<ClusterGraph> svg1_graph(const Tiling& tiling, std::int32_t frames, const Svg1Rule& rule) {
  const Result<Chunked> cut = chunked(tiling, frames);
  if (!cut.ok()) {
    return cut.status();
  }
  const Chunked& at = cut.value();
  const std::int64_t text_tokens = tiling.sequence.tokens() - at.tokens;
  const Result<std::int32_t> band = svg1_band(frames, static_cast<std::int32_t>(at.frame),
                                              static_cast<std::int32_t>(text_tokens), rule);
  if (!band.ok()) {
    return band.status();
  }
  // A band of nothing still has its diagonal.
  const std::int64_t reach = rule.band_up ? band.value() : std::max(band.value() - 1, 0);
  std::vector<std::uint8_t> map = text_only(at);
  for (std::int64_t q = 0; q < at.video; ++q) {
    for (std::int64_t k = 0; k < at.video; ++k) {
      const std::int64_t apart =
          std::max<std::int64_t>({at.begin(k) - (at.end(q) - 1), at.begin(q) - (at.end(k) - 1), 0});
      const bool sink = rule.first_frame_sink && at.begin(k) < at.frame;
      map[static_cast<std::size_t>(q * at.tiles + k)] = apart <= reach || sink;
    }
  }
  return layout::rows_of_map(at.tiles, at.tiles, map);
}

std::vector<std::int32_t> token_major_order(std::int32_t frames, std::int32_t frame_tokens) {
  std::vector<std::int32_t> row_of_token;
  row_of_token.reserve(static_cast<std::size_t>(frames) * static_cast<std::size_t>(frame_tokens));
  for (std::int32_t frame = 0; frame < frames; ++frame) {
    for (std::int32_t patch = 0; patch < frame_tokens; ++patch) {
      row_of_token.push_back(patch * frames + frame);
    }
  }
  return row_of_token;
}

Result<ClusterGraph> radial_graph(const Tiling& tiling, std::int32_t frames,
                                  const RadialRule& rule) {
  const Result<Chunked> cut = chunked(tiling, frames);
  if (!cut.ok()) {
    return cut.status();
  }
  if (!(rule.decay > 0.0 && std::isfinite(rule.decay))) {
    return invalid_argument("rule.decay", "a finite number over 0", rule.decay);
  }
  const Chunked& at = cut.value();
  std::vector<std::uint8_t> map = text_only(at);
  for (std::int64_t i = 0; i < frames; ++i) {
    for (std::int64_t j = 0; j < frames; ++j) {
      const double limit = radial_width(rule, at.frame, i, j);
      if (limit < 0.0) {
        continue;
      }
      const auto width = static_cast<std::int64_t>(std::min(limit, static_cast<double>(at.frame)));
      const std::int64_t row = i * at.frame;
      const std::int64_t column = j * at.frame;
      for (std::int64_t q = row / at.chunk; at.begin(q) < row + at.frame; ++q) {
        const std::int64_t r0 = std::max(at.begin(q) - row, std::int64_t{0});
        const std::int64_t r1 = std::min(at.begin(q) + at.chunk - row, at.frame);
        for (std::int64_t k = column / at.chunk; at.begin(k) < column + at.frame; ++k) {
          const std::int64_t c0 = std::max(at.begin(k) - column, std::int64_t{0});
          const std::int64_t c1 = std::min(at.begin(k) + at.chunk - column, at.frame);
          std::uint8_t& cell = map[static_cast<std::size_t>(q * at.tiles + k)];
          // Frames of less than a third of a block fill none, not even a block of their own.
          cell = cell != 0 || q == k || fills(r0, r1, c0, c1, width, at.end(q) - at.begin(q));
        }
      }
    }
  }
  return layout::rows_of_map(at.tiles, at.tiles, map);
}

}  // namespace kpage
