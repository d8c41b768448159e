// Sequences cut into tiles, and where their tokens go.
#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kpage/geometry.h"

#include "base/hd.h"
#include "base/message.h"

namespace kpage {
namespace {

std::string dims_text(Dims dims) { return text(dims.t, "x", dims.h, "x", dims.w); }

// t * h * w, or more than any sequence has.
std::int64_t bounded_volume(Dims dims) {
  const std::int64_t area = std::int64_t{dims.h} * dims.w;
  return area > kMaxRows ? area * (dims.t > 0 ? 1 : 0) : area * dims.t;
}

Status check_sequence(const Sequence& sequence) {
  const Dims& grid = sequence.grid;
  if (grid.t < 0 || grid.h < 0 || grid.w < 0) {
    return invalid_argument("sequence.grid", "extents of at least 0", dims_text(grid));
  }
  std::int64_t tokens = bounded_volume(grid);
  for (const auto& [name, segments] : {std::pair{"sequence.prefix", &sequence.prefix},
                                       std::pair{"sequence.suffix", &sequence.suffix}}) {
    const auto count = static_cast<std::int64_t>(segments->size());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t length = (*segments)[static_cast<std::size_t>(i)];
      if (length < 0) {
        return invalid_argument(element(name, i, {count}), "at least 0 tokens", length);
      }
      tokens += length;
    }
  }
  if (tokens > kMaxRows) {
    return invalid_argument("sequence", text("at most ", kMaxRows, " tokens"), tokens);
  }
  return {};
}

// Tokens of each tile in the order of its rows, tile after tile.
class TileWriter {
 public:
  TileWriter(Tiling& tiling, std::int64_t tokens) : tiling_(tiling) {
    tokens_.reserve(static_cast<std::size_t>(tokens));
  }

  void segments(const std::vector<std::int32_t>& lengths, std::int64_t volume) {
    for (const std::int32_t length : lengths) {
      for (std::int64_t done = 0; done < length; done += volume) {
        const auto size = static_cast<std::int32_t>(std::min(length - done, volume));
        for (std::int32_t i = 0; i < size; ++i) {
          tokens_.push_back(next_++);
        }
        tiling_.tiles.sizes.push_back(size);
      }
    }
  }

  void cube(Dims first, Dims end) {
    const Dims& grid = tiling_.sequence.grid;
    for (std::int32_t t = first.t; t < end.t; ++t) {
      for (std::int32_t h = first.h; h < end.h; ++h) {
        for (std::int32_t w = first.w; w < end.w; ++w) {
          tokens_.push_back(next_ + (t * grid.h + h) * grid.w + w);
        }
      }
    }
    tiling_.tiles.sizes.push_back((end.t - first.t) * (end.h - first.h) * (end.w - first.w));
  }

  void grid() {
    const auto& [sequence, tile, cubes] = std::tie(tiling_.sequence, tiling_.tile, tiling_.cubes);
    const Dims& all = sequence.grid;
    for (std::int32_t t = 0; t < cubes.t; ++t) {
      for (std::int32_t h = 0; h < cubes.h; ++h) {
        for (std::int32_t w = 0; w < cubes.w; ++w) {
          const Dims first{t * tile.t, h * tile.h, w * tile.w};
          cube(first, {first.t + std::min(tile.t, all.t - first.t),
                       first.h + std::min(tile.h, all.h - first.h),
                       first.w + std::min(tile.w, all.w - first.w)});
        }
      }
    }
    next_ += static_cast<std::int32_t>(all.volume());
  }

  [[nodiscard]] const std::vector<std::int32_t>& tokens() const { return tokens_; }

 private:
  Tiling& tiling_;
  std::vector<std::int32_t> tokens_;
  std::int32_t next_ = 0;
};

// The first row of every tile, and how many rows there are.
Status place(Tiling& tiling, Placement placement, const std::vector<std::int32_t>& tokens) {
  const std::int64_t volume = tiling.tile.volume();
  std::int64_t done = 0;    // tokens
  std::int64_t blocks = 0;  // of 128 rows
  std::int64_t rows = 0;
  for (std::int32_t i = 0; i < tiling.count(); ++i) {
    const std::int32_t size = tiling.tiles.sizes[static_cast<std::size_t>(i)];
    const auto first = static_cast<std::size_t>(done);
    std::int64_t row = 0;
    switch (placement) {
      case Placement::kBlk128:
        row = blocks * kBlockRows;
        break;
      case Placement::kTile:
        row = i * volume;
        break;
      case Placement::kDense:
        row = done;
        break;
      case Placement::kRaster:
        row = tokens[first];
        if (tokens[first + static_cast<std::size_t>(size) - 1] != row + size - 1) {
          return invalid_argument(
              "placement", "another than raster: a tile has tokens apart",
              text("tiles of ", dims_text(tiling.tile), " in ", dims_text(tiling.sequence.grid)));
        }
        break;
    }
    done += size;
    blocks += ceil_div(size, kBlockRows);
    rows = placement == Placement::kBlk128 ? blocks * kBlockRows
           : placement == Placement::kTile ? (i + 1) * volume
                                           : done;
    if (rows > kMaxRows) {
      return invalid_argument("placement", text("rows that end by ", kMaxRows), rows);
    }
    tiling.tiles.offsets.push_back(static_cast<std::int32_t>(row));
  }
  tiling.rows = static_cast<std::int32_t>(rows);
  return {};
}

void number_rows(Tiling& tiling, const std::vector<std::int32_t>& tokens) {
  tiling.row_of_token.resize(tokens.size());
  tiling.token_of_row.assign(static_cast<std::size_t>(tiling.rows), -1);
  std::size_t next = 0;
  for (std::size_t i = 0; i < tiling.tiles.sizes.size(); ++i) {
    for (std::int32_t j = 0; j < tiling.tiles.sizes[i]; ++j, ++next) {
      const std::int32_t row = tiling.tiles.offsets[i] + j;
      tiling.row_of_token[static_cast<std::size_t>(tokens[next])] = row;
      tiling.token_of_row[static_cast<std::size_t>(row)] = tokens[next];
    }
  }
}

std::int64_t chunks(const std::vector<std::int32_t>& lengths, std::int64_t volume) {
  std::int64_t count = 0;
  for (const std::int32_t length : lengths) {
    count += ceil_div<std::int64_t>(length, volume);
  }
  return count;
}

}  // namespace

std::int64_t Sequence::tokens() const {
  std::int64_t count = grid.volume();
  for (const std::vector<std::int32_t>* segments : {&prefix, &suffix}) {
    for (const std::int32_t length : *segments) {
      count += length;
    }
  }
  return count;
}

Result<Tiling> make_tiling(const Sequence& sequence, Dims tile, Placement placement) {
  if (Status status = check_sequence(sequence); !status.ok()) {
    return status;
  }
  if (tile.t < 1 || tile.h < 1 || tile.w < 1 || bounded_volume(tile) > kMaxRows) {
    return invalid_argument(
        "tile", text("extents of at least 1 and a volume of at most ", kMaxRows), dims_text(tile));
  }
  Tiling tiling;
  tiling.sequence = sequence;
  tiling.tile = tile;
  const Dims& grid = sequence.grid;
  if (grid.volume() > 0) {
    const auto across = [](std::int64_t extent, std::int64_t of_tile) {
      return static_cast<std::int32_t>(ceil_div(extent, of_tile));
    };
    tiling.cubes = {across(grid.t, tile.t), across(grid.h, tile.h), across(grid.w, tile.w)};
  }
  const std::int64_t before = chunks(sequence.prefix, tile.volume());
  const std::int64_t after = chunks(sequence.suffix, tile.volume());
  const std::int64_t tiles = before + tiling.cubes.volume() + after;
  if (tiles > kMaxBlocks) {
    return invalid_argument("tile", text("at most ", kMaxBlocks, " tiles in the sequence"), tiles);
  }
  tiling.prefix_tiles = static_cast<std::int32_t>(before);
  tiling.suffix_tiles = static_cast<std::int32_t>(after);
  tiling.tiles.clusters = static_cast<std::int32_t>(tiles);
  TileWriter writer(tiling, sequence.tokens());
  writer.segments(sequence.prefix, tile.volume());
  writer.grid();
  writer.segments(sequence.suffix, tile.volume());
  if (Status status = place(tiling, placement, writer.tokens()); !status.ok()) {
    return status;
  }
  number_rows(tiling, writer.tokens());
  return tiling;
}

Result<Tiling> linear_tiling(std::int32_t tokens, std::int32_t text_tokens, std::int32_t chunk,
                             Placement placement) {
  return make_tiling({{}, {1, 1, tokens}, {text_tokens}}, {1, 1, chunk}, placement);
}

Result<Layout> tile_layout(std::int32_t batch, std::int32_t heads, const Tiling& tiling,
                           const ClusterGraph& graph) {
  return cluster_layout(batch, heads, tiling.tiles, tiling.tiles, graph);
}

}  // namespace kpage
