#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "base/parallel.h"
#include "cpu/cpu.h"
#include "cpu/owner_runner.h"
#include "cpu/padding.h"
#include "cpu/paged_rows.h"
#include "cpu/problem.h"
#include "cpu/row_statistics.h"
#include "cpu/schedule.h"
#include "cpu/turns.h"

namespace kpage::cpu {
namespace {

template <class Real>
class BackwardRun {
 public:
  explicit BackwardRun(const BackwardArgs& args)
      : args_(args),
        problem_(problem_of(args)),
        backward_(plan::backward_view(args.plan)),
        ops_(tile_ops<Real>(widest_isa())),
        q_rows_(problem_.plan.shape, problem_.plan.shape.q_scope, problem_.plan.q_scopes),
        kv_rows_(problem_.plan.shape, problem_.plan.shape.kv_scope, problem_.plan.kv_scopes),
        statistics_(problem_, args, ops_, q_rows_),
        schedule_(problem_.plan, backward_, problem_.group),
        turns_(args.k.shape[0] * args.k.shape[1]),
        dq_(q_rows_.all() * problem_.head_dim) {
    if (problem_.group > 1) {
      const std::int64_t size =
          args.k.shape[0] * args.k.shape[1] * args.k.shape[2] * problem_.head_dim;
      dk_ = Buffer<Real>(size);
      dv_ = Buffer<Real>(size);
    }
    const auto tasks = static_cast<std::int64_t>(schedule_.tasks().size());
    threads_ = thread_count(args.threads, tasks);
    for (std::int32_t i = 0; i < threads_; ++i) {
      workers_.push_back(make_worker());
    }
  }

  void run() {
    parallel_for(static_cast<std::int64_t>(schedule_.tasks().size()), threads_,
                 [&](std::int64_t i, std::int32_t worker) {
                   run_task(schedule_.tasks()[static_cast<std::size_t>(i)],
                            workers_[static_cast<std::size_t>(worker)]);
                 });
  }

 private:
  struct Worker {
    OwnerRunner<Real> runner;
    Buffer<Real> dq;      // of one head, where heads are split
    Buffer<Real> dk, dv;  // of the K/V pages of one head, where several query heads share them
  };

  [[nodiscard]] Worker make_worker() const {
    Worker worker{OwnerRunner<Real>(problem_, backward_, args_.d_o, ops_, statistics_), {}, {}, {}};
    if (schedule_.splits_heads()) {
      worker.dq = Buffer<Real>(q_rows_.most() * problem_.head_dim);
    }
    if (problem_.group > 1) {
      worker.dk = Buffer<Real>(kv_rows_.most() * problem_.head_dim);
      worker.dv = Buffer<Real>(kv_rows_.most() * problem_.head_dim);
    }
    return worker;
  }

  void run_task(const Task& task, Worker& worker) {
    const std::int64_t dq_size = q_rows_.count(task.batch_head) * problem_.head_dim;
    Real* dq_of_head = dq_.data() + q_rows_.first(task.batch_head) * problem_.head_dim;
    Real* dq = task.parts > 1 ? worker.dq.data() : dq_of_head;
    std::fill_n(dq, dq_size, Real{0});
    for (std::int64_t owner = task.owner_begin; owner < task.owner_end; ++owner) {
      worker.runner.run(backward_.owners[owner], schedule_.items(owner), dq);
      keep_owner(backward_.owners[owner], worker);
    }

    turns_.wait(task.kv_head, task.turn);
    if (task.parts > 1) {
      if (task.part == 0) {
        std::copy_n(dq, dq_size, dq_of_head);
      } else {
        ops_.add(dq, dq_size, dq_of_head);
      }
    }
    if (task.part + 1 == task.parts) {
      store_dq(task.batch_head, dq_of_head);
    }
    if (problem_.group > 1) {
      add_to_group(task, worker);
    } else if (task.part == 0) {
      clear_kv_padding(task.batch_head);
    }
    turns_.pass(task.kv_head);
  }

  // Stores an owner's dK and dV; or, where they are but one term of a sum over query heads, keeps
  // them until it is the task's turn to add.
  void keep_owner(const plan::Owner& owner, Worker& worker) {
    Real* dk = worker.runner.dk();
    Real* dv = worker.runner.dv();
    for (std::int32_t b = 0; b < owner.blocks; ++b) {
      const plan::Extent& block = kv_block(owner, b);
      const std::int64_t size = std::int64_t{block.rows} * problem_.head_dim;
      if (problem_.group > 1) {
        const std::int64_t at = PagedRows::of_block(block) * problem_.head_dim;
        std::copy_n(dk, size, worker.dk.data() + at);
        std::copy_n(dv, size, worker.dv.data() + at);
      } else {
        store(dk, block, problem_.scale, problem_.of_kv_head(args_.dk, owner.batch_head));
        store(dv, block, 1, problem_.of_kv_head(args_.dv, owner.batch_head));
      }
      const std::int64_t step = std::int64_t{plan::pages_of(block.rows)} * plan::kPageRows;
      dk += step * problem_.head_dim;
      dv += step * problem_.head_dim;
    }
  }

  void add_to_group(const Task& task, const Worker& worker) {
    const std::int64_t rows = args_.k.shape[2];
    Real* dk = dk_.data() + task.kv_head * rows * problem_.head_dim;
    Real* dv = dv_.data() + task.kv_head * rows * problem_.head_dim;
    if (task.turn == 0) {
      std::fill_n(dk, rows * problem_.head_dim, Real{0});
      std::fill_n(dv, rows * problem_.head_dim, Real{0});
    }
    for (std::int64_t owner = task.owner_begin; owner < task.owner_end; ++owner) {
      for (std::int32_t b = 0; b < backward_.owners[owner].blocks; ++b) {
        const plan::Extent& block = kv_block(backward_.owners[owner], b);
        const std::int64_t from = PagedRows::of_block(block) * problem_.head_dim;
        const std::int64_t to = std::int64_t{block.row} * problem_.head_dim;
        const std::int64_t size = std::int64_t{block.rows} * problem_.head_dim;
        ops_.add(worker.dk.data() + from, size, dk + to);
        ops_.add(worker.dv.data() + from, size, dv + to);
      }
    }
    if (task.last_turn) {
      const std::int64_t batch_head = task.batch_head;
      store_rows(dk, 0, rows, problem_.scale, problem_.of_kv_head(args_.dk, batch_head));
      store_rows(dv, 0, rows, 1, problem_.of_kv_head(args_.dv, batch_head));
    }
  }

  void store_dq(std::int64_t batch_head, Real* dq) {
    const plan::ForwardView& plan = problem_.plan;
    const HeadRows to = problem_.of_query_head(args_.dq, batch_head);
    const plan::Extent* blocks = plan.q_blocks(batch_head);
    for (std::int32_t b = 0; b < plan.shape.q_blocks; ++b) {
      store(dq + PagedRows::of_block(blocks[b]) * problem_.head_dim, blocks[b], problem_.scale, to);
    }
    const std::int64_t scope = plan::scope_of(plan.shape.q_scope, plan.shape, batch_head);
    for_each_gap(plan.q_scopes[scope], blocks, plan.shape.q_blocks, to.rows,
                 [&](std::int64_t begin, std::int64_t end) { zero_rows(to, begin, end); });
  }

  void clear_kv_padding(std::int64_t batch_head) {
    const plan::ForwardView& plan = problem_.plan;
    const std::int64_t scope = plan::scope_of(plan.shape.kv_scope, plan.shape, batch_head);
    for (const TensorRef* t : {&args_.dk, &args_.dv}) {
      const HeadRows to = problem_.of_kv_head(*t, batch_head);
      for_each_gap(plan.kv_scopes[scope], plan.kv_blocks(batch_head), plan.shape.kv_blocks, to.rows,
                   [&](std::int64_t begin, std::int64_t end) { zero_rows(to, begin, end); });
    }
  }

  void store(Real* from, const plan::Extent& block, double scale, const HeadRows& to) {
    store_rows(from, block.row, block.rows, scale, to);
  }

  // Multiplies the sums in place, then rounds them: `from` is [rows, head_dim].
  void store_rows(Real* from, std::int64_t row, std::int64_t rows, double scale,
                  const HeadRows& to) {
    for (std::int64_t i = 0; scale != 1 && i < rows * problem_.head_dim; ++i) {
      from[i] *= static_cast<Real>(scale);
    }
    if (rows > 0) {
      ops_.narrow(from, rows, problem_.head_dim, to.row(row), to.dtype, to.stride);
    }
  }

  [[nodiscard]] const plan::Extent& kv_block(const plan::Owner& owner, std::int32_t i) const {
    return problem_.plan.kv_blocks(owner.batch_head)[backward_.owner_blocks[owner.block_begin + i]];
  }

  const BackwardArgs& args_;
  const Problem problem_;
  const plan::BackwardView backward_;
  const TileOps<Real>& ops_;
  const PagedRows q_rows_;
  const PagedRows kv_rows_;
  const RowStatistics<Real> statistics_;
  const Schedule schedule_;
  Turns turns_;
  Buffer<Real> dq_;       // [rows of the pages of all heads, D]
  Buffer<Real> dk_, dv_;  // [B, Hkv, Sk, D], where several query heads share a key/value head
  std::vector<Worker> workers_;
  std::int32_t threads_ = 1;
};

}  // namespace

Status backward(const BackwardArgs& args) {
  try {
    if (args.cpu_policy == CpuPolicy::kExact) {
      BackwardRun<double>(args).run();
    } else {
      BackwardRun<float>(args).run();
    }
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  return {};
}

}  // namespace kpage::cpu
