// What a layout takes, known from its flags before it is made: a short command line can ask for
// more than any machine has.
#pragma once

#include <string>

namespace kpage::cli {

// Upper bounds, as numbers that do not overflow.
struct LayoutSize {
  double heads = 1;      // batch x heads
  double tokens = 0;     // of the sequence
  double blocks = 0;     // query blocks of a head
  double longest = 0;    // key blocks of the longest list; in memory all lists are as long
  double selected = 0;   // key blocks on all lists of a head
  bool planned = false;  // a plan is made of it
};

// Fails where a layout has more list entries than commands take, or needs more than this machine's
// memory. `source` is the flag that asks for it.
void check_size(const std::string& source, const LayoutSize& size);

}  // namespace kpage::cli
