// Wrong flags, files and tensors: each has a message of its own and exit code 2, and nothing is
// written.
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "cli_fixture.h"
#include "output_file.h"

namespace kpage::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Words = std::vector<std::string>;
using Tensors = std::vector<TestTensor>;

struct Case {
  std::string name;
  Words words;
  std::string message;
  // The files good.safetensors (a layout) and capture.safetensors as this leaves them.
  std::function<void(Tensors& layout, Tensors& capture)> damage = [](Tensors&, Tensors&) {};
};

void PrintTo(const Case& bad, std::ostream* out) { *out << bad.name; }

class MalformedInput : public CliTest, public ::testing::WithParamInterface<Case> {};

TEST_P(MalformedInput, IsAnErrorThatSaysWhy) {
  const Case& bad = GetParam();
  Tensors layout = small_layout();
  Tensors capture = small_capture();
  bad.damage(layout, capture);
  write("layout.safetensors", layout);
  write("capture.safetensors", capture);
  std::ofstream("text.txt") << "not a tensor file at all, but long enough";
  std::ofstream("empty.json") << "{}";
  std::ofstream("rows.json")
      << R"({"rows": [{"layout": "a", "pass": "forward", "kernel": "kpage"}]})";
  ASSERT_EQ(::mkfifo("pipe", 0600), 0);
  const auto before = files();
  const auto inputs = [] { return contents("layout.safetensors") + contents("text.txt"); };
  const std::string inputs_before = inputs();
  const Outcome outcome = run_cli(bad.words);
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(bad.message));
  EXPECT_THAT(outcome.err, StartsWith("kpage"));
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(files(), before);
  EXPECT_EQ(inputs(), inputs_before);
  EXPECT_TRUE(std::filesystem::is_fifo("pipe"));
}

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
Words compare_of(const Words& more) {
  return joined({"bench", "--compare", "rows.json", "rows.json"}, more);
}
Words plan_of(const Words& more) {
  return joined({"plan", "layout.safetensors", "--save", "plan.bin"}, more);
}
Words layout_of(const Words& more) { return joined({"layout", "--save", "out.safetensors"}, more); }
Words run_of(const Words& more) {
  return joined(
      {"run", "capture.safetensors", "--output", "out.safetensors", "--report", "report.html"},
      more);
}
Words good_run(const Words& more = {}) {
  return joined(run_of({"--grid", "6x8x10", "--layout", "vsa", "--keep", "0.5"}), more);
}

TestTensor& find(Tensors& tensors, const std::string& name) {
  for (TestTensor& tensor : tensors) {
    if (tensor.name == name) {
      return tensor;
    }
  }
  throw std::out_of_range(name);
}
std::function<void(Tensors&, Tensors&)> replace_in_layout(TestTensor with) {
  return [with](Tensors& layout, Tensors&) { find(layout, with.name) = with; };
}
std::function<void(Tensors&, Tensors&)> add_to_layout(TestTensor tensor) {
  return [tensor](Tensors& layout, Tensors&) { layout.push_back(tensor); };
}
std::function<void(Tensors&, Tensors&)> replace_in_capture(TestTensor with) {
  return [with](Tensors&, Tensors& capture) { find(capture, with.name) = with; };
}
// One value of the BF16 tensor [1, 2, 480, 64] becomes these bits.
std::function<void(Tensors&, Tensors&)> spoil(const std::string& name, std::int64_t head,
                                              std::int64_t row, std::uint16_t bits) {
  return [=](Tensors&, Tensors& capture) {
    if (name == "d_o") {
      capture.push_back(capture.front());
      capture.back().name = name;
    }
    std::memcpy(find(capture, name).data.data() + 2 * ((head * 480 + row) * 64 + 5), &bits, 2);
  };
}
Words run_of_rule(const std::string& rule, const Words& more = {}) {
  return joined(run_of({"--grid", "6x8x10", "--layout", rule}), more);
}
std::vector<std::uint16_t> halves(std::size_t count, std::uint16_t bits = 0x3f80) {
  return std::vector<std::uint16_t>(count, bits);
}

const std::vector<Case> kFlags = {
    {"NoCommand", {}, "subcommand is required"},
    {"UnknownCommand", {"fly"}, "expected one of info, layout, plan, run, verify, bench, got fly"},
    {"UnknownFlag", plan_of({"--colour"}), "--colour"},
    {"NoLayout", {"plan", "--save", "plan.bin"}, "expected a layout"},
    {"LayoutAndLoad", plan_of({"--load", "text.txt"}), "expected one of a layout and --load"},
    {"TensorsAndRule", plan_of({"--layout", "vsa", "--grid", "2x4x4"}), "--layout, got both"},
    {"LoadOfText", {"plan", "--load", "text.txt", "--save", "plan.bin"}, "--load text.txt"},
    {"LoadOfNothing", {"plan", "--load", "absent"}, "--load absent"},
    {"CompareWithNothing", plan_of({"--compare", "absent"}), "--compare absent"},
    {"HeadTooHigh", plan_of({"--dump", "--head", "1"}),
     "--head: expected a number below batch x heads = 1"},
    {"HeadWithoutDump", plan_of({"--head", "0"}), "--head: expected with --dump"},
    {"HeadNegative", plan_of({"--head", "-1"}), "--head"},
    {"SaveInNoFolder",
     {"plan", "layout.safetensors", "--save", "absent/plan.bin"},
     "--save: cannot write absent/plan.bin"},
    {"SaveIsFolder", {"plan", "layout.safetensors", "--save", "."}, "--save: expected a file name"},
    {"UnknownRule", layout_of({"--layout", "cubist", "--grid", "2x4x4"}),
     "--layout: expected one of"},
    {"NoGrid", layout_of({"--layout", "vsa"}), "--grid: expected with --layout"},
    {"GridOfTwo", layout_of({"--layout", "vsa", "--grid", "21x45"}),
     "--grid: expected time x height"},
    {"GridOfZero", layout_of({"--layout", "vsa", "--grid", "21x0x80"}), "got 21x0x80"},
    {"GridOfWords", layout_of({"--layout", "vsa", "--grid", "axbxc"}), "got axbxc"},
    {"GridTooLarge", layout_of({"--layout", "vsa", "--grid", "9999x9999x9999"}),
     "--grid: expected at most"},
    // A volume of 2^64, which 64 bits take for none.
    {"GridOverflows", layout_of({"--layout", "vsa", "--grid", "2097152x2097152x4194304"}),
     "--grid: expected at most 2147483392 tokens, got 2097152x2097152x4194304"},
    {"GridOfSvg2TooLarge", layout_of({"--layout", "svg2", "--grid", "2000x2000x2000"}),
     "--grid: expected at most 2147483392 tokens, got 2000x2000x2000"},
    {"GridTooLargeWithText",
     layout_of({"--layout", "full", "--grid", "1x1x2147483000", "--text-after", "2147483000"}),
     "got 1x1x2147483000 with text"},
    {"CubesTooMany", layout_of({"--layout", "vsa", "--grid", "999x999x999", "--cube", "1x1x1"}),
     "--layout vsa: expected at most 16777216 tiles, got 999x999x999"},
    {"RadialTooLong", layout_of({"--layout", "radial", "--grid", "1x1x4194304"}),
     "--layout radial: expected tokens x (frames + blocks) up to 17179869184, got 4194304 x (1 + "
     "32768)"},
    {"RadialOfFrames", layout_of({"--layout", "radial", "--grid", "1000000x1x1"}),
     "got 1000000 x (1000000 + 7813)"},
    {"TextMakesListsTooLong",
     layout_of({"--layout", "vsa", "--grid", "8x8x8", "--cube", "1x1x1", "--text-after", "100000"}),
     "--layout vsa: expected at most 4,294,967,296 entries, got lists of 1 heads x 100,512 query "
     "blocks x up to 100,512 key blocks"},
    {"HeadsMakeListsTooMany",
     layout_of({"--layout", "sta", "--grid", "600x100x100", "--cube", "1x1x1", "--heads", "1024"}),
     "got lists of 1,024 heads x 6,000,000 query blocks x up to 27 key blocks"},
    {"ClustersTooMany",
     layout_of({"--layout", "svg2", "--grid", "4x8x8", "--clusters", "2000000000x2000000000"}),
     "--layout svg2: expected at most 4,294,967,296 entries"},
    {"RunOfOtherTokensMakesNoTiling",
     run_of({"--grid", "6x8x10", "--layout", "radial", "--text-after", "2000000000"}),
     "--grid: expected as many tokens as tensor q"},
    {"CubeTrailing", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--cube", "4x4x4x"}),
     "--cube: expected"},
    {"CubeOfRadial", layout_of({"--layout", "radial", "--grid", "4x8x8", "--cube", "4x4x4"}),
     "--cube: radial does not take it; it takes --grid, --chunk"},
    {"KeepOfSta", layout_of({"--layout", "sta", "--grid", "12x16x16", "--keep", "0.5"}),
     "--keep: sta does not take it"},
    {"WindowOfVsa", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--window", "3x3x3"}),
     "--window: vsa does not take it"},
    {"TextOfSvg2", layout_of({"--layout", "svg2", "--grid", "4x8x8", "--text-after", "9"}),
     "--text-after: svg2 does not take it"},
    {"TopKOfSvg1", layout_of({"--layout", "svg1", "--grid", "4x8x16", "--top-k", "2"}),
     "--top-k: svg1 does not take it"},
    {"ModelOfVsa", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--model", "wan"}),
     "--model: vsa does not take it"},
    {"ModelUnknown", layout_of({"--layout", "radial", "--grid", "4x8x16", "--model", "x"}),
     "--model: expected wan or hunyuan, got x"},
    {"ChunkTooLong", layout_of({"--layout", "full", "--grid", "4x8x16", "--chunk", "129"}),
     "--chunk: expected 1 to 128 tokens, got 129"},
    {"WindowsOfNoHead",
     layout_of({"--layout", "sta", "--grid", "12x16x16", "--window", "1x1x1", "--window", "3x1x1",
                "--heads", "1"}),
     "--window: expected at most one for each of 1 heads, got 2"},
    {"SeedOfSta", layout_of({"--layout", "sta", "--grid", "12x16x16", "--seed", "1"}),
     "--seed: sta draws nothing at random"},
    {"SeedOfNamedSta", layout_of({"--layout", "sta-30x45x80", "--seed", "1"}),
     "--seed: sta-30x45x80 draws nothing at random"},
    {"PlacementOfNamed", layout_of({"--layout", "padded-5s", "--placement", "dense"}),
     "expected it alone"},
    {"PlacementUnknown", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--placement", "here"}),
     "--placement: expected blk128, tile, dense or raster, got here"},
    {"PlacementApart", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--placement", "raster"}),
     "tokens apart"},
    {"PlacementOfSvg2", layout_of({"--layout", "svg2", "--grid", "4x8x8", "--placement", "dense"}),
     "--placement: clusters of svg2 lie end to end"},
    {"HeadsOfFile", layout_of({"layout.safetensors", "--heads", "2"}),
     "--heads: goes with --layout; with layout.safetensors it does nothing"},
    {"RunNamedLayout", run_of({"--grid", "6x8x10", "--layout", "padded-5s"}),
     "--layout: expected one of vsa, padded, full, sta, svg1, radial, got padded-5s"},
    {"SeedOfFile", plan_of({"--seed", "2"}), "--seed: goes with --layout"},
    {"GridOfFile", layout_of({"layout.safetensors", "--grid", "4x8x8"}), "--grid: goes with"},
    {"HeadsOfLoad", {"plan", "--load", "text.txt", "--heads", "2"}, "--heads: goes with --layout"},
    {"HeadsOfCompare",
     {"bench", "--compare", "text.txt", "rows.json", "--heads", "2"},
     "--heads: expected without --compare"},
    {"LayoutHeadTooHigh", layout_of({"layout.safetensors", "--head", "1"}),
     "--head: expected a number below batch x heads = 1, got 1"},
    {"LayoutReportInNoFolder", layout_of({"layout.safetensors", "--report", "absent/a.html"}),
     "--report"},
    {"RunModelOfVsa", good_run({"--model", "wan"}), "--model: vsa does not take it"},
    {"KeepZero", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--keep", "0"}),
     "--keep: expected a share above 0"},
    {"KeepOverOne", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--keep", "1.5"}), "1.5"},
    {"KeepZeroOfSvg1", layout_of({"--layout", "svg1", "--grid", "4x8x16", "--keep", "0"}),
     "--keep: expected a share above 0"},
    {"KeepZeroOfSvg2", layout_of({"--layout", "svg2", "--grid", "4x8x8", "--keep", "0"}),
     "--keep: expected a share above 0"},
    {"KeepIsWord", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--keep", "most"}), "--keep"},
    {"KeepAndTopK",
     layout_of({"--layout", "vsa", "--grid", "4x8x8", "--keep", "0.5", "--top-k", "2"}),
     "--top-k: expected --keep or --top-k, got both"},
    {"TopKTooHigh", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--top-k", "5"}),
     "--top-k: expected 1 to 4 tiles, got 5"},
    {"HeadsZero", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--heads", "0"}),
     "--heads: expected a number from 1"},
    {"HeadsWithoutEnd", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--heads", "2000000000"}),
     "--heads: expected a number from 1 to 1024, got 2000000000"},
    {"WindowOfTwo", layout_of({"--layout", "sta", "--grid", "12x16x16", "--window", "3x3"}),
     "--window: expected"},
    {"ClustersOfOne", layout_of({"--layout", "svg2", "--grid", "4x8x8", "--clusters", "30"}),
     "--clusters: expected"},
    {"NamedWithGrid", layout_of({"--layout", "full-512", "--grid", "4x8x8"}), "expected it alone"},
    {"TextNegative", layout_of({"--layout", "vsa", "--grid", "4x8x8", "--text-before", "-1"}),
     "--text-before"},
    {"VerifyDtype", {"verify", "layout.safetensors", "--dtype", "fp32"}, "--dtype: expected"},
    {"VerifyHeadDim",
     {"verify", "layout.safetensors", "--head-dim", "100"},
     "--head-dim: expected"},
    {"VerifyRows", {"verify", "layout.safetensors", "--rows", "0"}, "--rows: expected"},
    {"VerifyDevice",
     {"verify", "layout.safetensors", "--device", "tpu"},
     "--device: expected cpu or cuda"},
    {"BenchRepeats", {"bench", "layout.safetensors", "--repeats", "0"}, "--repeats: expected"},
    {"BenchThreads", {"bench", "absent", "--threads", "-1"}, "--threads: expected a number from 0"},
    {"BenchCompareOne", {"bench", "--compare", "rows.json"}, "--compare"},
    {"BenchCompareAbsent",
     {"bench", "--compare", "absent.json", "rows.json"},
     "cannot read absent.json"},
    {"BenchCompareText", {"bench", "--compare", "text.txt", "rows.json"}, "text.txt is not JSON"},
    {"BenchCompareNoRows",
     {"bench", "--compare", "empty.json", "rows.json"},
     "expected an object with an array rows"},
    {"BenchCompareNoTime", compare_of({}), "row 0: expected a time_ms"},
    {"BenchCompareAndLayout",
     {"bench", "layout.safetensors", "--compare", "rows.json", "rows.json"},
     "tensors: expected without --compare"},
    {"BenchCompareAndRule", compare_of({"--layout", "vsa"}),
     "--layout: expected without --compare"},
    {"BenchCompareWithDtype", compare_of({"--dtype", "bf16"}),
     "--dtype: expected without --compare"},
    {"BenchCompareWithRepeats",
     {"bench", "--repeats", "3", "--compare", "rows.json", "rows.json"},
     "--repeats: expected without --compare"},
    {"BenchCompareWithDevice", compare_of({"--device", "cpu"}),
     "--device: expected without --compare"},
    {"BenchCompareWithThreads", compare_of({"--threads", "0"}),
     "--threads: expected without --compare"},
    {"BenchCompareWithCommit", compare_of({"--commit", "a"}),
     "--commit: expected without --compare"},
    {"BenchCompareForwardOnly", compare_of({"--forward-only"}),
     "--forward-only: expected without --compare"},
    {"BenchToleranceWithoutCompare",
     {"bench", "layout.safetensors", "--tolerance", "0.05"},
     "--tolerance: expected with --compare"},
    {"BenchToleranceNegative", compare_of({"--tolerance", "-1"}),
     "--tolerance: expected a share from 0"},
    {"RunNoRule", run_of({"--grid", "6x8x10"}), "--layout: expected the rule"},
    {"RunSvg2", run_of({"--grid", "6x8x10", "--layout", "svg2"}),
     "--layout: expected one of vsa, padded, full, sta, svg1, radial, got svg2"},
    {"RunWrongGrid", run_of({"--grid", "6x8x11", "--layout", "vsa"}),
     "--grid: expected as many tokens as tensor q"},
    {"RunText", good_run({"--text-after", "7"}), "got 487 with text"},
    {"RunNoCapture",
     {"run", "absent.safetensors", "--grid", "6x8x10", "--layout", "vsa"},
     "absent.safetensors: cannot read"},
    {"RunTextFile",
     {"run", "text.txt", "--grid", "6x8x10", "--layout", "vsa"},
     "not a safetensors file"},
    {"RunCheckRows", good_run({"--check-rows", "-1"}), "--check-rows: expected"},
    {"RunThreads", good_run({"--threads", "-2"}), "--threads: expected"},
    {"RunNegativeSeed", good_run({"--seed", "-1"}), "--seed: expected an integer from 0"},
    {"RunWideSeed", good_run({"--seed", "18446744073709551616"}),
     "--seed: expected an integer from 0"},
    {"LayoutSeed",
     {"layout", "--layout", "padded-5s", "--seed", "1.5"},
     "--seed: expected an integer from 0"},
    {"RunDeterministicForward", good_run({"--deterministic"}), "--deterministic"},
    {"RunSameFileTwice",
     {"run", "capture.safetensors", "--grid", "6x8x10", "--layout", "vsa", "--output", "x",
      "--report", "x"},
     "--report: x is written by --output already"},
    {"RunSameFileByOtherNames",
     {"run", "capture.safetensors", "--grid", "6x8x10", "--layout", "vsa", "--output", "x",
      "--report", "./x"},
     "--report: ./x is written by --output already"},
    {"LayoutSameFileByOtherNames",
     {"layout", "layout.safetensors", "--save", "x", "--report", ".//x"},
     "--report: .//x is written by --save already"},
    {"LayoutReportOntoItsInput",
     {"layout", "layout.safetensors", "--report", "layout.safetensors"},
     "--report: expected another file than the input, got layout.safetensors"},
    {"LayoutSaveOntoItsInput",
     {"layout", "layout.safetensors", "--save", "./layout.safetensors"},
     "--save: expected another file than the input, got ./layout.safetensors"},
    {"PlanOntoItsLayout",
     {"plan", "layout.safetensors", "--save", "layout.safetensors"},
     "--save: expected another file than the input"},
    {"PlanOntoTheLoaded",
     {"plan", "--load", "text.txt", "--save", "text.txt"},
     "--save: expected another file than the input"},
    {"PlanOntoTheCompared",
     {"plan", "layout.safetensors", "--compare", "text.txt", "--save", "text.txt"},
     "--save: expected another file than the input"},
    {"BenchOntoItsLayout",
     {"bench", "layout.safetensors", "--output", "layout.safetensors"},
     "--output: expected another file than the input"},
    {"BenchCompareWithOutput", compare_of({"--output", "x"}),
     "--output: expected without --compare"},
    {"RunIntoNoName", good_run({"--output", ""}), "--output: expected a file name"},
    {"RunOntoTheCapture",
     {"run", "capture.safetensors", "--grid", "6x8x10", "--layout", "vsa", "--output",
      "./capture.safetensors"},
     "--output: expected another file than the input"},
    {"RunIntoAPipe",
     {"run", "capture.safetensors", "--grid", "6x8x10", "--layout", "vsa", "--report", "pipe"},
     "--report: expected a regular file, got the device or pipe pipe"},
    {"PlanIntoAPipe",
     {"plan", "layout.safetensors", "--save", "pipe"},
     "--save: expected a regular file, got the device or pipe pipe"},
};

class OddFile : public CliTest {};

TEST_F(OddFile, ThatIsAPipeIsAnErrorAtOnce) {
  ASSERT_EQ(::mkfifo("pipe", 0600), 0);
  const std::vector<std::pair<Words, std::string>> inputs = {
      {{"layout", "pipe"}, "pipe: not a regular file"},
      {{"plan", "--load", "pipe"}, "pipe: expected a plan file that can be read"},
      {{"bench", "--compare", "pipe", "pipe"}, "--compare: cannot read pipe"}};
  for (const auto& [words, message] : inputs) {
    const Outcome outcome = run_cli(words);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST_F(OddFile, NamesThatAreNotUtf8AreNamedInJson) {
  write("n\xff.safetensors", small_layout());
  const Outcome outcome = run_cli({"verify", "n\xff.safetensors", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["layout"], "n\xef\xbf\xbd.safetensors");
}

class Interrupt : public CliTest, public ::testing::WithParamInterface<int> {};

TEST_P(Interrupt, LeavesNothingBehind) {
  const auto interrupted = [] {
    OutputFiles outputs({});
    for (const char* path : {"out.safetensors", "report.html"}) {
      outputs.add("--output", path)->write([](std::ostream& file) { file << "half"; });
    }
    ::raise(GetParam());
  };
  EXPECT_EXIT(interrupted(), ::testing::KilledBySignal(GetParam()), "");
  EXPECT_TRUE(files().empty()) << *files().begin();
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupt, ::testing::Values(SIGINT, SIGTERM, SIGHUP));

const std::vector<Case> kLayoutTensors = {
    {"IndexMissing", plan_of({}), "no tensor q2k_block_index",
     [](Tensors& layout, Tensors&) { layout.erase(layout.begin()); }},
    {"IndexOfThreeDims", plan_of({}),
     "q2k_block_index: expected shape [B, H, NQ, Kmax], got [2, 2]",
     replace_in_layout(int_tensor("q2k_block_index", {2, 2}, {0, 1, 1, 0}))},
    {"IndexOfFloats", plan_of({}), "q2k_block_index: expected dtype I32 or I64, got F32",
     replace_in_layout(test_tensor<float>("q2k_block_index", "F32", {1, 1, 2, 2}, {0, 1, 1, 0}))},
    {"IndexOutOfRange", plan_of({}), "q2k_block_index[0, 0, 0, 1]",
     replace_in_layout(int_tensor("q2k_block_index", {1, 1, 2, 2}, {0, 2, 1, 0}))},
    {"IndexTwice", plan_of({}), "q2k_block_index",
     replace_in_layout(int_tensor("q2k_block_index", {1, 1, 2, 2}, {1, 1, 1, 0}))},
    {"NumsShape", plan_of({}), "q2k_block_nums: expected shape [1, 1, 2]",
     replace_in_layout(int_tensor("q2k_block_nums", {1, 2}, {2, 1}))},
    {"NumsTooHigh", plan_of({}), "q2k_block_nums[0, 0, 1]",
     replace_in_layout(int_tensor("q2k_block_nums", {1, 1, 2}, {2, 3}))},
    {"NumsTooLargeFor32", plan_of({}), "q2k_block_nums: element 1 is 4294967296",
     replace_in_layout(
         test_tensor<std::int64_t>("q2k_block_nums", "I64", {1, 1, 2}, {2, 4294967296}))},
    {"SizesShape", plan_of({}), "q_block_sizes: expected shape [N]",
     replace_in_layout(int_tensor("q_block_sizes", {2, 2}, {1, 1, 1, 1}))},
    {"SizesOtherCount", plan_of({}), "q_block_sizes: expected NQ = 2 blocks",
     replace_in_layout(int_tensor("q_block_sizes", {3}, {1, 1, 1}))},
    {"SizeTooHigh", plan_of({}), "q_block_sizes[1]",
     replace_in_layout(int_tensor("q_block_sizes", {2}, {1, 129}))},
    {"OffsetsOverlap", plan_of({}), "q_block_offsets",
     add_to_layout(int_tensor("q_block_offsets", {2}, {0, 99}))},
    {"OffsetsShape", plan_of({}), "q_block_offsets: expected shape [2]",
     add_to_layout(int_tensor("q_block_offsets", {1}, {0}))},
    {"KvOffsetsAlone", plan_of({}), "kv_block_offsets: needs kv_block_sizes",
     add_to_layout(int_tensor("kv_block_offsets", {2}, {0, 128}))},
    {"IndexOfUnknownDtype", plan_of({}), "q2k_block_index: expected dtype I32 or I64, got I128",
     replace_in_layout(
         test_tensor<std::int32_t>("q2k_block_index", "I128", {1, 1, 2, 2}, {0, 1, 1, 0}))},
    {"NoRowsToVerify",
     {"verify", "layout.safetensors"},
     "expected valid rows",
     replace_in_layout(int_tensor("q_block_sizes", {2}, {0, 0}))},
};

const std::vector<Case> kCaptureTensors = {
    {"NoV", good_run(), "no tensor v; the file has q, k",
     [](Tensors&, Tensors& capture) { capture.pop_back(); }},
    {"QInF32", good_run(), "tensor q: expected dtype BF16 or F16, got F32",
     replace_in_capture(
         test_tensor("q", "F32", {1, 2, 480, 64}, std::vector<float>(2 * 480 * 64)))},
    {"KInF16", good_run(), "tensor k: expected the dtype of q, BF16, got F16",
     replace_in_capture(test_tensor("k", "F16", {1, 2, 480, 64}, halves(2 * 480 * 64)))},
    {"QOfThreeDims", good_run(), "tensor q: expected shape [batch, heads, tokens, head_dim]",
     replace_in_capture(test_tensor("q", "BF16", {2, 480, 64}, halves(2 * 480 * 64)))},
    {"QEmpty", good_run(), "tensor q: expected elements",
     replace_in_capture(test_tensor("q", "BF16", {1, 2, 0, 64}, halves(0)))},
    {"KOfOtherTokens", good_run(), "tensor k: expected batch, tokens and head_dim of q",
     replace_in_capture(test_tensor("k", "BF16", {1, 2, 479, 64}, halves(2 * 479 * 64)))},
    {"VOfOtherHeads", good_run(), "tensor v: expected the shape of k",
     replace_in_capture(test_tensor("v", "BF16", {1, 1, 480, 64}, halves(480 * 64)))},
    {"KvHeadsDoNotDivide", good_run(), "tensor k: expected heads that divide the 2 of q, got 4",
     [](Tensors&, Tensors& capture) {
       find(capture, "k") = test_tensor("k", "BF16", {1, 4, 480, 64}, halves(4 * 480 * 64));
       find(capture, "v") = test_tensor("v", "BF16", {1, 4, 480, 64}, halves(4 * 480 * 64));
     }},
    {"GradientOfOtherShape", good_run({"--backward"}), "tensor d_o: expected shape and dtype of q",
     [](Tensors&, Tensors& capture) {
       capture.push_back(test_tensor("d_o", "BF16", {1, 1, 480, 64}, halves(480 * 64)));
     }},
    {"QNotANumber", good_run(),
     "tensor q: head 0 of batch element 0 has values that are not finite",
     replace_in_capture(test_tensor("q", "BF16", {1, 2, 480, 64}, halves(2 * 480 * 64, 0x7fc0)))},
    {"FullOfKNotANumber", run_of_rule("full"),
     "tensor k: head 1 of batch element 0 has values that are not finite, the first in row 7",
     spoil("k", 1, 7, 0xffc1)},
    {"StaOfQNotANumber", run_of_rule("sta"),
     "tensor q: head 0 of batch element 0 has values that are not finite, the first in row 479",
     spoil("q", 0, 479, 0x7fc0)},
    {"Svg1OfKInfinite", run_of_rule("svg1"),
     "tensor k: head 0 of batch element 0 has values that are not finite, the first in row 0",
     spoil("k", 0, 0, 0xff80)},
    {"RadialOfVNotANumber", run_of_rule("radial"),
     "tensor v: head 1 of batch element 0 has values that are not finite, the first in row 100",
     spoil("v", 1, 100, 0x7fc0)},
    {"GradientNotANumber", run_of_rule("vsa", {"--backward"}),
     "tensor d_o: head 1 of batch element 0 has values that are not finite, the first in row 3",
     spoil("d_o", 1, 3, 0x7f80)},
    {"HeadDim60", good_run(), "60",
     [](Tensors&, Tensors& capture) {
       for (TestTensor& tensor : capture) {
         tensor = test_tensor(tensor.name, "BF16", {1, 2, 480, 60}, halves(2 * 480 * 60));
       }
     }},
};

const auto kName = [](const auto& test) { return test.param.name; };
INSTANTIATE_TEST_SUITE_P(Flags, MalformedInput, ::testing::ValuesIn(kFlags), kName);
INSTANTIATE_TEST_SUITE_P(Layouts, MalformedInput, ::testing::ValuesIn(kLayoutTensors), kName);
INSTANTIATE_TEST_SUITE_P(Captures, MalformedInput, ::testing::ValuesIn(kCaptureTensors), kName);

}  // namespace
}  // namespace kpage::cli
