#include "cli.h"

#include <exception>
#include <new>
#include <ostream>
#include <string>
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
  console.err << ": " << message << '\n';
  return code;
}

int run_checked(CLI::App& app, int argc, const char* const* argv, const Console& console) {
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("kpage ") + version());
  app.set_help_flag("-h,--help", "Show this text");
  const std::vector<Command> commands = {add_info(app), add_layout(app), add_plan(app),
                                         add_run(app),  add_verify(app), add_bench(app)};

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
