// Which backends this build has, and what each of them runs.
#pragma once

#include <string>
#include <vector>

#include "kpage/export.h"
#include "kpage/types.h"

namespace KPAGE_EXPORT kpage {

struct BackendInfo {
  std::string name;  // "cpu", "sm90"
  DeviceType device = DeviceType::kCpu;
  std::vector<DType> dtypes;
  std::string head_dims;       // "64, 128"
  bool deterministic = false;  // backward with bitwise equal gradients over runs
};

[[nodiscard]] std::vector<BackendInfo> backends();

}  // namespace kpage
