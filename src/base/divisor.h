// Division by a number that is known on the host, as a multiplication.
#pragma once

#include <bit>
#include <cstdint>

#include "base/hd.h"

namespace kpage {

// For dividends and divisors below 2^31. With 2^shift the least power of two from the divisor on,
// floor(n / divisor) = (n + floor(n * multiplier / 2^32)) / 2^shift: 2^32 + multiplier is
// 2^(32 + shift) / divisor rounded up, and what that adds to n's quotient stays below 1 / divisor.
class Divisor {
 public:
  Divisor() = default;
  explicit constexpr Divisor(std::uint32_t divisor)
      : divisor_(divisor),
        shift_(static_cast<std::uint32_t>(std::bit_width(divisor - 1))),
        multiplier_(static_cast<std::uint32_t>(
            (std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift_) - divisor) / divisor + 1)) {}

  [[nodiscard]] KPAGE_HD std::uint32_t quotient(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>(std::uint64_t{n} * multiplier_ >> 32);
    return (n + high) >> shift_;
  }
  [[nodiscard]] KPAGE_HD std::uint32_t remainder(std::uint32_t n, std::uint32_t quotient) const {
    return n - quotient * divisor_;
  }

 private:
  std::uint32_t divisor_ = 1;
  std::uint32_t shift_ = 0;
  std::uint32_t multiplier_ = 1;
};

}  // namespace kpage
