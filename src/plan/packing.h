// Which K/V blocks share an owner: the decision that both builders make, a window of blocks at a
// time, so that windows are independent of each other and a device can decide them side by side.
#pragma once

#include <cstdint>

#include "plan/format.h"

namespace kpage::plan {

struct WindowBlock {
  std::int32_t block;
  std::int32_t pages;  // 1..8
};

struct WindowOwner {
  std::int32_t slots;                // 8 or 4
  std::int32_t pages;                // slots in use
  std::int32_t blocks;               // members
  std::int32_t member[kOwnerSlots];  // positions in the window's list
};

KPAGE_HD std::int32_t window_count(const Shape& s) { return ceil_div(s.kv_blocks, kPackWindow); }
KPAGE_HD std::int32_t slots_for(std::int32_t pages) {
  return pages <= kSmallOwnerSlots ? kSmallOwnerSlots : kOwnerSlots;
}

// The non-empty blocks of a window, those with more pages first, in block order among equals.
KPAGE_HD std::int32_t list_window(const Extent* blocks, std::int32_t block_count,
                                  std::int32_t window, WindowBlock* out) {
  const std::int32_t begin = window * kPackWindow;
  const std::int32_t end = min_of(begin + kPackWindow, block_count);
  std::int32_t count = 0;
  for (std::int32_t pages = kBlockPages; pages > 0; --pages) {
    for (std::int32_t b = begin; b < end; ++b) {
      if (pages_of(blocks[b].rows) == pages) {
        out[count++] = {b, pages};
      }
    }
  }
  return count;
}

// Packs a window. A block joins the owner where that adds least work, if it saves at least an
// eighth of the work of an owner of its own; work is slots times query blocks walked, since an
// owner walks the union of its blocks' lists with all its slots, in use or not.
//
// `lists` knows the reverse lists, and holds a union for each owner of the window:
//   size(i)      query blocks that attend to block i of the window
//   added(o, i)  those of them that are not in the union of owner o
//   open(o, i)   the union of owner o becomes the list of i
//   join(o, i)   and here it grows by it
// Returns the number of owners.
template <class Lists>
KPAGE_HD std::int32_t pack_window(const WindowBlock* blocks, std::int32_t count, Lists& lists,
                                  WindowOwner* owners) {
  std::int32_t owner_count = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t pages = blocks[i].pages;
    const std::int64_t alone = std::int64_t{slots_for(pages)} * lists.size(i);
    std::int32_t best = -1;
    std::int64_t least = 0;
    for (std::int32_t o = 0; o < owner_count; ++o) {
      if (owners[o].pages + pages > owners[o].slots) {
        continue;
      }
      const std::int64_t work = std::int64_t{owners[o].slots} * lists.added(o, i);
      if (best < 0 || work < least) {
        best = o;
        least = work;
      }
    }
    if (best >= 0 && alone > 0 && least * 8 <= alone * 7) {
      lists.join(best, i);
      WindowOwner& owner = owners[best];
      owner.member[owner.blocks++] = i;
      owner.pages += pages;
    } else {
      lists.open(owner_count, i);
      WindowOwner& owner = owners[owner_count++];
      owner.slots = slots_for(pages);
      owner.pages = pages;
      owner.blocks = 1;
      owner.member[0] = i;
    }
  }
  return owner_count;
}

// The next group of a reverse walk (paper 3.3.2, G_g): as many of the `entries` that are left as
// kGroupPages hold. `pages_at(i)` gives the Q pages of entry i of them.
struct Group {
  std::int32_t entries;
  std::int32_t pages;
};
template <class PagesAt>
KPAGE_HD Group cut_group(std::int32_t entries, const PagesAt& pages_at) {
  Group group{0, 0};
  while (group.entries < entries) {
    const std::int32_t pages = pages_at(group.entries);
    if (group.pages + pages > kGroupPages) {
      break;
    }
    group.pages += pages;
    ++group.entries;
  }
  return group;
}

}  // namespace kpage::plan
