#include <cstdint>
#include <span>

#include "kpage/geometry.h"

#include "base/message.h"

namespace kpage {

double Occupancy::padding() const {
  const std::int64_t filled = blocks - empty;
  return filled == 0 ? 0.0
                     : 1.0 - static_cast<double>(rows) / static_cast<double>(filled * kBlockRows);
}

double Occupancy::partial_fraction() const {
  const std::int64_t filled = blocks - empty;
  return filled == 0 ? 0.0 : static_cast<double>(partial) / static_cast<double>(filled);
}

Result<Occupancy> occupancy(std::span<const std::int32_t> sizes) {
  Occupancy out;
  out.blocks = static_cast<std::int64_t>(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || sizes[i] > kBlockRows) {
      return invalid_argument(element("sizes", static_cast<std::int64_t>(i), {out.blocks}),
                              text("valid rows in [0, ", kBlockRows, "]"), sizes[i]);
    }
    ++out.histogram[static_cast<std::size_t>(sizes[i])];
    out.rows += sizes[i];
  }
  out.empty = out.histogram.front();
  out.partial = out.blocks - out.empty - out.histogram.back();
  return out;
}

Result<Occupancy> q_occupancy(const Layout& layout) { return occupancy(layout.q_sizes); }

Result<Occupancy> kv_occupancy(const Layout& layout) {
  return occupancy(layout.shared_partition ? layout.q_sizes : layout.kv_sizes);
}

}  // namespace kpage
