#include "cli.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <exception>
#include <new>
#include <ostream>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include "kpage/version.h"

#include "commands.h"
#include "failure.h"

namespace kpage::cli {
namespace {

int complain(const Console& console, const CLI::App& app, const std::string& message, int code) {
  console.err << "kpage";
  const auto chosen = app.get_subcommands();
  if (!chosen.empty()) {
    console.err << ' ' << chosen.front()->get_name();
  }
  // One line, whatever names a file brought into it.
  std::string line = message;
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  console.err << ": " << line << '\n';
  return code;
}

bool is_command(const std::vector<Command>& commands, const std::string& word) {
  return std::any_of(commands.begin(), commands.end(),
                     [&](const Command& command) { return command.flags->get_name() == word; });
}

int run_checked(CLI::App& app, int argc, const char* const* argv, const Console& console) {
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("kpage ") + version());
  app.set_help_flag("-h,--help", "Show this text");
  const std::vector<Command> commands = {add_info(app), add_layout(app), add_plan(app),
                                         add_run(app),  add_verify(app), add_bench(app)};

  if (argc > 1 && argv[1][0] != '-' && !is_command(commands, argv[1])) {
    std::string names;
    for (const Command& command : commands) {
      names += (names.empty() ? "" : ", ") + command.flags->get_name();
    }
    throw bad_input("expected one of " + names + ", got " + argv[1]);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help and --version
    return app.exit(success, console.out, console.err) == 0 ? kSuccess : kBadInput;
  } catch (const CLI::ParseError& error) {
    return complain(console, app, error.what(), kBadInput);
  }
  for (const Command& command : commands) {
    if (command.flags->parsed()) {
      command.run(console);
    }
  }
  console.out.flush();
  if (!console.out) {
    throw run_failed("cannot write the result to standard output");
  }
  return kSuccess;
}

}  // namespace

CLI::Validator file_name() {
  return {[](const std::string& value) {
            return std::string(value.empty() ? "expected a file name, got an empty one" : "");
          },
          "FILE"};
}

CLI::Validator seed_number() {
  return {[](const std::string& value) {
            std::uint64_t number = 0;
            const char* const end = value.data() + value.size();
            const auto [stopped, error] = std::from_chars(value.data(), end, number);
            return error == std::errc() && stopped == end
                       ? std::string()
                       : "expected an integer from 0 to 2^64 - 1, got " + value;
          },
          "UINT"};
}

int run(int argc, const char* const* argv, const Console& console) {
  CLI::App app("Exact block-sparse attention: layouts, plans, runs and checks", "kpage");
  try {
    return run_checked(app, argc, argv, console);
  } catch (const Failure& failure) {
    return complain(console, app, failure.what(), failure.exit_code());
  } catch (const std::bad_alloc&) {
    return complain(console, app, "out of memory", kFailed);
  } catch (const std::exception& error) {
    return complain(console, app, error.what(), kFailed);
  }
}

}  // namespace kpage::cli
