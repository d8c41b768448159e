// Times the forward kernel: forward_bench [layout...], all named layouts without arguments.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kpage/geometry.h"

#include "harness.h"

int main(int argc, char** argv) {
  kpage::bench::Options options;
  options.layouts.assign(argv + 1, argv + argc);
  if (options.layouts.empty()) {
    for (const std::string_view name : kpage::layout_names()) {
      options.layouts.emplace_back(name);
    }
  }
  std::printf("%-22s %8s %8s %8s %8s %9s %9s %9s %9s\n", "layout", "rested", "best", "TFLOP/s",
              "sustain", "TFLOP/s", "executed", "error", "LSE");
  int failures = 0;
  for (const std::string& layout : options.layouts) {
    const auto row = kpage::bench::bench_forward(layout, options);
    if (!row.ok()) {
      std::printf("%-22s %s\n", layout.c_str(), row.status().message().c_str());
      ++failures;
      continue;
    }
    const kpage::bench::Row& r = row.value();
    std::printf("%-22s %8.3f %8.3f %8.0f %8.3f %9.0f %9.0f %9.2e %9.2f\n", layout.c_str(),
                r.rested.median_ms, r.rested.best_ms, r.useful_tflops(r.rested),
                r.sustained.median_ms, r.useful_tflops(r.sustained),
                r.useful_tflops(r.sustained) * static_cast<double>(r.executed_pairs) /
                    static_cast<double>(r.useful_pairs),
                r.error, r.lse_error);
    std::fflush(stdout);
  }
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
