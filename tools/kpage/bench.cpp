// kpage bench: times plans and runs of a layout, and compares two files of results.
#include "bench.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "kpage/plan.h"
#include "kpage/version.h"

#include "attention_run.h"
#include "checks.h"
#include "commands.h"
#include "failure.h"
#include "layout_flags.h"
#include "machine.h"
#include "output_file.h"
#include "plan_page.h"
#include "random_inputs.h"
#include "timed_plan.h"

namespace kpage::cli {
namespace {

struct Options {
  LayoutFlags layout;
  std::vector<std::string> compare;
  std::optional<double> tolerance;
  std::string device = "cpu";
  std::string dtype = "bf16";
  std::int64_t head_dim = 128;
  std::int32_t repeats = 3;
  std::int32_t threads = 0;
  std::int64_t check_rows = 16;
  std::string output;
  std::string commit;
  bool forward_only = false;
  bool json = false;
};

constexpr std::array kFlagsOfCompare = {"--compare", "--tolerance", "--json"};

void compare(const Options& options, const CLI::App& flags, const Console& console) {
  for (const CLI::Option* flag : flags.get_options()) {
    const std::string name = flag->get_name();
    if (!flag->empty() &&
        std::find(kFlagsOfCompare.begin(), kFlagsOfCompare.end(), name) == kFlagsOfCompare.end()) {
      throw bad_input(name +
                      ": expected without --compare, which reads two files and runs nothing");
    }
  }
  const double tolerance = options.tolerance.value_or(0.05);
  if (!(tolerance >= 0)) {
    throw bad_input("--tolerance: expected a share from 0, got " + std::to_string(tolerance));
  }
  const Comparison comparison = compare_results(options.compare[0], options.compare[1], tolerance);
  comparison.page.print(console, options.json);
  if (comparison.regressed) {
    throw run_failed("slower by more than " + percent(tolerance) + ", or missing");
  }
}

Json result_row(const std::string& layout, const char* pass, double ms, const PlanStats& stats,
                std::int64_t head_dim, double error) {
  return {{"layout", layout},
          {"pass", pass},
          {"kernel", "kpage"},
          {"exact", true},
          {"useful_pairs", stats.useful_pairs},
          {"head_dim", head_dim},
          {"time_ms", ms},
          {"error", error}};
}

void bench(const Options& options, const CLI::App& flags, const Console& console) {
  if (!options.compare.empty()) {
    compare(options, flags, console);
    return;
  }
  if (options.tolerance) {
    throw bad_input("--tolerance: expected with --compare, whose files it is for");
  }
  check_threads(options.threads);
  if (options.repeats < 1) {
    throw bad_input("--repeats: expected a number from 1, got " + std::to_string(options.repeats));
  }
  if (options.check_rows < 1) {
    throw bad_input("--check-rows: expected a number from 1, got " +
                    std::to_string(options.check_rows));
  }
  const DType dtype = parse_dtype(options.dtype);
  check_head_dim(options.head_dim);
  RunOptions how;
  how.device = parse_device(options.device);
  how.repeats = options.repeats;
  how.threads = options.threads;
  OutputFiles files({options.layout.file()});
  const OutputFile* output = files.add("--output", options.output);
  const LayoutCase made = options.layout.make(console, true);
  const LayoutView layout = made.layout.view();

  const auto [plan, plan_ms, plan_backward_ms] =
      build_plan(layout, made.source, !options.forward_only, console);
  const PlanStats stats = plan.stats();
  const std::uint64_t seed = options.layout.seed();
  const RandomInputs random(layout, made.source, dtype, options.head_dim, !options.forward_only,
                            seed, console);
  RunOutputs outputs = run_attention(plan, random.inputs(), how, console);
  const CheckResult checked = check_against_oracle(
      layout, random.inputs(), outputs, options.check_rows, seed, InputKind::kRandom, console);

  Page page;
  page.title("Bench of " + made.name + " on " + options.device);
  add_plan_figures(page, stats);
  const double flop =
      4 * static_cast<double>(options.head_dim) * static_cast<double>(stats.useful_pairs);
  const auto rate = [&](double times, double ms) {
    return fixed(times * flop / ms / 1e9, 3) + " TFLOP/s useful";
  };
  page.section("Time, median of " + std::to_string(options.repeats));
  page.row("plan", duration(plan_ms),
           options.forward_only ? "" : "backward part " + duration(plan_backward_ms));
  page.row("forward", duration(outputs.forward_ms), rate(1, outputs.forward_ms));
  if (!options.forward_only) {
    page.row("backward", duration(outputs.backward_ms), rate(2.5, outputs.backward_ms));
  }
  page.json["time_ms"] = outputs.forward_ms + outputs.backward_ms;
  add_errors(page, checked);

  const double error = checked.errors.front().error;
  Json rows = Json::array();
  rows.push_back(
      result_row(made.name, "forward", outputs.forward_ms, stats, options.head_dim, error));
  if (!options.forward_only) {
    rows.push_back(
        result_row(made.name, "backward", outputs.backward_ms, stats, options.head_dim, error));
  }
  Json plan_row =
      result_row(made.name, "plan", plan_ms + plan_backward_ms, stats, options.head_dim, 0);
  plan_row["forward_ms"] = outputs.forward_ms;
  plan_row["plan_forward_ms"] = plan_ms;
  plan_row["backward_ms"] = outputs.backward_ms;
  plan_row["plan_backward_ms"] = plan_backward_ms;
  plan_row["plan_bytes"] = plan.forward().size() + plan.backward().size();
  plan_row["qkv_bytes"] = (stats.q_rows + 2 * stats.kv_rows) * options.head_dim * size_of(dtype);
  rows.push_back(plan_row);
  const std::string device = how.device == DeviceType::kCpu ? cpu_name() : cuda_devices().names[0];
  const Json result = {{"commit", options.commit}, {"version", version()},
                       {"command", "kpage bench"}, {"device", device},
                       {"clock", "sustained"},     {"r_dense", nullptr},
                       {"peers", Json::object()},  {"rows", rows}};
  page.json["results"] = result;
  if (!checked.passed()) {
    page.print(console, options.json);
    throw run_failed("the error against the oracle exceeds the limit; nothing was written");
  }
  if (output != nullptr) {
    output->write([&](std::ostream& file) { file << json_text(result, 1) << '\n'; });
  }
  files.commit();
  page.print(console, options.json);
}

}  // namespace

Command add_bench(CLI::App& app) {
  CLI::App* flags = app.add_subcommand("bench", "Time a layout, or compare two files of results");
  const auto options = std::make_shared<Options>();
  options->layout.declare(*flags, SeedOf::kTensors);
  flags
      ->add_option("--compare", options->compare,
                   "Two files of results, A.json B.json: exit code 1 where B is slower")
      ->expected(2);
  flags->add_option("--tolerance", options->tolerance, "Share by which B may be slower: 0.05");
  flags->add_option("--device", options->device, "cpu or cuda");
  flags->add_option("--dtype", options->dtype, "bf16 or fp16");
  flags->add_option("--head-dim", options->head_dim,
                    "A multiple of 8 up to 256; on a GPU 64 or 128");
  flags->add_option("--repeats", options->repeats, "Timed calls, of which the median counts");
  flags->add_option("--threads", options->threads, "Of the CPU backend; 0: one a core");
  flags->add_option("--check-rows", options->check_rows, "Query rows to compare with the oracle");
  flags->add_option("--output", options->output, "Write the results to this JSON file")
      ->check(file_name());
  flags->add_option("--commit", options->commit, "Commit to note in the results");
  flags->add_flag("--forward-only", options->forward_only, "Leave backward out");
  flags->add_flag("--json", options->json, "Print JSON");
  return {flags, [options, flags](const Console& console) { bench(*options, *flags, console); }};
}

}  // namespace kpage::cli
