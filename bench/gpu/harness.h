// Times the device kernels on named layouts and checks what they computed in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kpage/status.h"
#include "kpage/types.h"

namespace kpage::bench {

struct Options {
  std::vector<std::string> layouts;  // names of kpage::layout_names(); empty: all of them
  std::int64_t head_dim = 128;
  DType dtype = DType::kBFloat16;
  std::int32_t iterations = 15;  // timed calls, after as many as kWarmUp
  std::int32_t samples = 48;     // rows checked against the oracle; 0: none
  std::int32_t pause_ms = 60;    // before each rested call
  std::uint64_t seed = 1;
};

struct Times {
  double median_ms = 0;
  double best_ms = 0;
  double worst_ms = 0;
};

struct Row {
  std::string layout;
  std::int64_t heads = 0;
  std::int64_t useful_pairs = 0;
  std::int64_t executed_pairs = 0;  // walks rounded up to tiles
  std::int64_t head_dim = 0;
  Times rested;          // a pause before each call
  Times sustained;       // back to back
  double error = 0;      // relative l2 on the sampled rows
  double lse_error = 0;  // as a share of its limit

  [[nodiscard]] double useful_tflops(const Times& times) const {
    return 4.0 * static_cast<double>(useful_pairs) * static_cast<double>(head_dim) /
           (times.median_ms * 1e9);
  }
};

[[nodiscard]] Result<Row> bench_forward(const std::string& layout, const Options& options);

}  // namespace kpage::bench
