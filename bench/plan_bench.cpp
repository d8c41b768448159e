// Compiling plans on the host, one core: the padded "30 s" layout (2x8x8 cubes of 181x34x60: 3,640
// blocks, 8 heads, random lists of 64).
#include <benchmark/benchmark.h>

#include "kpage/geometry.h"
#include "kpage/plan.h"

namespace kpage {
namespace {

void plan_forward(benchmark::State& state) {
  const Layout layout = named_layout("padded-30s", 0).value();
  for (auto _ : state) {
    benchmark::DoNotOptimize(Plan::build(layout.view()).ok());
  }
}
BENCHMARK(plan_forward)->Unit(benchmark::kMillisecond);

void plan_backward(benchmark::State& state) {
  const Layout layout = named_layout("padded-30s", 0).value();
  for (auto _ : state) {
    state.PauseTiming();
    Plan plan = Plan::build(layout.view()).value();
    state.ResumeTiming();
    benchmark::DoNotOptimize(plan.build_backward().ok());
  }
}
BENCHMARK(plan_backward)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kpage
