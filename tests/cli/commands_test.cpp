#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli_fixture.h"

namespace kpage::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CommandsTest : public CliTest {};

TEST_F(CommandsTest, HelpAndVersionSucceed) {
  EXPECT_EQ(run_cli({"--help"}).code, 0);
  EXPECT_THAT(run_cli({"--help"}).out, HasSubstr("plan"));
  EXPECT_EQ(run_cli({"--version"}).code, 0);
  for (const char* command : {"info", "layout", "plan", "run", "verify", "bench"}) {
    const Outcome help = run_cli({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("--json")) << command;
  }
}

TEST_F(CommandsTest, InfoNamesTheCpuBackend) {
  const Outcome info = run_cli({"info", "--json"});
  ASSERT_EQ(info.code, 0) << info.err;
  EXPECT_EQ(info.json()["backends"][0]["name"], "cpu");
  EXPECT_THAT(run_cli({"info"}).out, HasSubstr("Backends"));
}

TEST_F(CommandsTest, PlanCountsPairs) {
  write("layout.safetensors", small_layout());
  const Outcome plan =
      run_cli({"plan", "layout.safetensors", "--json", "--validate", "--backward"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  const auto json = plan.json();
  EXPECT_EQ(json["blocks"], 2);
  EXPECT_EQ(json["useful_pairs"], 100 * 128 + 28 * 28);
  EXPECT_EQ(json["whole_block_pairs"], 3 * 128 * 128);
  // Block 0 walks 6 + 1 full and 2 tail pages on M128, block 1 one of each on M64.
  EXPECT_EQ(json["paged_pairs"], (9 + 2) * 16 * 128);
  EXPECT_EQ(json["routed_pairs"], 9 * 16 * 128 + 2 * 16 * 64);
  EXPECT_DOUBLE_EQ(json["padding"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(json["partial"].get<double>(), 1.0);
  EXPECT_TRUE(json["valid"].get<bool>());
  EXPECT_GT(json["time_ms"].get<double>(), 0);
}

TEST_F(CommandsTest, SavedPlansLoadAndCompare) {
  write("layout.safetensors", small_layout());
  ASSERT_EQ(run_cli({"plan", "layout.safetensors", "--save", "a.plan", "--backward"}).code, 0);
  ASSERT_EQ(run_cli({"plan", "layout.safetensors", "--backward", "--compare", "a.plan"}).code, 0);
  const Outcome loaded = run_cli({"plan", "--load", "a.plan", "--json"});
  ASSERT_EQ(loaded.code, 0) << loaded.err;
  EXPECT_EQ(loaded.json()["useful_pairs"], 100 * 128 + 28 * 28);
  EXPECT_GT(loaded.json()["owners8"].get<int>() + loaded.json()["owners4"].get<int>(), 0);

  auto other = small_layout();
  other[1] = int_tensor("q2k_block_nums", {1, 1, 2}, {1, 1});
  write("other.safetensors", other);
  const auto before = files();
  const Outcome differs = run_cli(
      {"plan", "other.safetensors", "--backward", "--compare", "a.plan", "--save", "b.plan"});
  EXPECT_EQ(differs.code, 1);
  EXPECT_THAT(differs.err, HasSubstr("the plans differ"));
  EXPECT_EQ(files(), before);
}

TEST_F(CommandsTest, DumpShowsOneHead) {
  write("layout.safetensors", small_layout());
  const Outcome dump = run_cli({"plan", "layout.safetensors", "--dump", "--head", "0"});
  ASSERT_EQ(dump.code, 0) << dump.err;
  EXPECT_GT(dump.out.size(), run_cli({"plan", "layout.safetensors"}).out.size());
}

TEST_F(CommandsTest, LayoutOfVsaHasItsOccupancy) {
  const Outcome layout = run_cli({"layout", "--layout", "vsa", "--grid", "21x45x80", "--json"});
  ASSERT_EQ(layout.code, 0) << layout.err;
  EXPECT_EQ(layout.json()["blocks"], 1440);
  EXPECT_NEAR(layout.json()["padding"].get<double>(), 0.590, 0.0005);
  EXPECT_DOUBLE_EQ(layout.json()["partial"].get<double>(), 1.0);
  const Outcome page = run_cli({"layout", "--layout", "vsa", "--grid", "21x45x80"});
  EXPECT_THAT(page.out, HasSubstr("64 rows"));
  EXPECT_THAT(page.out, HasSubstr("layer 5"));
}

TEST_F(CommandsTest, EveryRuleMakesALayoutThatPlans) {
  for (const std::string rule :
       {"vsa", "padded", "full", "sta", "ssta", "svg1", "svg2", "radial"}) {
    std::vector<std::string> words = {"plan",    "--layout", rule,         "--grid",     "12x16x24",
                                      "--heads", "2",        "--validate", "--backward", "--json"};
    words.insert(words.end(),
                 {rule == "svg2" ? "--clusters" : "--text-after", rule == "svg2" ? "8x12" : "40"});
    const Outcome plan = run_cli(words);
    ASSERT_EQ(plan.code, 0) << rule << ": " << plan.err;
    EXPECT_GT(plan.json()["useful_pairs"].get<std::int64_t>(), 0) << rule;
  }
}

TEST_F(CommandsTest, SavedLayoutsMakeTheSamePlan) {
  ASSERT_EQ(run_cli({"layout", "--layout", "svg2", "--grid", "4x8x24", "--clusters", "6x9",
                     "--heads", "2", "--save", "l.safetensors"})
                .code,
            0);
  ASSERT_EQ(run_cli({"plan", "--layout", "svg2", "--grid", "4x8x24", "--clusters", "6x9", "--heads",
                     "2", "--save", "a.plan"})
                .code,
            0);
  const Outcome same = run_cli({"plan", "l.safetensors", "--compare", "a.plan"});
  EXPECT_EQ(same.code, 0) << same.err;
}

TEST_F(CommandsTest, NamedLayouts) {
  const Outcome layout = run_cli({"layout", "--layout", "padded-5s", "--json"});
  ASSERT_EQ(layout.code, 0) << layout.err;
  EXPECT_EQ(layout.json()["blocks"], 640);
  EXPECT_EQ(layout.json()["heads"], 8);
}

TEST_F(CommandsTest, VerifyPasses) {
  write("layout.safetensors", small_layout());
  for (const char* dtype : {"bf16", "fp16"}) {
    const Outcome verify = run_cli({"verify", "layout.safetensors", "--dtype", dtype, "--json"});
    ASSERT_EQ(verify.code, 0) << verify.err << verify.out;
    EXPECT_TRUE(verify.json()["passed"].get<bool>());
    EXPECT_EQ(verify.json()["backends"].size(), 2u);
    EXPECT_GT(verify.json()["error"].get<double>(), 0);
  }
}

// Lists of two keys, whose limit lets a gradient turn further than long ones may.
TEST_F(CommandsTest, VerifyAsksNoMoreOfTheCosineThanOfTheError) {
  const Outcome verify = run_cli({"verify", "--layout", "vsa", "--grid", "2x4x16", "--cube",
                                  "1x1x1", "--top-k", "2", "--seed", "1"});
  EXPECT_EQ(verify.code, 0) << verify.err << verify.out;
  EXPECT_THAT(verify.out, HasSubstr(", cosine 0.9999"));
}

// Also where no list is random: the tensors are.
TEST_F(CommandsTest, SeedsMoveTheTensors) {
  write("layout.safetensors", small_layout());
  const auto error_of = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--forward-only", "--head-dim", "64", "--json"});
    const Outcome outcome = run_cli(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json()["error"].get<double>();
  };
  const std::vector<std::vector<std::string>> layouts = {
      {"layout.safetensors"},
      {"--layout", "sta", "--grid", "4x8x8", "--cube", "2x8x8", "--window", "1x1x1"}};
  for (const std::string command : {"verify", "bench"}) {
    for (std::vector<std::string> words : layouts) {
      words.insert(words.begin(), command);
      const double unseeded = error_of(words);
      words.insert(words.end(), {"--seed", "3"});
      const double seeded = error_of(words);
      EXPECT_NE(seeded, unseeded) << command;
      EXPECT_EQ(seeded, error_of(words)) << command;
      words.back() = "0";
      EXPECT_EQ(unseeded, error_of(words)) << command;
    }
  }
}

TEST_F(CommandsTest, HelpNamesWhatTheCommandTakes) {
  const std::string of_run = run_cli({"run", "--help"}).out;
  for (const char* other : {"ssta", "svg2", "padded-5s", "--clusters"}) {
    EXPECT_THAT(of_run, Not(HasSubstr(other))) << other;
  }
  for (const char* command : {"layout", "plan", "verify", "bench"}) {
    const std::string help = run_cli({command, "--help"}).out;
    for (const char* text : {"ssta", "svg2, radial", "padded-5s", "--clusters", "0.2 (svg2)",
                             "0.1 (vsa, padded, full, ssta)"}) {
      EXPECT_THAT(help, HasSubstr(text)) << command;
    }
  }
}

TEST_F(CommandsTest, RunChecksAndWritesEverything) {
  write("capture.safetensors", small_capture());
  const Outcome job = run_cli({"run", "capture.safetensors", "--grid", "6x8x10", "--layout", "vsa",
                               "--cube", "4x4x4", "--keep", "0.5", "--backward", "--output",
                               "out.safetensors", "--report", "report.html", "--json"});
  ASSERT_EQ(job.code, 0) << job.err;
  const auto json = job.json();
  EXPECT_EQ(json["blocks"], 12);
  EXPECT_EQ(json["tokens"], 480);
  EXPECT_LT(json["error"].get<double>(), 2.5e-3);
  EXPECT_EQ(json["errors"].size(), 5u);
  EXPECT_GT(json["time_ms"].get<double>(), 0);
  EXPECT_GT(json["density"].get<double>(), 0.4);
  EXPECT_LT(json["density"].get<double>(), 0.6);

  const SafetensorsFile out("out.safetensors");
  EXPECT_EQ(out.at("o").shape, (std::vector<std::int64_t>{1, 2, 480, 64}));
  EXPECT_EQ(out.at("lse").shape, (std::vector<std::int64_t>{1, 2, 480}));
  EXPECT_EQ(out.at("dq").shape, out.at("o").shape);
  EXPECT_EQ(out.at("dk").shape, out.at("o").shape);
  const std::string html = contents("report.html");
  EXPECT_THAT(html, HasSubstr("</html>"));
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, Not(HasSubstr("http")));  // it needs nothing from outside
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST_F(CommandsTest, NoMoreRowsAreComparedThanThereAre) {
  write("capture.safetensors", small_capture(2, 480));
  const Outcome run = run_cli({"run", "capture.safetensors", "--grid", "6x8x10", "--layout", "vsa",
                               "--check-rows", "9000000000000000000", "--json"});
  EXPECT_EQ(run.code, 0) << run.err;
}

TEST_F(CommandsTest, RowsThatLieInBlockOrderAreReadInPlace) {
  write("capture.safetensors", small_capture());
  const auto output_of = [](const std::string& name) {
    const SafetensorsFile file(name);
    const auto data = file.at("o").data;
    return std::vector<std::byte>(data.begin(), data.end());
  };
  // Cubes of one row of the grid are contiguous in raster order.
  const std::vector<std::string> common = {
      "run", "capture.safetensors", "--grid", "6x8x10", "--layout", "vsa", "--keep", "1"};
  auto in_place = common;
  in_place.insert(in_place.end(), {"--cube", "1x8x10", "--output", "a.safetensors"});
  auto moved = common;
  moved.insert(moved.end(), {"--cube", "2x4x5", "--output", "b.safetensors"});
  const Outcome a = run_cli(in_place);
  const Outcome b = run_cli(moved);
  ASSERT_EQ(a.code, 0) << a.err;
  ASSERT_EQ(b.code, 0) << b.err;
  EXPECT_THAT(a.out, HasSubstr("read in place"));
  EXPECT_THAT(b.out, HasSubstr("moved to block order"));
  // Everything attends to everything: both are dense attention, but for the order of sums.
  const auto x = output_of("a.safetensors");
  const auto y = output_of("b.safetensors");
  ASSERT_EQ(x.size(), y.size());
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < x.size(); i += 2) {
    const auto value = [&](const std::vector<std::byte>& data) {
      std::uint16_t half;
      std::memcpy(&half, data.data() + i, 2);
      const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
      float number;
      std::memcpy(&number, &bits, 4);
      return static_cast<double>(number);
    };
    difference += (value(x) - value(y)) * (value(x) - value(y));
    norm += value(x) * value(x);
  }
  EXPECT_LT(std::sqrt(difference / norm), 5e-3);
}

TEST_F(CommandsTest, RunTakesTextAndOtherRules) {
  write("capture.safetensors", small_capture(2, 500));
  for (const std::vector<std::string>& rule :
       {std::vector<std::string>{"vsa", "--text-before", "12", "--text-after", "8"},
        std::vector<std::string>{"padded", "--text-after", "20"},
        std::vector<std::string>{"sta", "--cube", "2x4x5", "--window", "3x1x1", "--window", "1x1x1",
                                 "--text-after", "20"},
        std::vector<std::string>{"full", "--text-after", "20"}}) {
    std::vector<std::string> words = {
        "run", "capture.safetensors", "--grid", "6x8x10", "--backward", "--json", "--layout"};
    words.insert(words.end(), rule.begin(), rule.end());
    const Outcome job = run_cli(words);
    EXPECT_EQ(job.code, 0) << rule.front() << ": " << job.err;
  }
}

TEST_F(CommandsTest, BenchWritesRowsAndComparesThem) {
  write("layout.safetensors", small_layout());
  ASSERT_EQ(run_cli({"bench", "layout.safetensors", "--output", "a.json"}).code, 0);
  auto results = nlohmann::json::parse(contents("a.json"));
  EXPECT_EQ(results["rows"].size(), 3u);
  EXPECT_EQ(results["rows"][0]["pass"], "forward");
  EXPECT_EQ(run_cli({"bench", "--compare", "a.json", "a.json"}).code, 0);

  for (auto& row : results["rows"]) {
    row["time_ms"] = row["time_ms"].get<double>() * 1.2;
  }
  std::ofstream("b.json") << results;
  const Outcome slower = run_cli({"bench", "--compare", "a.json", "b.json"});
  EXPECT_EQ(slower.code, 1);
  EXPECT_THAT(slower.out, HasSubstr("SLOWER"));
  EXPECT_EQ(run_cli({"bench", "--compare", "a.json", "b.json", "--tolerance", "0.3"}).code, 0);
  EXPECT_EQ(run_cli({"bench", "--compare", "b.json", "a.json"}).code, 0);

  results["rows"].erase(0);
  std::ofstream("c.json") << results;
  const Outcome missing = run_cli({"bench", "--compare", "a.json", "c.json", "--tolerance", "1"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.out, HasSubstr("missing"));
}

TEST_F(CommandsTest, TimesAreRelativeToDenseWhereBothFilesHaveIt) {
  const std::string row =
      R"("rows": [{"layout": "a", "pass": "forward", "kernel": "kpage", "time_ms": )";
  std::ofstream("a.json") << R"({"r_dense": {"forward": 600}, )" << row << "1.0}]}";
  std::ofstream("b.json") << R"({"r_dense": {"forward": 500}, )" << row << "1.2}]}";
  EXPECT_EQ(run_cli({"bench", "--compare", "a.json", "b.json"}).code, 0);
}

}  // namespace
}  // namespace kpage::cli
