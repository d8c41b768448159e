// kpage layout: the blocks that a system's rule makes of a grid, and how full they are.
#include <memory>
#include <string>

#include "commands.h"
#include "failure.h"
#include "layout_flags.h"
#include "layout_page.h"
#include "occupancy_page.h"
#include "output_file.h"
#include "page.h"
#include "tensor_layout.h"

namespace kpage::cli {
namespace {

struct Options {
  LayoutFlags layout;
  std::int32_t head = 0;
  std::string save;
  std::string report;
  bool json = false;
};

void show(const Options& options, const Console& console) {
  OutputFiles outputs({options.layout.file()});
  const OutputFile* save = outputs.add("--save", options.save);
  const OutputFile* report = outputs.add("--report", options.report);
  const LayoutCase made = options.layout.make(console, false);
  check(validate(made.layout.view()), made.source);
  const std::int64_t heads = std::int64_t{made.layout.batch} * made.layout.heads;
  if (options.head < 0 || options.head >= heads) {
    throw bad_input("--head: expected a number below batch x heads = " + std::to_string(heads) +
                    ", got " + std::to_string(options.head));
  }
  Page page;
  page.title("Layout " + made.name);
  add_occupancy(page, made.layout);
  add_lists(page, made);
  if (made.tiling) {
    add_occupancy_map(page, *made.tiling);
  }
  add_selection(page, made.layout, options.head);
  if (save != nullptr) {
    save->write([&](std::ostream& file) { write_layout(file, made.layout); });
  }
  if (report != nullptr) {
    report->write([&](std::ostream& file) { write_layout_report(file, made); });
  }
  outputs.commit();
  page.print(console, options.json);
}

}  // namespace

Command add_layout(CLI::App& app) {
  CLI::App* flags = app.add_subcommand(
      "layout", "Blocks of a layout, how full they are, and what their lists select");
  const auto options = std::make_shared<Options>();
  options->layout.declare(*flags, SeedOf::kLists);
  flags->add_option("--head", options->head,
                    "Whose selection map is printed: batch * heads + head");
  flags->add_option("--save", options->save, "Write the layout's tensors to this safetensors file")
      ->check(file_name());
  flags->add_option("--report", options->report, "Write an HTML page with pictures of the layout")
      ->check(file_name());
  flags->add_flag("--json", options->json, "Print JSON");
  return {flags, [options](const Console& console) { show(*options, console); }};
}

}  // namespace kpage::cli
