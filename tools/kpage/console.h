// Where a command writes: results to `out`, everything else to `err`.
#pragma once

#include <iosfwd>

namespace kpage::cli {

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool interactive = false;  // err is a terminal: progress may be drawn
  bool color = false;        // out is a terminal
};

}  // namespace kpage::cli
