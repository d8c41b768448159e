#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/elements.h"
#include "cpu/cpu.h"
#include "cpu/schedule.h"
#include "oracle/accuracy.h"
#include "oracle/oracle.h"
#include "plan/views.h"

namespace kpage::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A contiguous [batch, heads, rows, head_dim] tensor of bf16.
struct Tensor {
  std::vector<std::uint16_t> data;
  TensorRef ref;

  Tensor(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t head_dim, int seed)
      : data(static_cast<std::size_t>(batch * heads * rows * head_dim)) {
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto x = static_cast<double>((i * i % 1013 + i) % 4096);
      data[i] = float_to_bf16(static_cast<float>(1.5 * std::sin(x * 0.37 + seed)));
    }
    ref = {data.data(),
           DType::kBFloat16,
           {},
           {batch, heads, rows, head_dim},
           {heads * rows * head_dim, rows * head_dim, head_dim, 1}};
  }
};

struct Rows {
  std::vector<float> data;
  RowsRef ref;

  Rows(std::int64_t batch, std::int64_t heads, std::int64_t rows)
      : data(static_cast<std::size_t>(batch * heads * rows), 7.f),
        ref{data.data(), {}, {batch, heads, rows}, {heads * rows, rows, 1}} {}
};

// Every query block of every head attends to every key/value block.
struct Problem {
  Layout layout;
  std::int64_t heads, kv_heads, q_rows, kv_rows, head_dim;
  Tensor q, k, v, o, d_o, dq, dk, dv;
  Rows lse;

  Problem(std::int32_t heads_in, std::int32_t kv_heads_in, const std::vector<std::int32_t>& q_sizes,
          const std::vector<std::int32_t>& kv_sizes, std::int64_t head_dim_in)
      : layout(dense(heads_in, q_sizes, kv_sizes)),
        heads(heads_in),
        kv_heads(kv_heads_in),
        q_rows(kBlockRows * layout.q_blocks),
        kv_rows(kBlockRows * layout.kv_blocks),
        head_dim(head_dim_in),
        q(1, heads, q_rows, head_dim, 1),
        k(1, kv_heads, kv_rows, head_dim, 2),
        v(1, kv_heads, kv_rows, head_dim, 3),
        o(1, heads, q_rows, head_dim, 4),
        d_o(1, heads, q_rows, head_dim, 5),
        dq(1, heads, q_rows, head_dim, 6),
        dk(1, kv_heads, kv_rows, head_dim, 7),
        dv(1, kv_heads, kv_rows, head_dim, 8),
        lse(1, heads, q_rows) {}

  static Layout dense(std::int32_t heads, const std::vector<std::int32_t>& q_sizes,
                      const std::vector<std::int32_t>& kv_sizes) {
    Layout layout;
    layout.heads = heads;
    layout.q_blocks = static_cast<std::int32_t>(q_sizes.size());
    layout.kv_blocks = static_cast<std::int32_t>(kv_sizes.size());
    layout.shared_partition = false;
    layout.q_sizes = q_sizes;
    layout.kv_sizes = kv_sizes;
    const std::vector<std::uint8_t> map(
        static_cast<std::size_t>(heads) * q_sizes.size() * kv_sizes.size(), 1);
    EXPECT_TRUE(set_graph_from_block_map(layout, map).ok());
    return layout;
  }

  [[nodiscard]] Plan plan() const {
    Result<Plan> plan = Plan::build(layout.view());
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_TRUE(plan.value().build_backward().ok());
    return std::move(plan).value();
  }

  [[nodiscard]] Status run(const Plan& built, std::int32_t threads) {
    ForwardArgs args;
    args.q = q.ref;
    args.k = k.ref;
    args.v = v.ref;
    args.plan = built.ref();
    args.o = o.ref;
    args.lse = lse.ref;
    args.threads = threads;
    if (Status status = forward(args); !status.ok()) {
      return status;
    }
    BackwardArgs back;
    back.q = q.ref;
    back.k = k.ref;
    back.v = v.ref;
    back.o = o.ref;
    back.lse = lse.ref;
    back.d_o = d_o.ref;
    back.plan = built.ref();
    back.dq = dq.ref;
    back.dk = dk.ref;
    back.dv = dv.ref;
    back.threads = threads;
    return backward(back);
  }

  [[nodiscard]] std::vector<std::vector<std::uint16_t>> outputs() const {
    return {o.data, dq.data, dk.data, dv.data};
  }
};

double relative_l2(const Tensor& got, const std::vector<double>& want) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = static_cast<double>(bf16_to_float(got.data[i])) - want[i];
    error += difference * difference;
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

// `keys`: of every list; the contract's limit on gradients depends on it.
void expect_oracle(const Problem& p, std::int64_t keys) {
  const double limit = oracle::gradient_limit(DType::kBFloat16, keys);
  const oracle::Problem problem{p.layout.view(), p.q.ref, p.k.ref, p.v.ref, {}, 0};
  const auto forward = oracle::forward(problem);
  const auto backward = oracle::backward(problem, {p.d_o.ref, {}});
  ASSERT_TRUE(forward.ok() && backward.ok());
  EXPECT_LE(relative_l2(p.o, forward.value().o), oracle::forward_limit(DType::kBFloat16));
  EXPECT_LE(relative_l2(p.dq, backward.value().dq), limit);
  EXPECT_LE(relative_l2(p.dk, backward.value().dk), limit);
  EXPECT_LE(relative_l2(p.dv, backward.value().dv), limit);
}

// One head in many tasks, and several query heads that add to the same keys, on any threads.
TEST(CpuAttention, IsTheSameOnAnyNumberOfThreads) {
  for (const std::int32_t kv_heads : {1, 3}) {
    Problem p(3, kv_heads, {128, 17, 0, 64, 100, 16, 1, 128}, {5, 128, 90, 63, 0, 65, 15, 127}, 64);
    const Plan plan = p.plan();
    ASSERT_TRUE(p.run(plan, 1).ok());
    expect_oracle(p, 493);
    const auto outputs = p.outputs();
    for (const std::int32_t threads : {2, 3, 16}) {
      for (Tensor* t : {&p.o, &p.dq, &p.dk, &p.dv}) {
        std::fill(t->data.begin(), t->data.end(), std::uint16_t{0x7fff});
      }
      ASSERT_TRUE(p.run(plan, threads).ok());
      EXPECT_EQ(p.outputs(), outputs) << threads << " threads, " << kv_heads << " K/V heads";
    }
  }
}

TEST(CpuAttention, RowsWithoutKeysAreZero) {
  Problem p(1, 1, {16, 40}, {0, 0, 0}, 32);
  const Plan plan = p.plan();
  ASSERT_TRUE(p.run(plan, 0).ok());
  for (const auto& output : p.outputs()) {
    for (const std::uint16_t bits : output) {
      EXPECT_EQ(bits, 0);
    }
  }
  for (const float lse : p.lse.data) {
    EXPECT_EQ(lse, -kInf);
  }
}

// Lists so long that an owner's walk is cut into several items.
TEST(CpuAttention, GroupsOfAnOwnerAddUp) {
  const std::int32_t blocks = plan::kGroupPages / plan::kBlockPages + 3;
  Problem p(1, 1, std::vector<std::int32_t>(static_cast<std::size_t>(blocks), kBlockRows), {21}, 8);
  const Plan plan = p.plan();
  EXPECT_GT(plan::backward_view(plan.ref()).items[0].groups, 1);
  ASSERT_TRUE(p.run(plan, 0).ok());
  expect_oracle(p, 21);
}

TEST(CpuSchedule, TasksHaveEveryOwnerOnceAndTurnsInOrder) {
  Problem p(6, 2, {128, 128, 70}, {128, 64, 64, 128, 1, 128, 128}, 8);
  const Plan plan = p.plan();
  const auto backward = plan::backward_view(plan.ref());
  const Schedule schedule(plan::forward_view(plan.ref()), backward, 3);
  std::int64_t owner = 0;
  std::int64_t kv_head = -1;
  std::int32_t turn = 0;
  for (const Task& task : schedule.tasks()) {
    EXPECT_EQ(task.owner_begin, owner);
    for (; owner < task.owner_end; ++owner) {
      EXPECT_EQ(backward.owners[owner].batch_head, task.batch_head);
      for (const std::uint32_t item : schedule.items(owner)) {
        EXPECT_EQ(backward.items[item].owner, owner);
      }
    }
    EXPECT_EQ(task.kv_head, task.batch_head / 3);
    turn = task.kv_head == kv_head ? turn + 1 : 0;
    kv_head = task.kv_head;
    EXPECT_EQ(task.turn, turn);
  }
  EXPECT_EQ(owner, backward.header->owners);
  EXPECT_TRUE(schedule.splits_heads());
}

}  // namespace
}  // namespace kpage::cpu
