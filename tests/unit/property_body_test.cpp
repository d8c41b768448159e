// The property body finds what it is there to find.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "base/elements.h"
#include "support/attention_property.h"
#include "support/plan_pairs.h"

namespace kpage::test {
namespace {

// The CPU backend, and what a fault does to a run of it afterwards.
class Faulty : public CpuBackend {
 public:
  using ForwardFault = std::function<void(const ForwardRun&)>;
  using BackwardFault = std::function<void(const BackwardRun&)>;

  Faulty(ForwardFault forward, BackwardFault backward)
      : CpuBackend(CpuPolicy::kAsKernel),
        forward_(std::move(forward)),
        backward_(std::move(backward)) {}

  Status forward(const ForwardRun& run) override {
    Status status = CpuBackend::forward(run);
    if (forward_) {
      forward_(run);
    }
    return status;
  }
  Status backward(const BackwardRun& run) override {
    Status status = CpuBackend::backward(run);
    if (backward_) {
      backward_(run);
    }
    return status;
  }

 private:
  ForwardFault forward_;
  BackwardFault backward_;
};

// One block of 20 rows from row 2 on, of 30; itself its list.
Case small_case() {
  Case c;
  c.layout.q_blocks = c.layout.kv_blocks = c.layout.max_list = 1;
  c.layout.q_sizes = {20};
  c.layout.q_offsets = {2};
  c.layout.q2k_block_index = {0};
  c.layout.q2k_block_nums = {1};
  c.q_rows = c.kv_rows = 30;
  return c;
}

std::vector<std::string> failures(Faulty::ForwardFault forward, Faulty::BackwardFault backward) {
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    Faulty backend(std::move(forward), std::move(backward));
    check_case(small_case(), {&backend});
  }
  std::vector<std::string> messages;
  for (int i = 0; i < results.size(); ++i) {
    messages.emplace_back(results.GetTestPartResult(i).message());
  }
  return messages;
}

void multiply_row(const HostTensor& tensor, std::int64_t row, double factor) {
  const std::int64_t start = row_start(tensor.ref, 0, 0, row);
  for (std::int64_t d = 0; d < tensor.ref.shape[3]; ++d) {
    const double value = read_element(tensor.ref.data, tensor.ref.dtype, start + d);
    write_element(tensor.ref.data, tensor.ref.dtype, start + d, value * factor);
  }
}

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(PropertyBody, FindsNothingWhereNothingIsWrong) {
  EXPECT_THAT(failures(nullptr, nullptr), IsEmpty());
}

TEST(PropertyBody, FindsAWrongRow) {
  EXPECT_THAT(failures([](const ForwardRun& run) { multiply_row(run.o, 5, 1.05); }, nullptr),
              Contains(HasSubstr("O, of norm")));
  EXPECT_THAT(failures(nullptr, [](const BackwardRun& run) { multiply_row(run.dk, 5, 0); }),
              Contains(HasSubstr("dK, of norm")));
}

TEST(PropertyBody, FindsAWrongLse) {
  EXPECT_THAT(
      failures(
          [](const ForwardRun& run) { run.lse.ref.data[row_start(run.lse.ref, 0, 0, 9)] += 1e-5f; },
          nullptr),
      Contains(HasSubstr("LSE is")));
}

TEST(PropertyBody, FindsPaddingThatIsNotZero) {
  const auto write = [](const HostTensor& tensor) {
    write_element(tensor.ref.data, tensor.ref.dtype, row_start(tensor.ref, 0, 0, 22), 1e-3);
  };
  EXPECT_THAT(failures([&](const ForwardRun& run) { write(run.o); }, nullptr),
              Contains(HasSubstr("in padding, row 22")));
  EXPECT_THAT(failures(nullptr, [&](const BackwardRun& run) { write(run.dv); }),
              Contains(HasSubstr("dV is")));
}

TEST(PropertyBody, FindsWhatWasLeftUnwritten) {
  EXPECT_THAT(failures([](const ForwardRun& run) { poison(run.o); }, nullptr),
              Contains(HasSubstr("O is nan in padding")));
}

TEST(PropertyBody, FindsAWrittenInput) {
  EXPECT_THAT(failures([](const ForwardRun& run) { multiply_row(run.k, 4, 2); }, nullptr),
              Contains(HasSubstr("an input was written")));
}

TEST(PropertyBody, FindsADependenceOnPadding) {
  const auto leak = [](const ForwardRun& run) {
    double row[64];
    read_row(run.q.ref, 0, 0, 29, row);
    const bool all_nan = std::all_of(row, row + 64, [](double value) { return std::isnan(value); });
    run.lse.ref.data[row_start(run.lse.ref, 0, 0, 9)] += all_nan ? 0.0f : 1e-6f;  // within limits
  };
  EXPECT_THAT(failures(leak, nullptr), Contains(HasSubstr("outputs depend on what padding holds")));
}

TEST(HostTensor, SeesEveryWriteBesideIt) {
  Random random(1);
  std::int64_t guards = 0;
  for (int i = 0; i < 40; ++i) {
    HostTensor tensor = random_tensor(random, {2, 2, 3, 8}, DType::kBFloat16, {});
    const std::vector<std::byte> before = tensor.storage;
    std::vector<double> numbers(2 * 2 * 3 * 8, 1.0);
    write_values(tensor, numbers);
    EXPECT_EQ(read_values(tensor), numbers);
    EXPECT_TRUE(guards_untouched(tensor, before));
    for (std::size_t byte = 0; byte < before.size(); byte += 2) {
      if (tensor.storage[byte] == before[byte] && tensor.storage[byte + 1] == before[byte + 1]) {
        tensor.storage[byte] ^= std::byte{1};
        EXPECT_FALSE(guards_untouched(tensor, before));
        tensor.storage[byte] ^= std::byte{1};
        ++guards;
      }
    }
  }
  EXPECT_GT(guards, 0);
}

TEST(PlanPairs, DifferFromThoseOfAnotherLayout) {
  Case c = small_case();
  Plan plan = Plan::build(c.layout.view()).value();
  ASSERT_TRUE(plan.build_backward().ok());
  EXPECT_EQ(forward_pairs_difference(c.layout.view(), plan), "");
  EXPECT_EQ(backward_pairs_difference(c.layout.view(), plan), "");
  c.layout.q2k_block_nums = {0};
  EXPECT_THAT(forward_pairs_difference(c.layout.view(), plan), HasSubstr("1 times instead of 0"));
  EXPECT_THAT(backward_pairs_difference(c.layout.view(), plan), HasSubstr("1 times instead of 0"));
}

}  // namespace
}  // namespace kpage::test
