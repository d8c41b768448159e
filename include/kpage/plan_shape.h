// Everything that the size of a plan depends on; the values in a layout's tensors do not.
#pragma once

#include <cstdint>

#include "kpage/export.h"
#include "kpage/layout.h"

namespace KPAGE_EXPORT kpage {

struct PlanShape {
  std::int32_t batch = 1;
  std::int32_t heads = 1;  // query heads
  std::int32_t q_blocks = 0;
  std::int32_t kv_blocks = 0;
  std::int32_t max_list = 0;
  PartitionScope q_scope = PartitionScope::kShared;
  PartitionScope kv_scope = PartitionScope::kShared;

  friend bool operator==(const PlanShape&, const PlanShape&) = default;
};

}  // namespace kpage
