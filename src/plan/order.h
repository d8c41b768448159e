// Stable counting sort: how the host puts entries and work in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kpage::plan {

// Writes the numbers [0, count) to out(position, number), by ascending key(number) and among equal
// keys in order. Keys are in [0, kKeys).
template <std::size_t kKeys, class Key, class Out>
void counting_sort(std::int32_t count, const Key& key, const Out& out) {
  std::array<std::int32_t, kKeys + 1> begin{};
  for (std::int32_t i = 0; i < count; ++i) {
    ++begin[static_cast<std::size_t>(key(i)) + 1];
  }
  for (std::size_t k = 0; k < kKeys; ++k) {
    begin[k + 1] += begin[k];
  }
  for (std::int32_t i = 0; i < count; ++i) {
    out(begin[static_cast<std::size_t>(key(i))]++, i);
  }
}

}  // namespace kpage::plan
