// Token movement on threads. Arguments are those that api has checked.
#pragma once

#include "kpage/status.h"
#include "kpage/token_args.h"

namespace kpage::cpu {

void gather_rows(const GatherArgs& args);
// An index that has a row twice is an error, and nothing is written.
[[nodiscard]] Status invert_index(const InvertArgs& args);

}  // namespace kpage::cpu
