#include "support/attention_property.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "oracle/accuracy.h"
#include "support/plan_pairs.h"
#include "support/reference.h"

namespace kpage::test {
namespace {

std::optional<Plan> checked_plan(const LayoutView& layout) {
  Result<Plan> plan = Plan::build(layout);
  if (!plan.ok()) {
    ADD_FAILURE() << plan.status().message();
    return std::nullopt;
  }
  if (const Status status = plan.value().build_backward(); !status.ok()) {
    ADD_FAILURE() << status.message();
    return std::nullopt;
  }
  const Status valid = plan.value().validate();
  EXPECT_TRUE(valid.ok()) << valid.message();
  EXPECT_EQ(forward_pairs_difference(layout, plan.value()), "");
  EXPECT_EQ(backward_pairs_difference(layout, plan.value()), "");
  return std::move(plan).value();
}

// The tensors of a run, where padding holds what a filler puts there.
struct Inputs {
  HostTensor q, k, v, d_o;
  std::optional<HostRows> d_lse;

  // Writes the numbers of the reference, with new padding.
  void fill(Random& random, Filler filler, const Reference& reference) {
    const auto write = [&](auto& tensor, std::vector<double> values,
                           const std::vector<bool>& rows) {
      fill_outside(random, filler, rows, values);
      write_values(tensor, values);
    };
    write(q, reference.numbers.q, reference.rows.q_valid);
    write(k, reference.numbers.k, reference.rows.attended);
    write(v, reference.numbers.v, reference.rows.attended);
    write(d_o, reference.numbers.d_o, reference.rows.q_valid);
    if (d_lse) {
      write(*d_lse, reference.numbers.d_lse, reference.rows.q_valid);
    }
  }
};

struct Outputs {
  HostTensor o, dq, dk, dv;
  HostRows lse;
};

// Every element of a run's outputs, read back from whatever strides they had.
struct Results {
  std::vector<double> o, lse, dq, dk, dv;
};

// Runs both passes. Everything that only a run can tell (errors, writes where none may be) is
// expected here; what the numbers should be is the caller's.
class Runner {
 public:
  Runner(const Case& c, const Reference& reference, const Plan& plan, Backend& backend)
      : case_(c), reference_(reference), plan_(plan), backend_(backend), random_(c.seed + 17) {
    const std::array<std::int64_t, 4> q_shape{c.layout.batch, c.layout.heads, c.q_rows, c.head_dim};
    const std::array<std::int64_t, 4> kv_shape{c.layout.batch, c.kv_heads, c.kv_rows, c.head_dim};
    const std::array<std::int64_t, 3> rows_shape{c.layout.batch, c.layout.heads, c.q_rows};
    const auto tensor = [&](const std::array<std::int64_t, 4>& shape) {
      return random_tensor(random_, shape, backend.dtype(reference.half), backend.alignment());
    };
    in_.q = tensor(q_shape);
    in_.k = tensor(kv_shape);
    in_.v = tensor(kv_shape);
    in_.d_o = tensor(q_shape);
    if (c.has_d_lse) {
      in_.d_lse = random_rows(random_, rows_shape);
    }
    out_.o = tensor(q_shape);
    out_.lse = random_rows(random_, rows_shape);
    out_.dq = tensor(q_shape);
    out_.dk = tensor(kv_shape);
    out_.dv = tensor(kv_shape);
  }

  std::optional<Results> run(Filler filler, std::int32_t threads) {
    in_.fill(random_, filler, reference_);
    const Status forward = guarded({&in_.q, &in_.k, &in_.v}, {}, {&out_.o}, {&out_.lse}, [&] {
      return backend_.forward({plan_, case_.scale, in_.q, in_.k, in_.v, out_.o, out_.lse, threads});
    });
    if (!forward.ok()) {
      ADD_FAILURE() << "forward: " << forward.message();
      return std::nullopt;
    }
    Results results;
    results.o = read_values(out_.o);
    results.lse = read_values(out_.lse);
    refill_outputs(filler, results);
    const HostRows* d_lse = in_.d_lse ? &*in_.d_lse : nullptr;
    const Status backward = guarded(
        {&in_.q, &in_.k, &in_.v, &in_.d_o, &out_.o}, {&out_.lse, d_lse},
        {&out_.dq, &out_.dk, &out_.dv}, {}, [&] {
          return backend_.backward({plan_, case_.scale, in_.q, in_.k, in_.v, out_.o, out_.lse,
                                    in_.d_o, d_lse, out_.dq, out_.dk, out_.dv, threads});
        });
    if (!backward.ok()) {
      ADD_FAILURE() << "backward: " << backward.message();
      return std::nullopt;
    }
    results.dq = read_values(out_.dq);
    results.dk = read_values(out_.dk);
    results.dv = read_values(out_.dv);
    return results;
  }

 private:
  // Backward may not rely on what forward wrote in padding.
  void refill_outputs(Filler filler, const Results& results) {
    std::vector<double> o = results.o;
    std::vector<double> lse = results.lse;
    fill_outside(random_, filler, reference_.rows.q_valid, o);
    fill_outside(random_, filler, reference_.rows.q_valid, lse);
    write_values(out_.o, o);
    write_values(out_.lse, lse);
  }

  template <class Fn>
  Status guarded(const std::vector<const HostTensor*>& inputs,
                 const std::vector<const HostRows*>& input_rows,
                 const std::vector<HostTensor*>& outputs, const std::vector<HostRows*>& output_rows,
                 const Fn& fn) {
    std::vector<std::vector<std::byte>> before;
    const auto each = [](const auto& list, const auto& apply) {
      for (auto* item : list) {
        if (item != nullptr) {
          apply(*item);
        }
      }
    };
    each(outputs, [](HostTensor& t) { poison(t); });
    each(output_rows, [](HostRows& t) { poison(t); });
    const auto keep = [&](const auto& t) { before.push_back(t.storage); };
    each(inputs, keep);
    each(input_rows, keep);
    each(outputs, keep);
    each(output_rows, keep);
    Status status = fn();
    auto at = before.begin();
    const auto same = [&](const auto& t) {
      EXPECT_TRUE(t.storage == *at++) << "an input was written";
    };
    const auto same_around = [&](const auto& t) {
      EXPECT_TRUE(guards_untouched(t, *at++)) << "memory beside an output was written";
    };
    each(inputs, same);
    each(input_rows, same);
    each(outputs, same_around);
    each(output_rows, same_around);
    return status;
  }

  const Case& case_;
  const Reference& reference_;
  const Plan& plan_;
  Backend& backend_;
  Random random_;
  Inputs in_;
  Outputs out_;
};

// The error over the rows that count, and the first element outside them that is not zero.
oracle::Error error_of(const char* name, const std::vector<double>& got,
                       const std::vector<double>& want, const std::vector<bool>& rows) {
  oracle::Error error;
  const std::size_t per_row = rows.empty() ? 1 : got.size() / rows.size();
  bool reported = false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (rows[i / per_row]) {
      error.add(got[i], want[i]);
    } else if (got[i] != 0 && !reported) {
      ADD_FAILURE() << name << " is " << got[i] << " in padding, row " << i / per_row;
      reported = true;
    }
  }
  return error;
}

// `cosine` is the least that theirs may be; -1 asks nothing.
void expect_near(const char* name, const std::vector<double>& got, const std::vector<double>& want,
                 const std::vector<bool>& rows, double limit, double cosine) {
  const oracle::Error error = error_of(name, got, want, rows);
  EXPECT_LE(error.relative_l2(), limit) << name << ", of norm " << error.norm();
  EXPECT_GE(error.cosine(), cosine) << name << ", of norm " << error.norm();
}

void expect_lse(const std::vector<double>& got, const std::vector<double>& want) {
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = oracle::lse_error(got[i], want[i]);
    if (!(error <= worst)) {
      worst = error;
      at = i;
    }
  }
  EXPECT_LE(worst, 1) << "LSE is " << got[at] << " instead of " << want[at] << ", row " << at;
}

// Half a unit in the last place, where a row's probabilities are all the same number: their
// rounding does not average out as it does over different ones.
double rounding_of_one_probability(const Case& c, DType dtype) {
  constexpr double kHalfUlp = 0x1p-11;
  return c.scale == 0.0 && dtype == DType::kFloat16 ? kHalfUlp : 0;
}

void expect_results(const Case& c, const Results& got, const Reference& reference, DType dtype) {
  const RowSets& rows = reference.rows;
  const std::int64_t shortest = reference.shortest_list;
  const double limit =
      std::max(oracle::gradient_limit(dtype, shortest), rounding_of_one_probability(c, dtype));
  const double cosine = oracle::gradient_cosine(dtype, shortest);
  const oracle::Backward& want = reference.backward;
  expect_near("O", got.o, reference.forward.o, rows.q_valid, oracle::forward_limit(dtype), -1);
  expect_lse(got.lse, reference.forward.lse);
  expect_near("dV", got.dv, want.dv, rows.attended, limit, cosine);
  if (shortest == 1 && error_of("dQ", want.dq, want.dq, rows.q_valid).norm() == 0) {
    // Every list has one key, so that dQ and dK cancel: what rounding leaves is small beside dV.
    const double left = limit * error_of("dV", want.dv, want.dv, rows.attended).norm();
    EXPECT_LE(error_of("dQ", got.dq, want.dq, rows.q_valid).distance(), left);
    EXPECT_LE(error_of("dK", got.dk, want.dk, rows.attended).distance(), left);
    return;
  }
  expect_near("dQ", got.dq, want.dq, rows.q_valid, limit, cosine);
  expect_near("dK", got.dk, want.dk, rows.attended, limit, cosine);
}

void check_backend(const Case& c, const Reference& reference, const Plan& plan, Backend& backend) {
  SCOPED_TRACE(backend.name());
  Runner runner(c, reference, plan, backend);
  const std::optional<Results> got = runner.run(Filler::kNaN, 1);
  if (!got) {
    return;
  }
  const DType dtype = backend.dtype(reference.half);
  expect_results(c, *got, reference, dtype);
  const std::optional<Results> again = runner.run(Filler::kMixed, 2);
  if (!again) {
    return;
  }
  EXPECT_TRUE(again->o == got->o && again->lse == got->lse)
      << "outputs depend on what padding holds, or on the number of threads";
  if (backend.deterministic()) {
    EXPECT_TRUE(again->dq == got->dq && again->dk == got->dk && again->dv == got->dv)
        << "gradients depend on what padding holds, or on the number of threads";
  } else {
    expect_results(c, *again, reference, dtype);
  }
}

std::optional<std::int64_t> environment_number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional<std::int64_t>(std::atoll(text));
}

}  // namespace

void check_case(const Case& c, const std::vector<Backend*>& backends) {
  SCOPED_TRACE(c.describe());
  const LayoutView layout = c.layout.view();
  const Status valid = validate(layout);
  ASSERT_TRUE(valid.ok()) << valid.message();
  const std::optional<Plan> plan = checked_plan(layout);
  const DType half = c.seed % 2 == 0 ? DType::kBFloat16 : DType::kFloat16;
  const Result<Reference> reference = make_reference(c, half);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  if (plan) {
    for (Backend* backend : backends) {
      check_backend(c, reference.value(), *plan, *backend);
    }
  }
}

void check_shard(std::int64_t shard, std::int64_t shards, std::int64_t count,
                 const std::vector<Backend*>& backends) {
  if (const auto seed = environment_number("KPAGE_PROPERTY_SEED")) {
    if (shard == 0) {
      check_case(random_case(static_cast<std::uint64_t>(*seed)), backends);
    }
    return;
  }
  count = environment_number("KPAGE_PROPERTY_COUNT").value_or(count);
  constexpr int kEnough = 10;  // failures after which more would only scroll
  for (std::int64_t seed = shard; seed < count; seed += shards) {
    check_case(random_case(static_cast<std::uint64_t>(seed)), backends);
    const testing::TestResult* result =
        testing::UnitTest::GetInstance()->current_test_info()->result();
    if (result->total_part_count() >= kEnough) {
      return;
    }
  }
}

}  // namespace kpage::test
