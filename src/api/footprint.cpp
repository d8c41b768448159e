#include "api/footprint.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace kpage::api {
namespace {

// First or last byte of `part` lies in `whole`, which has no holes.
bool reaches_into(const Footprint& part, const Footprint& whole) {
  const auto inside = [&whole](std::uintptr_t at) { return whole.begin <= at && at < whole.end; };
  return whole.dense && (inside(part.begin) || inside(part.end - 1));
}

}  // namespace

std::optional<Footprint> footprint(const void* data, std::int64_t element_bytes,
                                   std::span<const std::int64_t> shape,
                                   std::span<const std::int64_t> stride) {
  Footprint found;
  found.begin = reinterpret_cast<std::uintptr_t>(data);
  found.end = found.begin;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return found;
  }

  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, size
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] > 1) {
      dims.emplace_back(stride[i], shape[i]);
    }
  }
  std::sort(dims.begin(), dims.end());

  std::int64_t elements = 1;
  std::int64_t extent = 1;  // from the first element to the end of the last, so far
  for (const auto& [step, size] : dims) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(step, size - 1, &reach) ||
        __builtin_add_overflow(extent, reach, &reach)) {
      return std::nullopt;
    }
    found.repeats |= step < extent;
    extent = reach;
    // At most `extent` where nothing repeats; not needed where something does.
    elements = found.repeats ? 0 : elements * size;
  }
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(extent, element_bytes, &bytes) ||
      static_cast<std::uintptr_t>(bytes) >
          std::numeric_limits<std::uintptr_t>::max() - found.begin) {
    return std::nullopt;
  }
  found.end = found.begin + static_cast<std::uintptr_t>(bytes);
  found.dense = elements == extent;
  return found;
}

bool overlap(const Footprint& a, const Footprint& b) {
  if (a.begin == a.end || b.begin == b.end || a.end <= b.begin || b.end <= a.begin) {
    return false;
  }
  return a.begin == b.begin || reaches_into(a, b) || reaches_into(b, a);
}

}  // namespace kpage::api
