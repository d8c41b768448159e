// bfloat16 and binary16 as bits, to and from float: round to nearest even, NaN kept.
//
// Always inlined: a file compiled for a wider instruction set must not leave an out-of-line copy
// that the linker could keep for code that runs on any CPU. The loops have no branches, so that
// they vectorise.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/hd.h"

#if defined(__CUDACC__)
#define KPAGE_HALF KPAGE_HD
#else
#define KPAGE_HALF [[gnu::always_inline]] KPAGE_HD
#endif

namespace kpage {

KPAGE_HALF std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
KPAGE_HALF float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// `a` where the condition holds, else `b`, in arithmetic: compilers make branches of ?: in loops.
KPAGE_HALF std::uint32_t choose(bool condition, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t mask = 0u - static_cast<std::uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

KPAGE_HALF float bf16_to_float(std::uint16_t bits) {
  return float_of_bits(static_cast<std::uint32_t>(bits) << 16);
}

KPAGE_HALF std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet_nan = (bits >> 16) | 0x40u;  // a payload in the low half alone is lost
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<std::uint16_t>(choose(is_nan, quiet_nan, rounded));
}

KPAGE_HALF float fp16_to_float(std::uint16_t bits) {
  constexpr std::uint32_t kRebias = 112u << 23;  // exponent bias 127 against 15
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
  const std::uint32_t exponent = bits & 0x7c00u;
  // A subnormal's mantissa, put below a leading one that the subtraction takes away again.
  constexpr std::uint32_t kOne = kRebias + (1u << 23);
  const std::uint32_t subnormal = float_bits(float_of_bits(magnitude + kOne) - float_of_bits(kOne));
  const std::uint32_t normal = magnitude + kRebias + (choose(exponent == 0x7c00u, kRebias, 0));
  return float_of_bits(sign | (choose(exponent == 0, subnormal, normal)));
}

KPAGE_HALF std::uint16_t float_to_fp16(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  constexpr std::uint32_t kRebias = 112u << 23;
  constexpr std::uint32_t kSmallestNormal = 113u << 23;  // 2^-14
  constexpr std::uint32_t kTooLarge = 143u << 23;        // 2^16; the carry makes infinity below it
  constexpr std::uint32_t kInfinity = 255u << 23;
  const std::uint32_t normal = (magnitude - kRebias + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 leaves a mantissa whose last bit is worth 2^-24, rounded by the adder.
  constexpr std::uint32_t kHalf = 126u << 23;
  const bool is_subnormal = magnitude < kSmallestNormal;
  const float small = float_of_bits(choose(is_subnormal, magnitude, 0));
  const std::uint32_t subnormal = float_bits(small + float_of_bits(kHalf)) - kHalf;
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  const std::uint32_t special = choose(magnitude > kInfinity, nan, 0x7c00u);
  const std::uint32_t finite = choose(is_subnormal, subnormal, normal);
  return static_cast<std::uint16_t>(sign | choose(magnitude >= kTooLarge, special, finite));
}

KPAGE_HALF void bf16_to_float(const std::uint16_t* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = bf16_to_float(from[i]);
  }
}
KPAGE_HALF void float_to_bf16(const float* from, std::int64_t count, std::uint16_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = float_to_bf16(from[i]);
  }
}
KPAGE_HALF void fp16_to_float(const std::uint16_t* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = fp16_to_float(from[i]);
  }
}
KPAGE_HALF void float_to_fp16(const float* from, std::int64_t count, std::uint16_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = float_to_fp16(from[i]);
  }
}

}  // namespace kpage

#undef KPAGE_HALF
