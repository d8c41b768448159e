// The version of the library that is linked.
#pragma once

namespace kpage {

[[nodiscard]] const char* version();  // "major.minor.patch"

}  // namespace kpage
