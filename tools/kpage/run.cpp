// kpage run: the main job. A layer's q, k, v in; blocks picked, attention run and checked; one page
// of figures out, and where asked the outputs and a report with pictures.
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "kpage/plan.h"

#include "attention_run.h"
#include "capture.h"
#include "checks.h"
#include "commands.h"
#include "failure.h"
#include "layout_flags.h"
#include "occupancy_page.h"
#include "output_file.h"
#include "page.h"
#include "plan_page.h"
#include "progress.h"
#include "report.h"
#include "select.h"
#include "timed_plan.h"

namespace kpage::cli {
namespace {

struct Options {
  std::string capture;
  SystemFlags system;
  std::string device = "cpu";
  std::string output;
  std::string report;
  bool backward = false;
  bool deterministic = false;
  std::int64_t check_rows = 256;
  std::uint64_t seed = 0;
  std::int32_t threads = 0;
  bool json = false;
};

// The flags of a run that need no file: wrong ones err before anything is read.
void check_options(const Options& options) {
  if (options.check_rows < 0) {
    throw bad_input("--check-rows: expected a number from 0, got " +
                    std::to_string(options.check_rows));
  }
  check_threads(options.threads);
  if (options.deterministic && !options.backward) {
    throw bad_input("--deterministic: only backward has a choice; expected with --backward");
  }
  if (!options.system.given()) {
    throw bad_input("--layout: expected the rule that picks blocks, such as --layout vsa");
  }
}

void check_tokens(const Options& options, const Capture& capture) {
  const std::int64_t expected = options.system.tokens();
  if (capture.tokens() != expected) {
    throw bad_input("--grid: expected as many tokens as tensor q of " + capture.path() + " has, " +
                    std::to_string(capture.tokens()) + ", got " + std::to_string(expected) +
                    (options.system.has_text() ? " with text" : ""));
  }
}

// q, k, v, dO in the order of the tiling's rows: where that is the capture's order, in place.
class BlockOrder {
 public:
  BlockOrder(const Capture& capture, const Tiling& tiling, bool backward, std::uint64_t seed) {
    in_place_ = tiling.rows == capture.tokens();
    for (std::int32_t row = 0; in_place_ && row < tiling.rows; ++row) {
      in_place_ = tiling.token_of_row[static_cast<std::size_t>(row)] == row;
    }
    inputs_.q = moved(capture.q(), tiling);
    inputs_.k = moved(capture.k(), tiling);
    inputs_.v = moved(capture.v(), tiling);
    if (!backward) {
      return;
    }
    if (const std::optional<TensorRef> given = capture.d_o()) {
      inputs_.d_o = moved(*given, tiling);
      return;
    }
    tensors_.push_back(std::make_unique<Tensor>(capture.dtype(), capture.batch(), capture.heads(),
                                                tiling.rows, capture.head_dim()));
    fill_random(*tensors_.back(), seed, tiling.token_of_row);
    inputs_.d_o = tensors_.back()->ref();
  }

  [[nodiscard]] const RunInputs& inputs() const { return inputs_; }
  [[nodiscard]] bool in_place() const { return in_place_; }

 private:
  TensorRef moved(const TensorRef& from, const Tiling& tiling) {
    if (in_place_) {
      return from;
    }
    tensors_.push_back(std::make_unique<Tensor>(gather_rows(from, tiling.token_of_row)));
    return tensors_.back()->ref();
  }

  RunInputs inputs_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  bool in_place_ = false;
};

Layout pick_blocks(const Options& options, const Capture& capture, const Tiling& tiling) {
  const auto batch = static_cast<std::int32_t>(capture.batch());
  const auto heads = static_cast<std::int32_t>(capture.heads());
  const std::string source = "--layout " + options.system.system();
  ClusterGraph graph;
  if (options.system.selects_by_scores()) {
    const std::int32_t cubes = tiling.count() - tiling.prefix_tiles - tiling.suffix_tiles;
    graph = value_of(with_dense_segments(tiling, batch * heads,
                                         select_by_means(capture.q(), capture.k(), tiling,
                                                         options.system.kept(cubes))),
                     source);
  } else {
    graph = options.system.static_graph(tiling, batch, heads);
  }
  return value_of(tile_layout(batch, heads, tiling, graph), source);
}

void add_input(Page& page, const Options& options, const Capture& capture, bool in_place) {
  page.section("Input");
  page.row("capture", capture.path());
  page.row("tokens", grouped(capture.tokens()),
           in_place ? "read in place" : "moved to block order");
  const std::string kv = capture.kv_heads() == capture.heads()
                             ? ""
                             : " (" + std::to_string(capture.kv_heads()) + " of k and v)";
  page.row("heads",
           std::to_string(capture.heads()) + kv + " x " + std::to_string(capture.head_dim()) +
               ", " + dtype_name(capture.dtype()),
           capture.batch() > 1 ? "batch " + std::to_string(capture.batch()) : "");
  page.json["capture"] = capture.path();
  page.json["layout"] = options.system.name();
  page.json["device"] = options.device;
  page.json["tokens"] = capture.tokens();
  page.json["heads"] = capture.heads();
  page.json["kv_heads"] = capture.kv_heads();
  page.json["batch"] = capture.batch();
  page.json["head_dim"] = capture.head_dim();
  page.json["dtype"] = dtype_name(capture.dtype());
}

void add_times(Page& page, const RunFigures& figures, bool backward) {
  const auto rate = [](double flop, double ms) {
    return ms > 0 ? fixed(flop / ms / 1e9, flop / ms / 1e9 >= 10 ? 1 : 3) + " TFLOP/s useful" : "";
  };
  page.section("Time");
  page.row("picking blocks", duration(figures.select_ms));
  page.row("plan", duration(figures.plan_ms));
  page.row("forward", duration(figures.forward_ms), rate(figures.forward_flop, figures.forward_ms));
  page.json["select_ms"] = figures.select_ms;
  page.json["plan_ms"] = figures.plan_ms;
  page.json["forward_ms"] = figures.forward_ms;
  page.json["forward_tflops"] = figures.forward_flop / figures.forward_ms / 1e9;
  if (backward) {
    page.row("backward", duration(figures.backward_ms),
             rate(2.5 * figures.forward_flop, figures.backward_ms));
    page.json["backward_ms"] = figures.backward_ms;
    page.json["backward_tflops"] = 2.5 * figures.forward_flop / figures.backward_ms / 1e9;
  }
  page.json["time_ms"] = figures.forward_ms + figures.backward_ms;
}

void write_outputs(std::ostream& file, RunOutputs& outputs, const Tiling& tiling) {
  const std::vector<std::int32_t>& row_of_token = tiling.row_of_token;
  std::vector<FileTensor> files;
  std::vector<Tensor> tensors;
  tensors.reserve(4);
  const auto add = [&](const char* name, Tensor& tensor) {
    if (!tensor.data.empty()) {
      tensors.push_back(gather_rows(tensor.ref(), row_of_token));
      files.push_back(
          {name, dtype_name(tensor.type), tensors.back().shape, tensors.back().bytes()});
    }
  };
  add("o", outputs.o);
  const RowValues lse = gather_rows(outputs.lse, row_of_token);
  files.push_back({"lse", "F32", lse.shape, std::as_bytes(std::span(lse.data))});
  add("dq", outputs.dq);
  add("dk", outputs.dk);
  add("dv", outputs.dv);
  write_safetensors(file, files, {{"format", "kpage outputs"}});
}

void run_job(const Options& options, const Console& console) {
  check_options(options);
  RunOptions how;
  how.device = parse_device(options.device);
  how.threads = options.threads;
  how.deterministic = options.deterministic;
  options.system.check_parameters();
  const Capture capture(options.capture);
  check_tokens(options, capture);
  options.system.check_size(capture.batch() * capture.heads(), true);
  OutputFiles files({options.capture});
  const OutputFile* output = files.add("--output", options.output);
  const OutputFile* report = files.add("--report", options.report);
  const Tiling tiling = options.system.compact_tiling();
  capture.check_finite(options.backward);

  RunFigures figures;
  Layout layout;
  {
    const Progress progress(console, "picking blocks");
    figures.select_ms = time_of([&] { layout = pick_blocks(options, capture, tiling); });
  }
  const TimedPlan timed =
      build_plan(layout.view(), "--layout " + options.system.system(), options.backward, console);
  const Plan& plan = timed.plan;
  figures.plan_ms = timed.forward_ms + timed.backward_ms;
  const PlanStats stats = plan.stats();
  if (stats.useful_pairs == 0) {
    throw bad_input("--layout " + options.system.system() + ": selects no key for any query of " +
                    capture.path() + ", so there is nothing to run");
  }
  std::optional<BlockOrder> order;
  {
    const Progress progress(console, "moving rows to block order");
    order.emplace(capture, tiling, options.backward, options.seed);
  }
  RunOutputs outputs = run_attention(plan, order->inputs(), how, console);
  figures.forward_ms = outputs.forward_ms;
  figures.backward_ms = outputs.backward_ms;
  const double all_pairs = static_cast<double>(capture.batch() * capture.heads()) *
                           static_cast<double>(capture.tokens()) *
                           static_cast<double>(capture.tokens());
  figures.density = static_cast<double>(stats.useful_pairs) / all_pairs;
  figures.forward_flop =
      4 * static_cast<double>(capture.head_dim()) * static_cast<double>(stats.useful_pairs);

  Page page;
  page.title("KPage run: " + options.system.name() + " on " + options.device);
  add_input(page, options, capture, order->in_place());
  page.row("density", percent(figures.density), "of all query-key pairs");
  page.json["density"] = figures.density;
  add_occupancy(page, layout);
  add_plan_figures(page, stats);
  add_times(page, figures, options.backward);
  CheckResult checked;
  if (options.check_rows > 0) {
    checked = check_against_oracle(layout.view(), order->inputs(), outputs, options.check_rows,
                                   options.seed, InputKind::kReal, console);
    add_errors(page, checked);
  }
  if (!checked.passed()) {
    page.print(console, options.json);
    throw run_failed("the error against the oracle exceeds the limit; nothing was written");
  }
  if (output != nullptr) {
    const Progress progress(console, "writing " + options.output);
    output->write([&](std::ostream& file) { write_outputs(file, outputs, tiling); });
  }
  if (report != nullptr) {
    report->write([&](std::ostream& file) {
      write_report(file, {page.title(), page.json, tiling, layout, plan, checked, figures});
    });
  }
  files.commit();
  page.print(console, options.json);
  for (const std::string* path : {&options.output, &options.report}) {
    if (!path->empty() && !options.json) {
      console.out << "\nwritten: " << *path;
    }
  }
  if (!options.json) {
    console.out << '\n';
  }
}

}  // namespace

Command add_run(CLI::App& app) {
  CLI::App* flags = app.add_subcommand(
      "run", "Run a captured layer: pick blocks, run attention, check it, report");
  const auto options = std::make_shared<Options>();
  flags
      ->add_option("capture", options->capture,
                   "Safetensors file with q [B, H, S, D], k and v [B, Hkv, S, D], BF16 or F16, "
                   "tokens in raster order of --grid; optionally d_o [B, H, S, D]")
      ->required()
      ->check(file_name());
  options->system.declare(*flags, RuleSet::kOfCaptures);
  flags->add_flag("--backward", options->backward, "Run backward too, on d_o or a random gradient");
  flags->add_flag("--deterministic", options->deterministic, "Bitwise reproducible gradients");
  flags->add_option("--device", options->device, "cpu or cuda");
  flags
      ->add_option("--output", options->output,
                   "Write o and lse (and dq, dk, dv) in the capture's order of tokens")
      ->check(file_name());
  flags->add_option("--report", options->report, "Write an HTML page with pictures")
      ->check(file_name());
  flags->add_option("--check-rows", options->check_rows,
                    "Query rows to compare with the oracle; 0: none");
  flags->add_option("--seed", options->seed, "Of the random gradient and the rows compared")
      ->check(seed_number());
  flags->add_option("--threads", options->threads, "Of the CPU backend; 0: one a core");
  flags->add_flag("--json", options->json, "Print JSON");
  return {flags, [options](const Console& console) { run_job(*options, console); }};
}

}  // namespace kpage::cli
