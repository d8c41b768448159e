// Tilings: sizes, order of tokens, places of tiles.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kpage/geometry.h"

namespace kpage {
namespace {

using testing::ElementsAre;

Tiling tiling_of(const Sequence& sequence, Dims tile, Placement placement = Placement::kBlk128) {
  Result<Tiling> tiling = make_tiling(sequence, tile, placement);
  EXPECT_TRUE(tiling.ok()) << tiling.status().message();
  return tiling.ok() ? std::move(tiling).value() : Tiling{};
}

TEST(Tiling, CropsCubesAndOrdersTheirTokens) {
  const Tiling tiling = tiling_of({{}, {2, 3, 5}, {}}, {2, 2, 4}, Placement::kDense);
  EXPECT_EQ(tiling.cubes, (Dims{1, 2, 2}));
  EXPECT_THAT(tiling.tiles.sizes, ElementsAre(16, 4, 8, 2));
  EXPECT_THAT(tiling.tiles.offsets, ElementsAre(0, 16, 20, 28));
  EXPECT_EQ(tiling.rows, 30);
  EXPECT_THAT(tiling.token_of_row,
              ElementsAre(0, 1, 2, 3, 5, 6, 7, 8, 15, 16, 17, 18, 20, 21, 22, 23,  // 2 x 2 x 4
                          4, 9, 19, 24,                                            // 2 x 2 x 1
                          10, 11, 12, 13, 25, 26, 27, 28,                          // 2 x 1 x 4
                          14, 29));                                                // 2 x 1 x 1
}

TEST(Tiling, SegmentsAreCutIntoChunksOfTheirOwn) {
  const Tiling tiling = tiling_of({{5, 0, 8}, {1, 2, 3}, {9}}, {1, 2, 2}, Placement::kTile);
  EXPECT_EQ(tiling.prefix_tiles, 4);
  EXPECT_EQ(tiling.suffix_tiles, 3);
  EXPECT_THAT(tiling.tiles.sizes, ElementsAre(4, 1, 4, 4, 4, 2, 4, 4, 1));
  EXPECT_THAT(tiling.tiles.offsets, ElementsAre(0, 4, 8, 12, 16, 20, 24, 28, 32));
  EXPECT_EQ(tiling.rows, 36);
  EXPECT_EQ(tiling.sequence.tokens(), 28);
  EXPECT_EQ(tiling.row_of_token[4], 4);    // the fifth token of the first segment
  EXPECT_EQ(tiling.row_of_token[5], 8);    // the first of the third
  EXPECT_EQ(tiling.row_of_token[13], 16);  // the first of the grid
  EXPECT_EQ(tiling.row_of_token[15], 20);
  EXPECT_EQ(tiling.row_of_token[16], 18);
  EXPECT_EQ(tiling.row_of_token[19], 24);  // the first after it
  EXPECT_EQ(tiling.row_of_token[27], 32);
  EXPECT_EQ(tiling.token_of_row[5], -1);
}

// Tiles over 128 rows take their blocks one after the other.
TEST(Tiling, PlacesSplitTiles) {
  const Sequence sequence{{}, {4, 8, 12}, {}};
  const Dims tile{4, 8, 8};
  EXPECT_THAT(tiling_of(sequence, tile).tiles.sizes, ElementsAre(256, 128));
  const Sequence cropped{{}, {3, 8, 12}, {}};
  EXPECT_THAT(tiling_of(cropped, tile).tiles.offsets, ElementsAre(0, 256));
  EXPECT_EQ(tiling_of(cropped, tile).rows, 384);
  EXPECT_THAT(tiling_of(cropped, tile, Placement::kTile).tiles.offsets, ElementsAre(0, 256));
  EXPECT_EQ(tiling_of(cropped, tile, Placement::kTile).rows, 512);
  EXPECT_THAT(tiling_of(cropped, tile, Placement::kDense).tiles.offsets, ElementsAre(0, 192));
  const Result<Layout> layout =
      tile_layout(1, 1, tiling_of(cropped, tile), ClusterGraph{{0, 1, 3}, {1, 0, 1}});
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_THAT(layout.value().q_sizes, ElementsAre(128, 64, 96));
  EXPECT_THAT(layout.value().q_offsets, ElementsAre(0, 128, 256));
  EXPECT_THAT(layout.value().q2k_block_nums, ElementsAre(1, 1, 3));
  EXPECT_TRUE(validate(layout.value().view()).ok());
}

TEST(Tiling, LeavesTokensWhereTheyAre) {
  const Tiling rows = tiling_of({{3}, {4, 5, 6}, {7}}, {1, 3, 6}, Placement::kRaster);
  EXPECT_EQ(rows.rows, 3 + 120 + 7);
  for (std::size_t token = 0; token < rows.row_of_token.size(); ++token) {
    EXPECT_EQ(rows.row_of_token[token], static_cast<std::int32_t>(token));
  }
  EXPECT_THAT(rows.tiles.sizes, ElementsAre(3, 18, 12, 18, 12, 18, 12, 18, 12, 7));
  EXPECT_EQ(make_tiling({{}, {4, 5, 6}, {}}, {1, 3, 5}, Placement::kRaster).status().message(),
            "placement: expected another than raster: a tile has tokens apart, got tiles of 1x3x5 "
            "in 4x5x6");
}

TEST(Tiling, ReachesTheLastRow) {
  EXPECT_EQ(make_tiling({{}, {1, 1, kMaxRows}, {1}}, {1, 1, kMaxRows}).status().message(),
            "sequence: expected at most 2147483392 tokens, got 2147483393");
  EXPECT_EQ(tiling_of({{}, {1, 1, 3}, {}}, {1, 1, kMaxRows}).cubes, (Dims{1, 1, 1}));
}

TEST(Tiling, OfNothing) {
  const Tiling tiling = tiling_of({}, {1, 1, 1});
  EXPECT_EQ(tiling.count(), 0);
  EXPECT_EQ(tiling.rows, 0);
  const Result<Layout> layout = tile_layout(1, 1, tiling, ClusterGraph{{0}, {}});
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  EXPECT_TRUE(validate(layout.value().view()).ok());
  EXPECT_EQ(tiling_of({{0}, {0, 9, 9}, {2}}, {2, 2, 2}).count(), 1);
}

class TilingPermutation : public testing::TestWithParam<Placement> {};

TEST_P(TilingPermutation, GoesThereAndBack) {
  const std::vector<Dims> grids = {{1, 1, 1}, {5, 7, 9}, {21, 30, 52}, {3, 16, 17}};
  const std::vector<Dims> tiles = {{1, 1, 1}, {4, 4, 4}, {2, 8, 8}, {6, 8, 8}, {30, 30, 60}};
  for (const Dims& grid : grids) {
    for (const Dims& tile : tiles) {
      const Tiling tiling = tiling_of({{17}, grid, {129, 3}}, tile, GetParam());
      const auto tokens = tiling.sequence.tokens();
      ASSERT_EQ(static_cast<std::int64_t>(tiling.row_of_token.size()), tokens);
      ASSERT_EQ(static_cast<std::int32_t>(tiling.token_of_row.size()), tiling.rows);
      for (std::size_t token = 0; token < tiling.row_of_token.size(); ++token) {
        const auto row = static_cast<std::size_t>(tiling.row_of_token[token]);
        ASSERT_EQ(tiling.token_of_row[row], static_cast<std::int32_t>(token));
      }
      EXPECT_EQ(std::count(tiling.token_of_row.begin(), tiling.token_of_row.end(), -1),
                tiling.rows - tokens);
      EXPECT_EQ(
          std::accumulate(tiling.tiles.sizes.begin(), tiling.tiles.sizes.end(), std::int64_t{0}),
          tokens);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Placements, TilingPermutation,
                         testing::Values(Placement::kBlk128, Placement::kTile, Placement::kDense));

TEST(Tiling, MalformedInputs) {
  struct Case {
    Sequence sequence;
    Dims tile;
    const char* message;
  };
  const std::vector<Case> table = {
      {{{}, {1, -1, 1}, {}},
       {1, 1, 1},
       "sequence.grid: expected extents of at least 0, got 1x-1x1"},
      {{{4, -4}, {}, {}}, {1, 1, 1}, "sequence.prefix[1]: expected at least 0 tokens, got -4"},
      {{{}, {}, {-9}}, {1, 1, 1}, "sequence.suffix[0]: expected at least 0 tokens, got -9"},
      {{{}, {1 << 30, 1, 1}, {1 << 30}},
       {128, 1, 1},
       "sequence: expected at most 2147483392 tokens, got 2147483648"},
      {{{}, {0x7fffffff, 0x7fffffff, 0x7fffffff}, {}},
       {128, 1, 1},
       "sequence: expected at most 2147483392 tokens, got 4611686014132420609"},
      {{{}, {4, 4, 4}, {}},
       {4, 0, 4},
       "tile: expected extents of at least 1 and a volume of at most 2147483392, got 4x0x4"},
      {{{}, {1 << 10, 1 << 10, 1 << 5}, {}},
       {1, 1, 1},
       "tile: expected at most 16777216 tiles in the sequence, got 33554432"},
  };
  for (const Case& malformed : table) {
    EXPECT_EQ(make_tiling(malformed.sequence, malformed.tile).status().message(),
              malformed.message);
  }
  EXPECT_EQ(make_tiling({{}, {1, 1, 1 << 10}, {}}, {1 << 11, 1 << 10, 1}, Placement::kTile)
                .status()
                .message(),
            "placement: expected rows that end by 2147483392, got 2147483648");
}

// --- Occupancies of the systems' grids, and of the paper's padded layouts -----------------------

struct Count {
  std::int32_t rows;
  std::int64_t tiles;
};

struct SystemGrid {
  const char* name;
  Dims grid;
  Dims tile;
  std::vector<Count> histogram;  // tiles by valid tokens
  std::int64_t blocks;           // of 128 rows, none empty
};

// At 480p, 720p and their latent frame counts; the paper's padded layouts give block counts only.
const std::vector<SystemGrid>& system_grids() {
  static const std::vector<SystemGrid> kGrids = {
      {"vsa_444_480p", {21, 30, 52}, {4, 4, 4}, {{64, 455}, {32, 65}, {16, 91}, {8, 13}}, 624},
      {"vsa_448_480p",
       {21, 30, 52},
       {4, 4, 8},
       {{128, 210}, {64, 65}, {32, 47}, {16, 13}, {8, 1}},
       336},
      {"vsa_288_480p",
       {21, 30, 52},
       {2, 8, 8},
       {{128, 180}, {96, 60}, {64, 48}, {48, 16}, {32, 3}, {24, 1}},
       308},
      {"vsa_484_480p", {21, 30, 52}, {4, 8, 4}, {{128, 195}, {96, 65}, {32, 39}, {24, 13}}, 312},
      {"vsa_844_480p", {21, 30, 52}, {8, 4, 4}, {{128, 182}, {80, 91}, {64, 26}, {40, 13}}, 312},
      {"vsa_488_480p",
       {21, 30, 52},
       {4, 8, 8},
       {{256, 90}, {192, 30}, {128, 15}, {96, 5}, {64, 18}, {48, 6}, {32, 3}, {24, 1}},
       288},
      {"vsa_444_720p", {21, 45, 80}, {4, 4, 4}, {{64, 1100}, {16, 320}, {4, 20}}, 1440},
      {"vsa_448_720p", {21, 45, 80}, {4, 4, 8}, {{128, 550}, {32, 160}, {8, 10}}, 720},
      {"vsa_288_720p", {21, 45, 80}, {2, 8, 8}, {{128, 500}, {80, 100}, {64, 50}, {40, 10}}, 660},
      {"vsa_484_720p", {21, 45, 80}, {4, 8, 4}, {{128, 500}, {80, 100}, {32, 100}, {20, 20}}, 720},
      {"vsa_844_720p", {21, 45, 80}, {8, 4, 4}, {{128, 440}, {80, 220}, {32, 40}, {20, 20}}, 720},
      {"vsa_488_720p", {21, 45, 80}, {4, 8, 8}, {{256, 250}, {160, 50}, {64, 50}, {40, 10}}, 660},
      {"ssta_720p_121f", {31, 45, 80}, {6, 8, 8}, {{384, 250}, {240, 50}, {64, 50}, {40, 10}}, 910},
      {"ssta_720p_241f",
       {61, 45, 80},
       {6, 8, 8},
       {{384, 500}, {240, 100}, {64, 50}, {40, 10}},
       1760},
      {"ssta_480p_121f",
       {31, 30, 53},
       {6, 8, 8},
       {{384, 90}, {288, 30}, {240, 15}, {180, 5}, {64, 18}, {48, 6}, {40, 3}, {30, 1}},
       428},
      {"ssta_480p_241f",
       {61, 30, 53},
       {6, 8, 8},
       {{384, 180}, {288, 60}, {240, 30}, {180, 10}, {64, 18}, {48, 6}, {40, 3}, {30, 1}},
       828},
      {"sta_30x45x80", {30, 45, 80}, {6, 8, 8}, {{384, 250}, {240, 50}}, 850},
      {"sta_30x48x80", {30, 48, 80}, {6, 8, 8}, {{384, 300}}, 900},
      {"padded_5s", {31, 34, 60}, {2, 8, 8}, {}, 640},
      {"padded_10s", {61, 34, 60}, {2, 8, 8}, {}, 1240},
      {"padded_15s", {91, 34, 60}, {2, 8, 8}, {}, 1840},
      {"padded_30s", {181, 34, 60}, {2, 8, 8}, {}, 3640},
  };
  return kGrids;
}

Layout layout_of(const Tiling& tiling) {
  ClusterGraph none;
  none.row_offsets.assign(static_cast<std::size_t>(tiling.count()) + 1, 0);
  return std::move(tile_layout(1, 1, tiling, none)).value();
}

class GridOccupancy : public testing::TestWithParam<SystemGrid> {};

TEST_P(GridOccupancy, IsThatOfTheSystem) {
  const SystemGrid& of = GetParam();
  const Tiling tiling = tiling_of({{}, of.grid, {}}, of.tile);
  for (const Count& count : of.histogram) {
    EXPECT_EQ(std::count(tiling.tiles.sizes.begin(), tiling.tiles.sizes.end(), count.rows),
              count.tiles)
        << count.rows;
  }
  if (!of.histogram.empty()) {
    const auto tiles = std::accumulate(of.histogram.begin(), of.histogram.end(), std::int64_t{0},
                                       [](std::int64_t sum, Count c) { return sum + c.tiles; });
    EXPECT_EQ(tiling.count(), tiles);
  }
  const Occupancy occupancy = q_occupancy(layout_of(tiling)).value();
  EXPECT_EQ(occupancy.blocks, of.blocks);
  EXPECT_EQ(occupancy.empty, 0);
  EXPECT_EQ(occupancy.rows, of.grid.volume());
}

INSTANTIATE_TEST_SUITE_P(Systems, GridOccupancy, testing::ValuesIn(system_grids()),
                         [](const auto& test) { return test.param.name; });

Occupancy occupancy_of(Dims grid, Dims tile) {
  return q_occupancy(layout_of(tiling_of({{}, grid, {}}, tile))).value();
}

// In percent with one decimal, as the paper gives them.
double percent(double fraction) { return std::round(1000.0 * fraction) / 10.0; }

TEST(GridOccupancy, PaddingOfThePaper) {
  EXPECT_EQ(percent(occupancy_of({31, 34, 60}, {2, 8, 8}).padding()), 22.8);
  EXPECT_EQ(percent(occupancy_of({61, 34, 60}, {2, 8, 8}).padding()), 21.6);
  EXPECT_EQ(percent(occupancy_of({91, 34, 60}, {2, 8, 8}).padding()), 21.2);
  EXPECT_EQ(percent(occupancy_of({181, 34, 60}, {2, 8, 8}).padding()), 20.8);
  for (const std::int32_t frames : {31, 61, 91, 181}) {
    EXPECT_NEAR(occupancy_of({frames, 34, 60}, {2, 8, 8}).partial_fraction(), 1.0 / 3.0, 0.05);
  }
  EXPECT_EQ(percent(occupancy_of({30, 45, 80}, {6, 8, 8}).padding()), 0.7);
  EXPECT_EQ(percent(occupancy_of({30, 45, 80}, {6, 8, 8}).partial_fraction()), 5.9);
  for (const Dims grid : {Dims{21, 30, 52}, Dims{21, 45, 80}}) {
    EXPECT_EQ(percent(occupancy_of(grid, {4, 4, 4}).padding()), 59.0);
    EXPECT_EQ(occupancy_of(grid, {4, 4, 4}).partial_fraction(), 1.0);
  }
}

// Tokens / (128 x blocks).
TEST(GridOccupancy, FillOfSsta) {
  EXPECT_NEAR(1.0 - occupancy_of({31, 45, 80}, {6, 8, 8}).padding(), 0.958, 5e-4);
  EXPECT_NEAR(1.0 - occupancy_of({61, 45, 80}, {6, 8, 8}).padding(), 0.975, 5e-4);
  EXPECT_NEAR(1.0 - occupancy_of({31, 30, 53}, {6, 8, 8}).padding(), 0.900, 5e-4);
  EXPECT_NEAR(1.0 - occupancy_of({61, 30, 53}, {6, 8, 8}).padding(), 0.915, 5e-4);
}

TEST(Occupancy, CountsSizes) {
  const std::vector<std::int32_t> sizes = {0, 1, 128, 128, 127, 0, 64};
  const Occupancy counted = occupancy(sizes).value();
  EXPECT_EQ(counted.blocks, 7);
  EXPECT_EQ(counted.empty, 2);
  EXPECT_EQ(counted.partial, 3);
  EXPECT_EQ(counted.rows, 448);
  EXPECT_EQ(counted.histogram[128], 2);
  EXPECT_DOUBLE_EQ(counted.padding(), 1.0 - 448.0 / 640.0);
  EXPECT_DOUBLE_EQ(counted.partial_fraction(), 0.6);
  EXPECT_EQ(occupancy({}).value().padding(), 0.0);
  EXPECT_EQ(occupancy({}).value().partial_fraction(), 0.0);
  EXPECT_EQ(occupancy(std::vector<std::int32_t>{1, 129}).status().message(),
            "sizes[1]: expected valid rows in [0, 128], got 129");
}

}  // namespace
}  // namespace kpage
