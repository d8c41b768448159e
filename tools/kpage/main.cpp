#include <iostream>

#include <unistd.h>

#include "cli.h"
#include "console.h"

int main(int argc, char** argv) {
  const kpage::cli::Console console{std::cout, std::cerr, ::isatty(STDERR_FILENO) == 1,
                                    ::isatty(STDOUT_FILENO) == 1};
  return kpage::cli::run(argc, argv, console);
}
