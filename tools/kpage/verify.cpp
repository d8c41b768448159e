// kpage verify: the oracle against the backends, on a layout with random tensors.
#include <algorithm>
#include <memory>
#include <string>

#include "kpage/plan.h"

#include "attention_run.h"
#include "checks.h"
#include "commands.h"
#include "failure.h"
#include "layout_flags.h"
#include "page.h"
#include "random_inputs.h"
#include "timed_plan.h"

namespace kpage::cli {
namespace {

struct Options {
  LayoutFlags layout;
  std::string device = "cpu";
  std::string dtype = "bf16";
  std::int64_t head_dim = 128;
  std::int64_t rows = 64;
  bool forward_only = false;
  bool json = false;
};

void verify(const Options& options, const Console& console) {
  if (options.rows < 1) {
    throw bad_input("--rows: expected a number from 1, got " + std::to_string(options.rows));
  }
  const DType dtype = parse_dtype(options.dtype);
  check_head_dim(options.head_dim);
  RunOptions how;
  how.device = parse_device(options.device);
  const LayoutCase made = options.layout.make(console, true);
  const LayoutView layout = made.layout.view();
  const std::uint64_t seed = options.layout.seed();
  const Plan plan = build_plan(layout, made.source, !options.forward_only, console).plan;
  check(plan.validate());
  const RandomInputs random(layout, made.source, dtype, options.head_dim, !options.forward_only,
                            seed, console);
  const RunInputs& inputs = random.inputs();

  Page page;
  page.title("Verify " + made.name);
  page.row("plan", "all invariants hold");
  page.json["layout"] = made.name;
  page.json["seed"] = seed;
  bool passed = true;
  double time_ms = 0;
  double worst = 0;
  Json backends = Json::array();
  const auto compare = [&](const std::string& name) {
    RunOutputs outputs = run_attention(plan, inputs, how, console);
    const CheckResult result = check_against_oracle(layout, inputs, outputs, options.rows, seed,
                                                    InputKind::kRandom, console);
    Page part;
    add_errors(part, result);
    part.json["backend"] = name;
    part.json["time_ms"] = outputs.forward_ms + outputs.backward_ms;
    part.json["passed"] = result.passed();
    backends.push_back(part.json);
    page.section(name);
    for (const CheckedError& error : result.errors) {
      page.row(error.name, scientific(error.error), limit_note(error));
      worst = std::max(worst, error.name == "lse" ? 0 : error.error);
    }
    page.row("rows compared", grouped(result.query_rows + result.key_rows),
             "run in " + duration(outputs.forward_ms + outputs.backward_ms));
    time_ms += outputs.forward_ms + outputs.backward_ms;
    passed = passed && result.passed();
  };
  if (how.device == DeviceType::kCuda) {
    compare("CUDA");
    how.device = DeviceType::kCpu;
  }
  how.policy = CpuPolicy::kExact;
  compare("CPU, exact");
  how.policy = CpuPolicy::kAsKernel;
  compare("CPU, as the kernels");
  page.json["time_ms"] = time_ms;
  page.json["error"] = worst;
  page.json["passed"] = passed;
  page.json["backends"] = backends;
  page.print(console, options.json);
  if (!passed) {
    throw run_failed("an error against the oracle exceeds its limit");
  }
}

}  // namespace

Command add_verify(CLI::App& app) {
  CLI::App* flags = app.add_subcommand("verify", "Compare backends with the oracle on a layout");
  const auto options = std::make_shared<Options>();
  options->layout.declare(*flags, SeedOf::kTensors);
  flags->add_option("--device", options->device, "cpu, or cuda to compare the GPU too");
  flags->add_option("--dtype", options->dtype, "bf16 or fp16");
  flags->add_option("--head-dim", options->head_dim,
                    "A multiple of 8 up to 256; on a GPU 64 or 128");
  flags->add_option("--rows", options->rows, "Query rows to compare");
  flags->add_flag("--forward-only", options->forward_only, "Leave backward out");
  flags->add_flag("--json", options->json, "Print JSON");
  return {flags, [options](const Console& console) { verify(*options, console); }};
}

}  // namespace kpage::cli
