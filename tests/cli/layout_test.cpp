// kpage layout: what it counts, prints and draws, and the flags that make layouts.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli_fixture.h"

namespace kpage::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LayoutTest : public CliTest {
 protected:
  static nlohmann::json json_of(std::vector<std::string> words) {
    words.insert(words.begin(), "layout");
    words.emplace_back("--json");
    const Outcome outcome = run_cli(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  }
};

// Two blocks of 100 and 28 rows: block 0 attends to both, block 1 to itself.
TEST_F(LayoutTest, ShowsWhatListsSelect) {
  write("layout.safetensors", small_layout());
  const auto json = json_of({"layout.safetensors"});
  EXPECT_EQ(json["histogram"], nlohmann::json::parse(R"({"100": 1, "28": 1})"));
  EXPECT_EQ(json["useful_pairs"], 100 * 128 + 28 * 28);
  EXPECT_DOUBLE_EQ(json["density"].get<double>(), (100.0 * 128 + 28 * 28) / (128 * 128));
  EXPECT_EQ(json["head_density"].size(), 1u);
  EXPECT_EQ(json["selected_block_pairs"], 3);
  EXPECT_DOUBLE_EQ(json["block_density"].get<double>(), 0.75);
  EXPECT_EQ(json["selection"]["share"], nlohmann::json::parse("[[1.0, 1.0], [0.0, 1.0]]"));
  const Outcome page = run_cli({"layout", "layout.safetensors"});
  EXPECT_THAT(page.out, HasSubstr("██\n    ·█\n"));
}

TEST_F(LayoutTest, ShowsEachHeadsDensityAndMap) {
  const std::vector<std::string> sta = {"--layout", "sta",      "--grid", "12x16x16", "--cube",
                                        "2x8x8",    "--window", "1x1x1",  "--window", "6x2x2"};
  // Head 0 attends to its own cube of 24, head 1 to every cube.
  for (const int head : {0, 1}) {
    std::vector<std::string> words = sta;
    words.insert(words.end(), {"--head", std::to_string(head)});
    const auto json = json_of(words);
    EXPECT_EQ(json["heads"], 2);
    EXPECT_DOUBLE_EQ(json["head_density"][0].get<double>(), 1.0 / 24);
    EXPECT_DOUBLE_EQ(json["head_density"][1].get<double>(), 1.0);
    EXPECT_EQ(json["longest_list"], 24);
    EXPECT_EQ(json["cubes"], nlohmann::json::parse("[6, 2, 2]"));
    EXPECT_EQ(json["cube_rows"].size(), 24u);
    EXPECT_EQ(json["selection"]["head"], head);
    double sum = 0;
    for (const auto& row : json["selection"]["share"]) {
      for (const auto& share : row) {
        sum += share.get<double>();
      }
    }
    EXPECT_DOUBLE_EQ(sum, head == 0 ? 24 : 24 * 24);
  }
  std::vector<std::string> words = sta;
  words.insert(words.begin(), "layout");
  const Outcome page = run_cli(words);
  EXPECT_THAT(page.out, HasSubstr("head 0 "));
  EXPECT_THAT(page.out, HasSubstr("4.2 %"));
  EXPECT_THAT(page.out, HasSubstr("layer 0 to 5"));
}

// Blocks that share a cell of the map, more of them in some cells than in others.
TEST_F(LayoutTest, SelectionMapsOfManyBlocksAddUp) {
  const auto json =
      json_of({"--layout", "full", "--grid", "1x1x7003", "--chunk", "100", "--keep", "1"});
  EXPECT_EQ(json["blocks"], 71);
  ASSERT_EQ(json["selection"]["share"].size(), 24u);
  for (const auto& row : json["selection"]["share"]) {
    ASSERT_EQ(row.size(), 48u);
    for (const auto& share : row) {
      EXPECT_DOUBLE_EQ(share.get<double>(), 1.0);
    }
  }
  EXPECT_DOUBLE_EQ(json["density"].get<double>(), 1.0);
}

// Fewer tokens than clusters: most clusters are empty, and lists of those alone would be too.
TEST_F(LayoutTest, EveryQueryOfSvg2HasKeys) {
  EXPECT_DOUBLE_EQ(json_of({"--layout", "svg2", "--grid", "1x1x1"})["density"].get<double>(), 1.0);
  EXPECT_DOUBLE_EQ(json_of({"--layout", "svg2", "--grid", "4x8x8", "--clusters", "1x1"})["density"]
                       .get<double>(),
                   1.0);
  ASSERT_EQ(run_cli({"layout", "--layout", "svg2", "--grid", "1x2x3", "--heads", "7", "--clusters",
                     "40x100", "--keep", "0.01", "--save", "out.safetensors"})
                .code,
            0);
  const SafetensorsFile file("out.safetensors");
  const auto nums = int32_values(file, file.at("q2k_block_nums"));
  const auto sizes = int32_values(file, file.at("q_block_sizes"));
  ASSERT_EQ(nums.size(), sizes.size());
  for (std::size_t i = 0; i < nums.size(); ++i) {
    EXPECT_EQ(nums[i], sizes[i] > 0 ? 1 : 0) << i;
  }
}

// Query blocks of 100 rows with a list of a block without rows, 28 with an empty list, and none.
TEST_F(LayoutTest, CountsQueryBlocksWithoutKeys) {
  write("layout.safetensors", {int_tensor("q2k_block_index", {1, 1, 4, 1}, {2, 0, 0, 0}),
                               int_tensor("q2k_block_nums", {1, 1, 4}, {1, 0, 0, 1}),
                               int_tensor("q_block_sizes", {4}, {100, 28, 0, 64})});
  EXPECT_EQ(json_of({"layout.safetensors"})["q_blocks_without_keys"], 2);
  const Outcome plan = run_cli({"plan", "layout.safetensors", "--json", "--save", "a.plan"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_EQ(plan.json()["q_blocks_without_keys"], 2);
  EXPECT_EQ(plan.json()["q_blocks_empty"], 1);
  EXPECT_THAT(run_cli({"plan", "--load", "a.plan"}).out,
              HasSubstr("1 without rows, 2 with rows but no keys (output 0)"));
  ASSERT_EQ(run_cli({"layout", "layout.safetensors", "--report", "r.html"}).code, 0);
  EXPECT_THAT(contents("r.html"), HasSubstr("query blocks with rows and no key"));
}

TEST_F(LayoutTest, SaysThatListsAreRandom) {
  const auto text_of = [](const std::string& rule) {
    const Outcome outcome =
        run_cli({"layout", "--layout", rule, "--grid", "6x16x16", "--report", "r.html"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  };
  for (const std::string rule : {"vsa", "padded", "full", "ssta", "svg2"}) {
    EXPECT_THAT(text_of(rule), HasSubstr("drawn at random")) << rule;
    EXPECT_THAT(contents("r.html"), HasSubstr("drawn at random (seed 0)")) << rule;
  }
  for (const std::string rule : {"sta", "svg1", "radial"}) {
    EXPECT_THAT(text_of(rule), Not(HasSubstr("random"))) << rule;
    EXPECT_THAT(contents("r.html"), Not(HasSubstr("random"))) << rule;
  }
}

TEST_F(LayoutTest, ReportsHaveTheirPictures) {
  const auto report_of = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"layout", "--report", "report.html"});
    const Outcome outcome = run_cli(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::string html = contents("report.html");
    EXPECT_THAT(html, HasSubstr("</html>"));
    EXPECT_THAT(html, Not(HasSubstr("http")));  // it needs nothing from outside
    EXPECT_THAT(html, Not(HasSubstr("nan")));
    return html;
  };
  // A tile of 384 rows is three blocks, and one cube of the pictures.
  const std::string sta =
      report_of({"--layout", "sta", "--grid", "12x16x24", "--text-after", "20"});
  for (const char* picture : {"How full the blocks are", "How full the cubes", "Density by head",
                              "What one query cube attends to", "Selection map"}) {
    EXPECT_THAT(sta, HasSubstr(picture));
  }
  const std::string svg2 =
      report_of({"--layout", "svg2", "--grid", "4x8x24", "--clusters", "6x9", "--heads", "2"});
  EXPECT_THAT(svg2, HasSubstr("How full the key/value blocks are"));
  EXPECT_THAT(svg2, Not(HasSubstr("cubes")));
}

TEST_F(LayoutTest, PlacementsMoveBlocksAlone) {
  for (const std::string placement : {"blk128", "tile", "dense", "raster"}) {
    const auto json = json_of({"--layout", "vsa", "--grid", "5x8x8", "--cube", "1x8x8", "--keep",
                               "1", "--placement", placement, "--save", "out.safetensors"});
    EXPECT_EQ(json["useful_pairs"], 320 * 320) << placement;
    const SafetensorsFile file("out.safetensors");
    const auto data = file.at("q_block_offsets").data;
    std::int32_t last = 0;
    ASSERT_EQ(data.size(), 5 * sizeof(last));
    std::memcpy(&last, data.data() + 4 * sizeof(last), sizeof(last));
    EXPECT_EQ(last, placement == "blk128" ? 4 * 128 : 4 * 64) << placement;
  }
}

TEST_F(LayoutTest, ModelsAndParametersChangeRules) {
  const auto density = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--grid", "16x32x32", "--layout"});
    return json_of(more)["density"].get<double>();
  };
  EXPECT_GT(density({"svg1"}), density({"svg1", "--model", "hunyuan"}));
  EXPECT_GT(density({"svg1", "--keep", "0.5"}), density({"svg1"}));
  EXPECT_LT(density({"radial"}), density({"radial", "--model", "hunyuan"}));
  EXPECT_LT(density({"radial"}), density({"radial", "--decay", "2"}));
  EXPECT_NE(density({"radial", "--chunk", "64"}), density({"radial"}));
}

}  // namespace
}  // namespace kpage::cli
