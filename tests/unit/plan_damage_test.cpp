// Plans come from files too: one with words changed is refused, or runs within the bounds of its
// tensors.
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kpage/plan.h"

#include "support/backend.h"
#include "support/host_tensor.h"
#include "support/random_case.h"

namespace kpage::test {
namespace {

using Bytes = std::vector<std::byte>;

std::int32_t word_at(const Bytes& blob, std::size_t at) {
  std::int32_t word = 0;
  std::memcpy(&word, blob.data() + at, sizeof word);
  return word;
}

// Changes one word as a wrong index, a wrong length or a flipped bit would.
void damage(Random& random, Bytes& blob) {
  const auto words = static_cast<std::int64_t>(blob.size() / sizeof(std::int32_t));
  const auto somewhere = [&] {
    return static_cast<std::size_t>(random.below(words)) * sizeof(std::int32_t);
  };
  const std::size_t at = somewhere();
  const auto before = static_cast<std::uint32_t>(word_at(blob, at));
  const std::uint32_t changed[] = {before + 1, before - 1, before ^ (1u << random.below(32)),
                                   static_cast<std::uint32_t>(word_at(blob, somewhere())),
                                   static_cast<std::uint32_t>(random.bits())};
  const std::uint32_t word = changed[random.below(std::ssize(changed))];
  std::memcpy(blob.data() + at, &word, sizeof word);
}

// Both passes; whether they could is the arguments' to say.
void run(const Case& c, const Plan& plan) {
  Random random(c.seed);
  const std::array<std::int64_t, 4> q_shape{c.layout.batch, c.layout.heads, c.q_rows, c.head_dim};
  const std::array<std::int64_t, 4> kv_shape{c.layout.batch, c.kv_heads, c.kv_rows, c.head_dim};
  const auto tensor = [&](const std::array<std::int64_t, 4>& shape) {
    return random_tensor(random, shape, DType::kBFloat16, {});
  };
  const HostTensor q = tensor(q_shape);
  const HostTensor k = tensor(kv_shape);
  const HostTensor v = tensor(kv_shape);
  const HostTensor d_o = tensor(q_shape);
  std::array<HostTensor, 4> outputs{tensor(q_shape), tensor(q_shape), tensor(kv_shape),
                                    tensor(kv_shape)};
  auto& [o, dq, dk, dv] = outputs;
  HostRows lse = random_rows(random, {c.layout.batch, c.layout.heads, c.q_rows});
  std::vector<Bytes> before;
  for (HostTensor& output : outputs) {
    poison(output);
    before.push_back(output.storage);
  }
  CpuBackend backend(CpuPolicy::kAsKernel);
  (void)backend.forward({plan, c.scale, q, k, v, o, lse, 2});
  (void)backend.backward({plan, c.scale, q, k, v, o, lse, d_o, nullptr, dq, dk, dv, 2});
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_TRUE(guards_untouched(outputs[i], before[i])) << "memory beside output " << i;
  }
}

TEST(DamagedPlan, IsRefusedOrStaysInBounds) {
  constexpr std::uint64_t kPlans = 200;
  int refused = 0;
  for (std::uint64_t seed = 0; seed < kPlans; ++seed) {
    const Case c = random_case(seed);
    SCOPED_TRACE(c.describe());
    Result<Plan> made = Plan::build(c.layout.view());
    ASSERT_TRUE(made.ok()) << made.status().message();
    ASSERT_TRUE(made.value().build_backward().ok());
    const Plan& plan = made.value();
    Random random(seed);
    Bytes forward(plan.forward().begin(), plan.forward().end());
    Bytes backward(plan.backward().begin(), plan.backward().end());
    for (std::int64_t changes = random.between(1, 3); changes > 0; --changes) {
      damage(random, random.chance(0.5) ? forward : backward);
    }
    const Result<Plan> damaged = Plan::adopt(plan.shape(), forward, backward);
    if (damaged.ok()) {
      (void)damaged.value().stats();
      (void)damaged.value().dump();
      run(c, damaged.value());
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, static_cast<int>(kPlans / 2));
}

}  // namespace
}  // namespace kpage::test
