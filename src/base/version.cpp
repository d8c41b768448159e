#include "kpage/version.h"

namespace kpage {

const char* version() { return KPAGE_VERSION_STRING; }

}  // namespace kpage
