// The memory that a strided tensor covers, and whether two tensors share any of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace kpage::api {

struct Footprint {
  std::uintptr_t begin = 0;  // of the first byte
  std::uintptr_t end = 0;    // one past the last byte; begin where there is no element
  bool repeats = false;      // two index tuples may name the same element
  bool dense = false;        // every byte between begin and end belongs to an element
};

// None where strides and shape reach past what an address can name. Shape and strides are not
// negative.
[[nodiscard]] std::optional<Footprint> footprint(const void* data, std::int64_t element_bytes,
                                                 std::span<const std::int64_t> shape,
                                                 std::span<const std::int64_t> stride);

// True where the two share a byte for certain. Slices that interleave, like the parts of a packed
// QKV buffer, share none, though their ranges cross.
[[nodiscard]] bool overlap(const Footprint& a, const Footprint& b);

}  // namespace kpage::api
