// The version of the library that is linked.
#pragma once

#include "kpage/export.h"

namespace KPAGE_EXPORT kpage {

[[nodiscard]] const char* version();  // "major.minor.patch"

}  // namespace kpage
