#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/elements.h"
#include "base/half.h"
#include "base/parallel.h"

namespace kpage {
namespace {

// Both formats by their definition: sign, exponent with `bias`, mantissa of `bits`.
double value_of(std::uint16_t half, int bits, int bias) {
  const int exponent = (half & 0x7fff) >> bits;
  const int mantissa = half & ((1 << bits) - 1);
  const int largest = (1 << (15 - bits)) - 1;
  double value = 0;
  if (exponent == largest) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - bits);
  } else {
    value = std::ldexp(mantissa + (1 << bits), exponent - bias - bits);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

struct Format {
  int bits;
  int bias;
  float (*to_float)(std::uint16_t);
  std::uint16_t (*from_float)(float);
};

const Format kFormats[] = {
    {7, 127, [](std::uint16_t h) { return bf16_to_float(h); },
     [](float f) { return float_to_bf16(f); }},
    {10, 15, [](std::uint16_t h) { return fp16_to_float(h); },
     [](float f) { return float_to_fp16(f); }},
};

TEST(Half, EveryValueIsExactInFloatAndComesBack) {
  for (const Format& format : kFormats) {
    for (int i = 0; i < 65536; ++i) {
      const auto half = static_cast<std::uint16_t>(i);
      const double want = value_of(half, format.bits, format.bias);
      const float got = format.to_float(half);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got));
        EXPECT_TRUE(std::isnan(value_of(format.from_float(got), format.bits, format.bias)));
      } else {
        EXPECT_EQ(static_cast<double>(got), want);
        EXPECT_EQ(std::signbit(got), i >= 0x8000);
        EXPECT_EQ(format.from_float(got), half);
      }
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  for (const Format& format : kFormats) {
    const auto infinity = static_cast<int>(((1 << (15 - format.bits)) - 1) << format.bits);
    for (int i = 0; i < infinity; ++i) {
      const float low = format.to_float(static_cast<std::uint16_t>(i));
      // The value after the largest finite one, had the format one exponent more.
      const float high = i + 1 < infinity ? format.to_float(static_cast<std::uint16_t>(i + 1))
                                          : static_cast<float>(std::ldexp(1.0, format.bias + 1));
      const float middle = low / 2 + high / 2;
      if (std::isinf(high) || middle == low || middle == high) {
        continue;  // no float lies between
      }
      const int even = i % 2 == 0 ? i : i + 1;
      EXPECT_EQ(format.from_float(middle), even);
      EXPECT_EQ(format.from_float(std::nextafter(middle, low)), i);
      EXPECT_EQ(format.from_float(std::nextafter(middle, high)), i + 1);
      EXPECT_EQ(format.from_float(-middle), even | 0x8000);
    }
  }
}

TEST(Half, KeepsNaNWhosePayloadIsInItsLastBit) {
  const float nan = float_of_bits(0x7f800001u);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(nan))));
  EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(nan))));
}

TEST(Half, ArraysAreConvertedElementByElement) {
  std::mt19937 random(1);
  std::vector<float> from(1001);
  for (float& value : from) {
    value = float_of_bits(static_cast<std::uint32_t>(random()));
  }
  std::vector<std::uint16_t> halves(from.size());
  std::vector<float> back(from.size());
  const auto count = static_cast<std::int64_t>(from.size());
  float_to_fp16(from.data(), count, halves.data());
  fp16_to_float(halves.data(), count, back.data());
  for (std::size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(halves[i], float_to_fp16(from[i]));
    EXPECT_EQ(float_bits(back[i]), float_bits(fp16_to_float(halves[i])));
  }
  float_to_bf16(from.data(), count, halves.data());
  bf16_to_float(halves.data(), count, back.data());
  for (std::size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(halves[i], float_to_bf16(from[i]));
    EXPECT_EQ(float_bits(back[i]), float_bits(bf16_to_float(halves[i])));
  }
}

TEST(Elements, AreReadAndWrittenInEveryDtype) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    std::vector<double> storage(2 * 3 * 5 * 4);
    TensorRef tensor{storage.data(), dtype, {}, {2, 3, 5, 4}, {60, 4, 12, 1}};  // BSHD
    const std::int64_t start = row_start(tensor, 1, 2, 3);
    EXPECT_EQ(start, 60 + 8 + 36);
    for (std::int64_t d = 0; d < 4; ++d) {
      write_element(tensor.data, dtype, start + d, -1.5 * static_cast<double>(d));
    }
    double row[4];
    read_row(tensor, 1, 2, 3, row);
    for (std::int64_t d = 0; d < 4; ++d) {
      EXPECT_EQ(row[d], -1.5 * static_cast<double>(d));
      EXPECT_EQ(read_element(tensor.data, dtype, start + d), row[d]);
    }
  }
}

TEST(ThreadCount, IsBoundedByWorkAndReason) {
  constexpr std::int32_t kAbsurd = 2'000'000'000;
  EXPECT_EQ(thread_count(kAbsurd, 0), 1);
  EXPECT_EQ(thread_count(kAbsurd, 3), 3);
  EXPECT_EQ(thread_count(kAbsurd, kAbsurd), kMostThreads);
  EXPECT_EQ(thread_count(2, kAbsurd), 2);
  EXPECT_GE(thread_count(0, kAbsurd), 1);
}

TEST(ParallelFor, DoesEachPieceOnce) {
  for (const std::int32_t threads : {0, 1, 2, 7}) {
    for (const std::int64_t count : {0, 1, 5, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
      std::atomic<std::int32_t> highest{0};
      parallel_for(count, threads, [&](std::int64_t i, std::int32_t worker) {
        ++done[static_cast<std::size_t>(i)];
        for (std::int32_t seen = highest; seen < worker;) {
          highest.compare_exchange_weak(seen, worker);
        }
      });
      for (const std::atomic<int>& times : done) {
        EXPECT_EQ(times, 1);
      }
      EXPECT_LT(highest, thread_count(threads, count));
    }
  }
}

}  // namespace
}  // namespace kpage
