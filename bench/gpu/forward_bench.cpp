// Times the forward kernel on named layouts, checks what it computed, and prints a table or rows of
// JSON as bench/results has them.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "kpage/geometry.h"

#include "harness.h"

namespace kpage::bench {
namespace {

nlohmann::json to_json(const Row& row, const Times& times, const char* clock) {
  return {{"layout", row.layout},
          {"pass", "forward"},
          {"kernel", "kpage"},
          {"exact", true},
          {"clock", clock},
          {"heads", row.heads},
          {"head_dim", row.head_dim},
          {"useful_pairs", row.useful_pairs},
          {"executed_pairs", row.executed_pairs},
          {"time_ms", times.median_ms},
          {"best_ms", times.best_ms},
          {"worst_ms", times.worst_ms},
          {"useful_tflops", row.useful_tflops(times)},
          {"error", row.error},
          {"lse_error", row.lse_error}};
}

void print(const Row& row) {
  std::printf("%-22s %8.3f %8.3f %8.0f %8.3f %8.0f %9.2e %6.2f\n", row.layout.c_str(),
              row.rested.median_ms, row.rested.best_ms, row.useful_tflops(row.rested),
              row.sustained.median_ms, row.useful_tflops(row.sustained), row.error, row.lse_error);
  std::fflush(stdout);
}

}  // namespace
}  // namespace kpage::bench

int main(int argc, char** argv) {
  using namespace kpage::bench;
  Options options;
  bool json = false;
  CLI::App app("Times the forward kernel on named layouts");
  app.add_option("layouts", options.layouts, "names; all of them where none is given");
  app.add_option("--iterations", options.iterations, "timed calls")->check(CLI::PositiveNumber);
  app.add_option("--samples", options.samples, "rows checked against the oracle");
  app.add_flag("--json", json, "a row of JSON a line");
  CLI11_PARSE(app, argc, argv);
  if (options.layouts.empty()) {
    for (const std::string_view name : kpage::layout_names()) {
      options.layouts.emplace_back(name);
    }
  }
  if (!json) {
    std::printf("%-22s %8s %8s %8s %8s %8s %9s %6s\n", "layout", "rested", "best", "TFLOP/s",
                "sustain", "TFLOP/s", "error", "LSE");
  }
  int failures = 0;
  for (const std::string& layout : options.layouts) {
    const kpage::Result<Row> row = bench_forward(layout, options);
    if (!row.ok()) {
      std::fprintf(stderr, "%s: %s\n", layout.c_str(), row.status().message().c_str());
      ++failures;
    } else if (json) {
      std::printf("%s\n", to_json(row.value(), row.value().rested, "rested").dump().c_str());
      std::printf("%s\n", to_json(row.value(), row.value().sustained, "sustained").dump().c_str());
    } else {
      print(row.value());
    }
  }
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
