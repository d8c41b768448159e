// The CPU backend: runs a plan on threads. Arguments are those that api has checked.
#pragma once

#include "kpage/attention_args.h"
#include "kpage/status.h"

namespace kpage::cpu {

[[nodiscard]] Status forward(const ForwardArgs& args);
[[nodiscard]] Status backward(const BackwardArgs& args);

}  // namespace kpage::cpu
