// kpage plan: compiles a layout, shows the figures of the plan, and saves, loads, compares, dumps
// or validates it.
#include "kpage/plan.h"

#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "commands.h"
#include "failure.h"
#include "layout_flags.h"
#include "occupancy_page.h"
#include "output_file.h"
#include "page.h"
#include "plan_page.h"
#include "timed_plan.h"

namespace kpage::cli {
namespace {

struct Options {
  LayoutFlags layout;
  std::string load;
  std::string save;
  std::string compare;
  bool backward = false;
  bool dump = false;
  bool validate = false;
  std::int32_t head = -1;
  bool json = false;
};

void plan(const Options& options, const Console& console) {
  if (options.layout.given() != options.load.empty()) {
    throw bad_input(options.load.empty()
                        ? "expected a layout: a file of tensors, --layout, or --load of a plan"
                        : "expected one of a layout and --load, got both");
  }
  if (!options.load.empty()) {
    options.layout.expect_none("--load");
  }
  if (options.head >= 0 && !options.dump) {
    throw bad_input("--head: expected with --dump, which alone prints heads");
  }
  OutputFiles outputs({options.layout.file(), options.load, options.compare});
  const OutputFile* save = outputs.add("--save", options.save);
  const std::optional<Plan> other =
      options.compare.empty()
          ? std::nullopt
          : std::optional(value_of(Plan::load(options.compare), "--compare " + options.compare));

  TimedPlan timed;
  Plan& built = timed.plan;
  Page page;
  if (options.load.empty()) {
    const LayoutCase layout = options.layout.make(console, true);
    check(validate(layout.layout.view()), layout.source);
    page.title("Plan of " + layout.name);
    add_occupancy(page, layout.layout);
    timed = build_plan(layout.layout.view(), layout.source, options.backward, console);
  } else {
    page.title("Plan of " + options.load);
    built = value_of(Plan::load(options.load), "--load " + options.load);
    add_occupancy(page, built);
  }
  const std::int32_t walks_of = built.shape().batch * built.shape().heads;
  if (options.head >= walks_of) {
    throw bad_input("--head: expected a number below batch x heads = " + std::to_string(walks_of) +
                    ", got " + std::to_string(options.head));
  }
  if (options.backward && !built.has_backward()) {
    timed.backward_ms = build_backward(built, "--load " + options.load, console);
  }

  page.json["time_ms"] = timed.forward_ms + timed.backward_ms;
  add_plan_figures(page, built.stats());
  page.section("Plan");
  if (options.load.empty()) {
    page.row("time", duration(timed.forward_ms),
             options.backward ? "backward part " + duration(timed.backward_ms) : "");
  }
  page.row("memory", bytes_text(static_cast<std::int64_t>(built.forward().size())),
           built.has_backward()
               ? "backward part " + bytes_text(static_cast<std::int64_t>(built.backward().size()))
               : "");
  page.json["plan_bytes"] = built.forward().size() + built.backward().size();
  if (options.validate) {
    const Status valid = built.validate();
    if (!valid.ok()) {
      throw run_failed("the plan breaks an invariant: " + valid.message());
    }
    page.row("invariants", "all hold");
    page.json["valid"] = true;
  }
  std::string unequal;
  if (other) {
    unequal = difference(built, *other);
    page.row("compared with " + options.compare,
             unequal.empty() ? "equal, byte for byte" : unequal);
    page.json["difference"] = unequal;
  }
  if (options.dump && options.json) {
    page.json["dump"] = built.dump(options.head);
  }
  if (save != nullptr) {
    save->write([&](std::ostream& file) { built.save(file); });
  }
  if (unequal.empty()) {
    outputs.commit();
  }
  page.print(console, options.json);
  if (options.dump && !options.json) {
    console.out << '\n' << built.dump(options.head);
  }
  if (!unequal.empty()) {
    throw run_failed("the plans differ: " + unequal);
  }
}

}  // namespace

Command add_plan(CLI::App& app) {
  CLI::App* flags = app.add_subcommand("plan", "Compile a layout to a plan, and inspect plans");
  const auto options = std::make_shared<Options>();
  options->layout.declare(*flags, SeedOf::kLists);
  flags->add_option("--load", options->load, "Take a saved plan instead of a layout")
      ->check(file_name());
  flags->add_option("--save", options->save, "Write the plan to this file")->check(file_name());
  flags
      ->add_option("--compare", options->compare,
                   "Compare with a saved plan; exit code 1 where they differ")
      ->check(file_name());
  flags->add_flag("--backward", options->backward, "Compile the backward part too");
  flags->add_flag("--validate", options->validate, "Check every invariant of the plan");
  flags->add_flag("--dump", options->dump, "Print walks, masks, queues and owners");
  flags->add_option("--head", options->head, "Dump this head alone: batch * heads + head")
      ->check(CLI::NonNegativeNumber);
  flags->add_flag("--json", options->json, "Print JSON");
  return {flags, [options](const Console& console) { plan(*options, console); }};
}

}  // namespace kpage::cli
