#include "layout_size.h"

#include <algorithm>
#include <cstdint>

#include "kpage/layout.h"

#include "failure.h"
#include "machine.h"
#include "page.h"

namespace kpage::cli {
namespace {

// Over what 600,000 tokens in cubes of 64 take with 40 heads where all attend to all.
constexpr double kMostEntries = 4294967296.0;

std::string count(double number) {
  return number < 1e15 ? grouped(static_cast<std::int64_t>(number)) : scientific(number);
}

// At its most: lists are of int32, and beside them lie the graphs that they are made from, or later
// their plan with its backward part.
double bytes_of(const LayoutSize& size) {
  constexpr double kGraphs = 3;      // of scores, of tiles, of blocks
  constexpr double kPlan = 2.5;      // times the lists, padding included
  constexpr double kListBytes = 32;  // where a list begins in each of them, and its length
  const double lists = size.heads * size.blocks;
  const double entries = lists * size.longest;
  const double beside =
      std::max(kGraphs * size.heads * size.selected, size.planned ? kPlan * entries : 0);
  const double rows = size.tokens + kBlockRows * size.blocks;
  return 4 * (entries + beside + size.tokens + rows) + kListBytes * lists;
}

}  // namespace

void check_size(const std::string& source, const LayoutSize& size) {
  const double entries = size.heads * size.blocks * size.longest;
  const std::string what = "lists of " + count(size.heads) + " heads x " + count(size.blocks) +
                           " query blocks x up to " + count(size.longest) + " key blocks";
  if (entries > kMostEntries) {
    throw bad_input(source + ": expected at most " + count(kMostEntries) + " entries, got " + what);
  }
  const double bytes = bytes_of(size);
  const double memory = memory_bytes();
  if (memory > 0 && bytes > memory) {
    throw bad_input(source + ": expected what fits into the " +
                    bytes_text(static_cast<std::int64_t>(memory)) + " of memory here, got about " +
                    bytes_text(static_cast<std::int64_t>(bytes)) + " for " + count(size.tokens) +
                    " tokens and " + what);
  }
}

}  // namespace kpage::cli
