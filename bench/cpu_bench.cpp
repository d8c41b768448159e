// The CPU backend on the padded "5 s" layout (2x8x8 cubes of 31x34x60, random lists of 64), and the
// tile arithmetic alone, which is its ceiling. useful_flops counts pairs of valid rows only.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "kpage/attention.h"
#include "kpage/geometry.h"

#include "base/half.h"
#include "base/random.h"
#include "cpu/buffer.h"
#include "cpu/tile_ops.h"

namespace kpage {
namespace {

constexpr std::int64_t kHeadDim = 128;

struct Tensor {
  std::vector<std::uint16_t> data;
  TensorRef ref;

  Tensor(std::int64_t heads, std::int64_t rows, std::uint64_t seed)
      : data(static_cast<std::size_t>(heads * rows * kHeadDim)) {
    Random random(seed);
    for (std::uint16_t& value : data) {
      value = float_to_bf16(static_cast<float>(2 * random.uniform() - 1));
    }
    ref = {data.data(),
           DType::kBFloat16,
           {},
           {1, heads, rows, kHeadDim},
           {heads * rows * kHeadDim, rows * kHeadDim, kHeadDim, 1}};
  }
};

struct Padded5s {
  static constexpr std::int64_t kHeads = 1;
  Plan plan;
  std::int64_t rows;
  Tensor q, k, v, o, d_o, dq, dk, dv;
  std::vector<float> lse_data;
  RowsRef lse;

  Padded5s()
      : plan(make_plan()),
        rows(std::int64_t{plan.shape().q_blocks} * kBlockRows),
        q(kHeads, rows, 1),
        k(kHeads, rows, 2),
        v(kHeads, rows, 3),
        o(kHeads, rows, 4),
        d_o(kHeads, rows, 5),
        dq(kHeads, rows, 6),
        dk(kHeads, rows, 7),
        dv(kHeads, rows, 8),
        lse_data(static_cast<std::size_t>(kHeads * rows)),
        lse{lse_data.data(), {}, {1, kHeads, rows}, {kHeads * rows, rows, 1}} {}

  static Plan make_plan() {
    const Tiling tiling = make_tiling({{}, {31, 34, 60}, {}}, {2, 8, 8}).value();
    const Layout layout = random_tile_layout(tiling, kHeads, 64, 0).value();
    Plan made = Plan::build(layout.view()).value();
    return made.build_backward().ok() ? made : Plan();
  }

  [[nodiscard]] Status forward() const {
    ForwardArgs args;
    args.q = q.ref;
    args.k = k.ref;
    args.v = v.ref;
    args.plan = plan.ref();
    args.o = o.ref;
    args.lse = lse;
    return attention_forward(args);
  }
  [[nodiscard]] Status backward() const {
    BackwardArgs args;
    args.q = q.ref;
    args.k = k.ref;
    args.v = v.ref;
    args.o = o.ref;
    args.lse = lse;
    args.d_o = d_o.ref;
    args.plan = plan.ref();
    args.dq = dq.ref;
    args.dk = dk.ref;
    args.dv = dv.ref;
    return attention_backward(args);
  }
};

// `products`: matrix products over the useful pairs.
void report(benchmark::State& state, double pairs, double products) {
  state.counters["useful_flops"] =
      benchmark::Counter(pairs * 2 * kHeadDim * products * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}

void cpu_forward(benchmark::State& state) {
  const Padded5s run;
  for (auto _ : state) {
    if (const Status status = run.forward(); !status.ok()) {
      state.SkipWithError(status.message().c_str());
      return;
    }
  }
  report(state, static_cast<double>(run.plan.stats().useful_pairs), 2);
}
BENCHMARK(cpu_forward)->Unit(benchmark::kMillisecond)->UseRealTime();

void cpu_backward(benchmark::State& state) {
  const Padded5s run;
  if (const Status status = run.forward(); !status.ok()) {
    state.SkipWithError(status.message().c_str());
    return;
  }
  for (auto _ : state) {
    if (const Status status = run.backward(); !status.ok()) {
      state.SkipWithError(status.message().c_str());
      return;
    }
  }
  report(state, static_cast<double>(run.plan.stats().useful_pairs), 5);
}
BENCHMARK(cpu_backward)->Unit(benchmark::kMillisecond)->UseRealTime();

// One tile after the other on one thread, without gathers.
void cpu_forward_tile(benchmark::State& state) {
  constexpr std::int32_t kSize = kBlockRows;
  constexpr std::int64_t kValues = kSize * kHeadDim;
  const cpu::Buffer<float> q(kValues), k(kValues), v(kValues), o(kValues), p(kSize * kSize);
  const cpu::Buffer<float> row_max(kSize), row_sum(kSize), rescale(kSize);
  Random random(1);
  for (std::int64_t i = 0; i < kValues; ++i) {
    q.data()[i] = static_cast<float>(random.uniform());
    k.data()[i] = static_cast<float>(random.uniform());
    v.data()[i] = static_cast<float>(random.uniform());
    o.data()[i] = 0;
  }
  for (std::int32_t r = 0; r < kSize; ++r) {
    row_max.data()[r] = 0;
    row_sum.data()[r] = 0;
  }
  cpu::ForwardTile<float> tile;
  tile.rows = kSize;
  tile.columns = kSize;
  tile.head_dim = kHeadDim;
  tile.scale = 0.01f;
  tile.round_to = static_cast<DType>(state.range(0));
  tile.q = q.data();
  tile.k = k.data();
  tile.v = v.data();
  tile.p = p.data();
  tile.rescale = rescale.data();
  tile.row_max = row_max.data();
  tile.row_sum = row_sum.data();
  tile.o = o.data();
  const cpu::TileOps<float>& ops = cpu::tile_ops<float>(cpu::widest_isa());
  for (auto _ : state) {
    ops.forward(tile);
    benchmark::ClobberMemory();
  }
  report(state, kSize * kSize, 2);
}
BENCHMARK(cpu_forward_tile)
    ->Arg(static_cast<int>(DType::kBFloat16))
    ->Arg(static_cast<int>(DType::kFloat16))
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kpage
