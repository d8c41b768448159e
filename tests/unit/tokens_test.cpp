// Token movement on the CPU, its errors, and the arithmetic that its kernel divides by.
#include "kpage/tokens.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kpage/geometry.h"

#include "base/divisor.h"
#include "support/token_case.h"

namespace kpage {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Tokens, GathersRandomCases) {
  test::expect_gathers([](test::GatherCase& made, std::uint64_t seed) {
    GatherArgs args;
    args.x = made.x.ref;
    args.index = made.index.ref;
    args.out = made.out.ref;
    args.threads = static_cast<std::int32_t>(seed % 3);
    return gather_rows(args);
  });
}

TEST(Tokens, InvertsRandomCases) {
  test::expect_inverts([](test::InvertCase& made, std::uint64_t seed) {
    InvertArgs args;
    args.index = made.index.ref;
    args.inverse = made.inverse.ref;
    args.threads = static_cast<std::int32_t>(seed % 3);
    return invert_index(args);
  });
}

// Both directions of a tiling, with text on both sides and cubes that the grid's edges cut.
TEST(Tokens, TilingsGoThereAndBack) {
  const Sequence sequence{{5}, {5, 6, 7}, {70}};
  for (const Placement placement : {Placement::kBlk128, Placement::kTile, Placement::kDense}) {
    Result<Tiling> made = make_tiling(sequence, {4, 4, 4}, placement);
    ASSERT_TRUE(made.ok()) << made.status().message();
    Tiling& tiling = made.value();
    const std::int64_t tokens = sequence.tokens();
    std::vector<float> x(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(i + 1);
    }
    std::vector<float> rows(static_cast<std::size_t>(tiling.rows), -1);
    std::vector<float> back(x.size(), -1);
    const auto tensor = [](std::vector<float>& values) {
      TensorRef ref;
      ref.data = values.data();
      ref.dtype = DType::kFloat32;
      const auto count = static_cast<std::int64_t>(values.size());
      ref.shape = {1, 1, count, 1};
      ref.stride = {count, count, 1, 1};
      return ref;
    };
    const auto index = [](std::vector<std::int32_t>& values) {
      IndexRef ref;
      ref.data = values.data();
      ref.shape = {1, 1, static_cast<std::int64_t>(values.size())};
      ref.stride = {0, 0, 1};
      return ref;
    };
    ASSERT_TRUE(
        gather_rows({tensor(x), index(tiling.token_of_row), tensor(rows), nullptr, 1}).ok());
    ASSERT_TRUE(
        gather_rows({tensor(rows), index(tiling.row_of_token), tensor(back), nullptr, 1}).ok());
    EXPECT_EQ(back, x);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      EXPECT_EQ(rows[row], static_cast<float>(tiling.token_of_row[row] + 1));
    }
    std::vector<std::int32_t> inverse(x.size());
    ASSERT_TRUE(invert_index({index(tiling.token_of_row), index(inverse), nullptr, 1}).ok());
    EXPECT_EQ(inverse, tiling.row_of_token);
  }
}

TEST(Tokens, DivisorsDivide) {
  const std::vector<std::uint32_t> divisors = {
      1,  2,     3,     5,          7,          40,         63,         64,
      65, 75600, 98304, 1000000007, 0x40000000, 0x40000001, 0x7ffffffe, 0x7fffffff};
  for (const std::uint32_t d : divisors) {
    const Divisor divisor(d);
    std::vector<std::uint32_t> numbers = {0, 1, 2, 1000, 0x7ffffffe, 0x7fffffff};
    for (const std::uint64_t multiple : {1ULL, 2ULL, 3ULL, 1000ULL, 0x7fffffffULL / d}) {
      for (const std::int64_t by : {-1, 0, 1}) {
        const std::int64_t n = static_cast<std::int64_t>(multiple * d) + by;
        if (n >= 0 && n <= 0x7fffffff) {
          numbers.push_back(static_cast<std::uint32_t>(n));
        }
      }
    }
    for (const std::uint32_t n : numbers) {
      ASSERT_EQ(divisor.quotient(n), n / d) << n << " / " << d;
      ASSERT_EQ(divisor.remainder(n, n / d), n % d) << n << " % " << d;
    }
  }
}

// A correct gather of 2 x 3 heads, from 10 rows to 12, and the inversion of its index.
struct Scenario {
  std::vector<std::uint16_t> x = std::vector<std::uint16_t>(2 * 3 * 10 * 8, 1);
  std::vector<std::uint16_t> out = std::vector<std::uint16_t>(2 * 3 * 12 * 8, kPoison);
  std::vector<std::int32_t> index = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1, -1};
  std::vector<std::int32_t> inverse = std::vector<std::int32_t>(2 * 3 * 10, kPoison);
  GatherArgs gather;
  InvertArgs invert;

  static constexpr std::uint16_t kPoison = 0x7fc1;

  Scenario() {
    gather.x.data = x.data();
    gather.x.shape = {2, 3, 10, 8};
    gather.x.stride = {240, 80, 8, 1};
    gather.out.data = out.data();
    gather.out.shape = {2, 3, 12, 8};
    gather.out.stride = {288, 96, 8, 1};
    gather.index.data = index.data();
    gather.index.shape = {2, 3, 12};
    gather.index.stride = {0, 0, 1};
    invert.index = gather.index;
    invert.inverse.data = inverse.data();
    invert.inverse.shape = {2, 3, 10};
    invert.inverse.stride = {30, 10, 1};
  }
};

struct Fault {
  std::string name;
  std::function<void(Scenario&)> make;
  std::string message;
};

class TokenErrors : public ::testing::TestWithParam<Fault> {};

TEST_P(TokenErrors, NameTheArgumentAndWriteNothing) {
  Scenario s;
  GetParam().make(s);
  const bool of_inversion = GetParam().name.starts_with("Inver");
  const Status status = of_inversion ? invert_index(s.invert) : gather_rows(s.gather);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.message(), StartsWith(GetParam().message));
  EXPECT_EQ(s.out, Scenario().out);
  EXPECT_EQ(s.inverse, Scenario().inverse);
}

const Fault kFaults[] = {
    {"UnknownDtype", [](Scenario& s) { s.gather.x.dtype = static_cast<DType>(9); },
     "x: expected a dtype"},
    {"OtherDtype", [](Scenario& s) { s.gather.out.dtype = DType::kFloat16; },
     "out: expected bfloat16 as x, got float16"},
    {"NegativeSize", [](Scenario& s) { s.gather.x.shape[1] = -3; },
     "x: expected sizes of at least 0, got [2, -3, 10, 8]"},
    {"NegativePlaces", [](Scenario& s) { s.gather.index.shape[2] = -1; },
     "index: expected sizes of at least 0"},
    {"TooManyRows", [](Scenario& s) { s.gather.x.shape[2] = std::int64_t{1} << 31; },
     "x: expected a number of rows that an int32 counts, got 2147483648"},
    {"IndexOfOtherHeads", [](Scenario& s) { s.gather.index.shape[1] = 4; },
     "index: expected shape [2, 3, 12], got [2, 4, 12]"},
    {"OtherRowsOut", [](Scenario& s) { s.gather.out.shape[2] = 10; },
     "out: expected shape [2, 3, 12, 8], got [2, 3, 10, 8]"},
    {"OtherHeadDim", [](Scenario& s) { s.gather.out.shape[3] = 4; },
     "out: expected shape [2, 3, 12, 8], got [2, 3, 12, 4]"},
    {"ColumnsApart", [](Scenario& s) { s.gather.x.stride[3] = 2; },
     "x: expected stride 1 in the last dimension, got 2"},
    {"NegativeStride", [](Scenario& s) { s.gather.index.stride[2] = -1; },
     "index: expected strides of at least 0"},
    {"OverlappingRowsOut", [](Scenario& s) { s.gather.out.stride[1] = 0; },
     "out: expected strides that give each element memory of its own"},
    {"SharedMemory", [](Scenario& s) { s.gather.x.data = s.gather.out.data; },
     "out: expected memory that no other argument uses, got memory shared with x"},
    {"NullIndex", [](Scenario& s) { s.gather.index.data = nullptr; }, "index: expected memory for"},
    {"IndexElsewhere", [](Scenario& s) { s.gather.index.device = {DeviceType::kCuda, 0}; },
     "index: expected a tensor on cpu as x, got cuda:0"},
    {"Threads", [](Scenario& s) { s.gather.threads = -1; }, "threads: expected at least 0, got -1"},
    {"InversionOfOtherHeads", [](Scenario& s) { s.invert.inverse.shape[0] = 1; },
     "inverse: expected shape [2, 3, 10], got [1, 3, 10]"},
    {"InverseApart", [](Scenario& s) { s.invert.inverse.stride = {10, 20, 1}; },
     "inverse: expected strides [30, 10, 1], got [10, 20, 1]"},
    {"InversionTwice", [](Scenario& s) { s.index[10] = 7; },
     "index[0, 0, 10]: expected rows that appear at most once in a head, got 7 again"},
    {"InversionThreads", [](Scenario& s) { s.invert.threads = -2; },
     "threads: expected at least 0"},
};
INSTANTIATE_TEST_SUITE_P(All, TokenErrors, ::testing::ValuesIn(kFaults),
                         [](const auto& fault) { return fault.param.name; });

#if !KPAGE_HAS_CUDA
TEST(Tokens, SaysWhenTheBuildHasNoCuda) {
  Scenario s;
  for (Device* device : {&s.gather.x.device, &s.gather.index.device, &s.gather.out.device,
                         &s.invert.index.device, &s.invert.inverse.device}) {
    *device = {DeviceType::kCuda, 0};
  }
  for (const Status& status : {gather_rows(s.gather), invert_index(s.invert)}) {
    EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr("has no CUDA"));
  }
}
#endif

}  // namespace
}  // namespace kpage
