// kpage layout: the blocks that a system's rule makes of a grid, and how full they are.
#include <memory>
#include <string>

#include "commands.h"
#include "failure.h"
#include "layout_flags.h"
#include "occupancy_page.h"
#include "output_file.h"
#include "page.h"
#include "tensor_layout.h"

namespace kpage::cli {
namespace {

struct Options {
  LayoutFlags layout;
  std::string save;
  bool json = false;
};

void add_lists(Page& page, const Layout& layout) {
  std::int64_t edges = 0;
  std::int32_t longest = 0;
  for (const std::int32_t count : layout.q2k_block_nums) {
    edges += count;
    longest = std::max(longest, count);
  }
  const std::int64_t all =
      std::int64_t{layout.batch} * layout.heads * layout.q_blocks * layout.kv_blocks;
  const double density = all == 0 ? 0 : static_cast<double>(edges) / static_cast<double>(all);
  page.section("Lists");
  page.row("batch x heads", std::to_string(layout.batch) + " x " + std::to_string(layout.heads));
  page.row("selected pairs of blocks", grouped(edges), percent(density) + " of all");
  page.row("longest list", grouped(longest) + " blocks");
  page.json["batch"] = layout.batch;
  page.json["heads"] = layout.heads;
  page.json["selected_block_pairs"] = edges;
  page.json["block_density"] = density;
}

void show(const Options& options, const Console& console) {
  OutputFiles outputs;
  const OutputFile* save = outputs.add("--save", options.save);
  const LayoutCase made = options.layout.make(console);
  check(validate(made.layout.view()), made.source);
  Page page;
  page.title("Layout " + made.name);
  add_occupancy(page, made.layout);
  add_lists(page, made.layout);
  if (made.tiling) {
    add_occupancy_map(page, *made.tiling);
  }
  if (save != nullptr) {
    save->write([&](std::ostream& file) { write_layout(file, made.layout); });
  }
  outputs.commit();
  page.print(console, options.json);
}

}  // namespace

Command add_layout(CLI::App& app) {
  CLI::App* flags = app.add_subcommand("layout", "Blocks of a layout, and how full they are");
  const auto options = std::make_shared<Options>();
  options->layout.declare(*flags);
  flags->add_option("--save", options->save, "Write the layout's tensors to this safetensors file")
      ->check(file_name());
  flags->add_flag("--json", options->json, "Print JSON");
  return {flags, [options](const Console& console) { show(*options, console); }};
}

}  // namespace kpage::cli
