#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "base/parallel.h"
#include "cpu/cpu.h"
#include "cpu/padding.h"
#include "cpu/problem.h"
#include "cpu/walk_runner.h"

namespace kpage::cpu {
namespace {

void clear_padding(const Problem& problem, const ForwardArgs& args, std::int64_t batch_head) {
  const plan::ForwardView& plan = problem.plan;
  const HeadRows o = problem.of_query_head(args.o, batch_head);
  for_each_gap(plan.q_scopes[plan::scope_of(plan.shape.q_scope, plan.shape, batch_head)],
               plan.q_blocks(batch_head), plan.shape.q_blocks, o.rows,
               [&](std::int64_t begin, std::int64_t end) {
                 zero_rows(o, begin, end);
                 for (std::int64_t r = begin; r < end; ++r) {
                   at(args.lse, problem.batch(batch_head), problem.head(batch_head), r) =
                       -std::numeric_limits<float>::infinity();
                 }
               });
}

template <class Real>
void store(const Problem& problem, const ForwardArgs& args, const TileOps<Real>& ops,
           const WalkRunner<Real>& runner, std::int64_t walk) {
  const plan::ForwardView& plan = problem.plan;
  const std::int64_t batch_head = walk / plan.shape.q_blocks;
  const plan::Extent& block = plan.q_blocks(batch_head)[walk % plan.shape.q_blocks];
  const HeadRows o = problem.of_query_head(args.o, batch_head);
  ops.narrow(runner.o(), block.rows, problem.head_dim, o.row(block.row), o.dtype, o.stride);
  for (std::int32_t r = 0; r < block.rows; ++r) {
    at(args.lse, problem.batch(batch_head), problem.head(batch_head), block.row + r) =
        static_cast<float>(runner.lse()[r]);
  }
}

template <class Real>
void run(const ForwardArgs& args) {
  const Problem problem = problem_of(args);
  const plan::ForwardView& plan = problem.plan;
  const TileOps<Real>& ops = tile_ops<Real>(widest_isa());
  const std::int64_t walks = std::int64_t{plan.header->q128} + plan.header->q64;
  const std::int32_t threads = thread_count(args.threads, walks);
  std::vector<WalkRunner<Real>> runners;
  runners.reserve(static_cast<std::size_t>(threads));
  for (std::int32_t i = 0; i < threads; ++i) {
    runners.emplace_back(problem, ops);
  }

  parallel_for(plan::batch_heads(plan.shape), args.threads,
               [&](std::int64_t batch_head, std::int32_t /*worker*/) {
                 clear_padding(problem, args, batch_head);
               });
  parallel_for(walks, threads, [&](std::int64_t i, std::int32_t worker) {
    WalkRunner<Real>& runner = runners[static_cast<std::size_t>(worker)];
    const std::int64_t walk = plan.queue[i];
    runner.run(walk);
    store(problem, args, ops, runner, walk);
  });
}

}  // namespace

Status forward(const ForwardArgs& args) {
  try {
    if (args.cpu_policy == CpuPolicy::kExact) {
      run<double>(args);
    } else {
      run<float>(args);
    }
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  return {};
}

}  // namespace kpage::cpu
