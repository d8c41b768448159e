// The command line as a function, so that tests can call it without starting a process.
#pragma once

#include "console.h"

namespace kpage::cli {

// Runs one command line and returns its exit code: 0, 1 for a failed run or check, 2 for bad usage
// or input. Never throws, exits or aborts.
[[nodiscard]] int run(int argc, const char* const* argv, const Console& console);

}  // namespace kpage::cli
