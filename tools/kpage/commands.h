// The subcommands. Each add_...() declares its flags below `app` and returns what runs it.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "console.h"

namespace kpage::cli {

struct Command {
  const CLI::App* flags;
  std::function<void(const Console&)> run;  // throws Failure
};

// Of an option's value: not empty, as that of an unset variable is.
[[nodiscard]] CLI::Validator file_name();
// Of an option's value: 0 to 2^64 - 1 in digits. Wider and negative numbers would be wrapped.
[[nodiscard]] CLI::Validator seed_number();

[[nodiscard]] Command add_info(CLI::App& app);
[[nodiscard]] Command add_layout(CLI::App& app);
[[nodiscard]] Command add_plan(CLI::App& app);
[[nodiscard]] Command add_run(CLI::App& app);
[[nodiscard]] Command add_verify(CLI::App& app);
[[nodiscard]] Command add_bench(CLI::App& app);

}  // namespace kpage::cli
