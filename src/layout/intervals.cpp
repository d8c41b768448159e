#include "layout/intervals.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace kpage::layout {
namespace {

bool ascending(const std::int32_t* offsets, const std::int32_t* sizes, std::int64_t count) {
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (sizes[i] > 0) {
      if (offsets[i] < end) {
        return false;
      }
      end = std::int64_t{offsets[i]} + sizes[i];
    }
  }
  return true;
}

}  // namespace

std::int64_t first_overlap(const std::int32_t* offsets, const std::int32_t* sizes,
                           std::int64_t count) {
  if (ascending(offsets, sizes, count)) {  // the usual case needs no sort
    return -1;
  }
  std::vector<std::pair<std::int32_t, std::int64_t>> order;  // first row, number
  order.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    if (sizes[i] > 0) {
      order.emplace_back(offsets[i], i);
    }
  }
  std::sort(order.begin(), order.end());
  std::int64_t found = -1;
  std::int64_t end = 0;
  for (const auto& [offset, i] : order) {
    if (offset < end && (found < 0 || i < found)) {
      found = i;
    }
    end = std::max(end, std::int64_t{offset} + sizes[i]);
  }
  return found;
}

}  // namespace kpage::layout
