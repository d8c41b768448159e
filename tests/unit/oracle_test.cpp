#include "oracle/oracle.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/elements.h"
#include "oracle/accuracy.h"

namespace kpage::oracle {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Numbers without a pattern, in [-1, 1].
double number(std::int64_t i) { return std::sin(static_cast<double>(i * i % 1013 + i) * 0.37); }

// A contiguous fp64 tensor.
struct Tensor {
  std::vector<double> data;
  TensorRef ref;

  Tensor(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t head_dim,
         std::int64_t seed)
      : data(static_cast<std::size_t>(batch * heads * rows * head_dim)) {
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i] = number(seed * 7919 + static_cast<std::int64_t>(i));
    }
    ref = {data.data(),
           DType::kFloat64,
           {},
           {batch, heads, rows, head_dim},
           {heads * rows * head_dim, rows * head_dim, head_dim, 1}};
  }
  double* row(std::int64_t batch, std::int64_t head, std::int64_t row) {
    return data.data() + row_start(ref, batch, head, row);
  }
};

// Two batch elements, four query heads over two key/value heads, blocks with gaps and out of order,
// an empty block in a list, a query block without keys, a key block that nobody selects, and
// garbage past the counts.
struct Case {
  static constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kQRows = 24, kKvRows = 30;
  static constexpr std::int64_t kDim = 4;
  std::vector<std::int32_t> q_sizes{5, 0, 9, 3};
  std::vector<std::int32_t> q_offsets{12, 7, 1, 20};
  std::vector<std::int32_t> kv_sizes{8, 0, 6, 3, 4};
  std::vector<std::int32_t> kv_offsets{20, 999, 2, 10, 14};
  std::vector<std::int32_t> index;
  std::vector<std::int32_t> nums;
  LayoutView layout;
  Tensor q{kBatch, kHeads, kQRows, kDim, 1};
  Tensor k{kBatch, kKvHeads, kKvRows, kDim, 2};
  Tensor v{kBatch, kKvHeads, kKvRows, kDim, 3};
  Tensor d_o{kBatch, kHeads, kQRows, kDim, 4};
  std::vector<float> d_lse;

  Case() {
    const std::vector<std::vector<std::int32_t>> lists{{2, 0, 1}, {0}, {3}, {}};
    for (std::int64_t i = 0; i < kBatch * kHeads; ++i) {
      for (std::size_t b = 0; b < lists.size(); ++b) {
        const auto& list = lists[(b + static_cast<std::size_t>(i)) % lists.size()];
        nums.push_back(static_cast<std::int32_t>(list.size()));
        index.insert(index.end(), list.begin(), list.end());
        index.resize(nums.size() * 3, -77);
      }
    }
    for (std::int64_t i = 0; i < kBatch * kHeads * kQRows; ++i) {
      d_lse.push_back(static_cast<float>(number(i + 5)));
    }
    layout.batch = kBatch;
    layout.heads = kHeads;
    layout.q = {q_sizes.data(), q_offsets.data(), 4, PartitionScope::kShared};
    layout.kv = {kv_sizes.data(), kv_offsets.data(), 5, PartitionScope::kShared};
    layout.q2k_block_index = index.data();
    layout.q2k_block_nums = nums.data();
    layout.max_list = 3;
  }

  [[nodiscard]] Problem problem() const { return {layout, q.ref, k.ref, v.ref, {}, 2}; }
  [[nodiscard]] RowsRef rows_ref(std::vector<float>& data) const {
    return {data.data(), {}, {kBatch, kHeads, kQRows}, {kHeads * kQRows, kQRows, 1}};
  }
  [[nodiscard]] OutputGradients gradients() { return {d_o.ref, rows_ref(d_lse)}; }

  // Whether a query row attends to a key row, from the definition.
  [[nodiscard]] bool attends(std::int64_t batch, std::int64_t head, std::int64_t q_row,
                             std::int64_t kv_row) const {
    for (std::size_t b = 0; b < q_sizes.size(); ++b) {
      const std::size_t i = static_cast<std::size_t>(batch * kHeads + head) * q_sizes.size() + b;
      for (std::size_t j = 0; j < static_cast<std::size_t>(nums[i]); ++j) {
        const auto block = static_cast<std::size_t>(index[i * 3 + j]);
        if (q_row >= q_offsets[b] && q_row < q_offsets[b] + q_sizes[b] &&
            kv_row >= kv_offsets[block] && kv_row < kv_offsets[block] + kv_sizes[block]) {
          return true;
        }
      }
    }
    return false;
  }
  [[nodiscard]] bool key_is_used(std::int64_t kv_head, std::int64_t kv_row) const {
    bool used = false;
    for (std::int64_t i = 0; i < kBatch * 2 * kQRows; ++i) {
      used = used || attends(i / 2 / kQRows, kv_head * 2 + i / kQRows % 2, i % kQRows, kv_row);
    }
    return used;
  }
  // What a loss that is linear in O and LSE amounts to, term by term.
  [[nodiscard]] double loss() {
    double sum = 0;
    for (std::int64_t i = 0; i < kBatch * kHeads * kQRows; ++i) {
      const std::int64_t batch = i / kQRows / kHeads;
      const std::int64_t head = i / kQRows % kHeads;
      const std::int64_t row = i % kQRows;
      double denominator = 0;
      double numerator = 0;
      for (std::int64_t key = 0; key < kKvRows; ++key) {
        if (!attends(batch, head, row, key)) {
          continue;
        }
        double score = 0;
        double value = 0;
        for (std::int64_t d = 0; d < kDim; ++d) {
          score += q.row(batch, head, row)[d] * k.row(batch, head / 2, key)[d];
          value += d_o.row(batch, head, row)[d] * v.row(batch, head / 2, key)[d];
        }
        const double weight = std::exp(score / 2);  // 1 / sqrt(4)
        denominator += weight;
        numerator += weight * value;
      }
      if (denominator > 0) {
        sum += numerator / denominator +
               static_cast<double>(d_lse[static_cast<std::size_t>(i)]) * std::log(denominator);
      }
    }
    return sum;
  }
};

TEST(Oracle, ForwardIsTheDefinition) {
  Case c;
  const Result<Forward> got = forward(c.problem());
  ASSERT_TRUE(got.ok()) << got.status().message();
  // The loss is linear in O and LSE, so it weighs every element of both.
  double loss = 0;
  for (std::size_t i = 0; i < got.value().lse.size(); ++i) {
    if (std::isfinite(got.value().lse[i])) {
      loss += got.value().lse[i] * static_cast<double>(c.d_lse[i]);
    }
    for (std::size_t d = 0; d < Case::kDim; ++d) {
      loss += got.value().o[i * Case::kDim + d] * c.d_o.data[i * Case::kDim + d];
    }
  }
  EXPECT_NEAR(loss, c.loss(), 1e-10);
}

TEST(Oracle, RowsWithoutKeysAreZero) {
  Case c;
  const Result<Forward> got = forward(c.problem());
  const Result<Backward> back = backward(c.problem(), c.gradients());
  ASSERT_TRUE(got.ok() && back.ok());
  for (std::int64_t i = 0; i < Case::kBatch * Case::kHeads * Case::kQRows; ++i) {
    bool any = false;
    for (std::int64_t key = 0; key < Case::kKvRows; ++key) {
      any = any || c.attends(i / Case::kQRows / Case::kHeads, i / Case::kQRows % Case::kHeads,
                             i % Case::kQRows, key);
    }
    const auto row = static_cast<std::size_t>(i);
    EXPECT_EQ(std::isfinite(got.value().lse[row]), any);
    if (!any) {
      EXPECT_EQ(got.value().lse[row], -kInf);
      EXPECT_EQ(got.value().o[row * Case::kDim], 0);
      EXPECT_EQ(back.value().dq[row * Case::kDim], 0);
    }
  }
}

TEST(Oracle, GradientsAreTheSlopesOfTheLoss) {
  Case c;
  const Result<Backward> got = backward(c.problem(), c.gradients());
  ASSERT_TRUE(got.ok()) << got.status().message();
  const auto check = [&](Tensor& input, const std::vector<double>& gradient, const char* name) {
    for (std::size_t i = 0; i < input.data.size(); ++i) {
      constexpr double kStep = 1e-5;
      const double at = input.data[i];
      input.data[i] = at + kStep;
      const double above = c.loss();
      input.data[i] = at - kStep;
      const double below = c.loss();
      input.data[i] = at;
      ASSERT_NEAR((above - below) / (2 * kStep), gradient[i], 1e-8) << name << " element " << i;
    }
  };
  check(c.q, got.value().dq, "q");
  check(c.k, got.value().dk, "k");
  check(c.v, got.value().dv, "v");
}

TEST(Oracle, PaddingIsNotRead) {
  Case clean;
  Case poisoned;
  const auto poison = [](double* row) { std::fill_n(row, Case::kDim, kNaN); };
  for (std::int64_t i = 0; i < Case::kBatch * Case::kHeads * Case::kQRows; ++i) {
    const std::int64_t row = i % Case::kQRows;
    bool valid = false;
    for (std::size_t b = 0; b < clean.q_sizes.size(); ++b) {
      valid = valid || (row >= clean.q_offsets[b] && row < clean.q_offsets[b] + clean.q_sizes[b]);
    }
    if (!valid) {
      poison(poisoned.q.data.data() + i * Case::kDim);
      poison(poisoned.d_o.data.data() + i * Case::kDim);
      poisoned.d_lse[static_cast<std::size_t>(i)] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  std::int64_t unused = 0;
  for (std::int64_t i = 0; i < Case::kBatch * Case::kKvHeads * Case::kKvRows; ++i) {
    const std::int64_t row = i % Case::kKvRows;
    if (!clean.key_is_used(i / Case::kKvRows % Case::kKvHeads, row)) {
      poison(poisoned.k.data.data() + i * Case::kDim);
      poison(poisoned.v.data.data() + i * Case::kDim);
      ++unused;
    }
  }
  ASSERT_GT(unused, 0);
  EXPECT_EQ(forward(poisoned.problem()).value().o, forward(clean.problem()).value().o);
  EXPECT_EQ(forward(poisoned.problem()).value().lse, forward(clean.problem()).value().lse);
  const Result<Backward> got = backward(poisoned.problem(), poisoned.gradients());
  const Result<Backward> want = backward(clean.problem(), clean.gradients());
  EXPECT_EQ(got.value().dq, want.value().dq);
  EXPECT_EQ(got.value().dk, want.value().dk);
  EXPECT_EQ(got.value().dv, want.value().dv);
}

TEST(Oracle, SampledRowsAreRowsOfTheWhole) {
  Case c;
  const Forward whole = forward(c.problem()).value();
  const Backward back = backward(c.problem(), c.gradients()).value();
  std::vector<Row> queries;
  for (std::int64_t i = 0; i < 60; ++i) {
    queries.push_back({i % 2, i % 4, (i * 13) % Case::kQRows});
  }
  std::vector<Row> keys;
  for (std::int64_t i = 0; i < 60; ++i) {
    keys.push_back({i % 2, (i / 2) % 2, (i * 17) % Case::kKvRows});
  }
  const QueryRows q = query_rows(c.problem(), queries, c.gradients()).value();
  const KeyRows k = key_rows(c.problem(), keys, c.gradients()).value();
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const auto at = static_cast<std::size_t>(
        (queries[i].batch * Case::kHeads + queries[i].head) * Case::kQRows + queries[i].row);
    EXPECT_THAT(q.lse[i], testing::AnyOf(testing::DoubleNear(whole.lse[at], 1e-13), -kInf));
    EXPECT_EQ(std::isfinite(q.lse[i]), std::isfinite(whole.lse[at]));
    for (std::size_t d = 0; d < Case::kDim; ++d) {
      EXPECT_NEAR(q.o[i * Case::kDim + d], whole.o[at * Case::kDim + d], 1e-13);
      EXPECT_NEAR(q.dq[i * Case::kDim + d], back.dq[at * Case::kDim + d], 1e-13);
    }
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto at = static_cast<std::size_t>(
        (keys[i].batch * Case::kKvHeads + keys[i].head) * Case::kKvRows + keys[i].row);
    for (std::size_t d = 0; d < Case::kDim; ++d) {
      EXPECT_NEAR(k.dk[i * Case::kDim + d], back.dk[at * Case::kDim + d], 1e-13);
      EXPECT_NEAR(k.dv[i * Case::kDim + d], back.dv[at * Case::kDim + d], 1e-13);
    }
  }
}

TEST(Oracle, GradientsMayStartFromGivenOutputs) {
  Case c;
  Forward exact = forward(c.problem()).value();
  Tensor o{Case::kBatch, Case::kHeads, Case::kQRows, Case::kDim, 0};
  o.data = exact.o;
  std::vector<float> lse(exact.lse.begin(), exact.lse.end());
  const ForwardOutputs outputs{o.ref, c.rows_ref(lse)};
  const Backward want = backward(c.problem(), c.gradients()).value();
  const Backward got = backward(c.problem(), c.gradients(), outputs).value();
  Error error;
  for (std::size_t i = 0; i < want.dk.size(); ++i) {
    error.add(got.dk[i], want.dk[i]);
  }
  EXPECT_LT(error.relative_l2(), 1e-6);  // an fp32 LSE
  EXPECT_GT(error.relative_l2(), 0);
  const std::vector<Row> keys{{1, 1, 22}, {0, 0, 3}};
  const KeyRows rows = key_rows(c.problem(), keys, c.gradients(), outputs).value();
  for (std::size_t d = 0; d < Case::kDim; ++d) {
    const std::size_t at = ((1 * Case::kKvHeads + 1) * Case::kKvRows + 22) * Case::kDim + d;
    EXPECT_NEAR(rows.dk[d], got.dk[at], 1e-13);
  }
}

TEST(Oracle, NamesWhatIsWrong) {
  Case c;
  const auto message = [&](const Problem& problem) { return forward(problem).status().message(); };
  Problem problem = c.problem();
  problem.k.shape[1] = 3;
  EXPECT_EQ(message(problem), "k: expected a number of heads that divides 4, got 3");
  problem = c.problem();
  problem.v.shape[2] = 29;
  EXPECT_EQ(message(problem), "v: expected shape [2, 2, 30, 4], got [2, 2, 29, 4]");
  problem = c.problem();
  problem.k.shape[2] = problem.v.shape[2] = 27;
  EXPECT_EQ(message(problem), "k: expected at least 28 rows, got 27");
  problem = c.problem();
  problem.scale = kNaN;
  EXPECT_EQ(message(problem), "scale: expected a finite number, got nan");
  const std::vector<Row> rows{{0, 0, 1}, {0, 4, 1}};
  EXPECT_EQ(query_rows(c.problem(), rows).status().message(),
            "rows[1]: expected a (batch, head, row) of q below [2, 4, 24], got [0, 4, 1]");
}

TEST(Accuracy, MeasuresWhatItSays) {
  Error error;
  EXPECT_EQ(error.relative_l2(), 0);
  error.add(3, 3);
  error.add(4.5, 4);
  EXPECT_DOUBLE_EQ(error.relative_l2(), 0.1);
  error.add(kNaN, 0);
  EXPECT_TRUE(std::isnan(error.relative_l2()));
  EXPECT_TRUE(std::isnan(error.largest()));
  EXPECT_NEAR(lse_error(1 + 1e-6, 1), 0.5, 1e-8);
  EXPECT_NEAR(lse_error(100 + 1e-4, 100), 1, 1e-8);
  EXPECT_EQ(lse_error(-kInf, -kInf), 0);
  EXPECT_EQ(lse_error(-kInf, 0), kInf);
  EXPECT_EQ(shortest_list(Case().layout), 3);
}

}  // namespace
}  // namespace kpage::oracle
