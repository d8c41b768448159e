#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "plan/builder.h"
#include "plan/order.h"
#include "plan/packing.h"

namespace kpage::plan {
namespace {

// Which query blocks of one head attend to each K/V block: a row of bits a block. Edges are
// scattered into it, so that no list of reverse edges is sorted (paper 3.3.2).
class ReverseBitmap {
 public:
  explicit ReverseBitmap(const Shape& shape)
      : words_(ceil_div(shape.q_blocks, 64)),
        bits_(static_cast<std::size_t>(shape.kv_blocks) * static_cast<std::size_t>(words_)) {}

  void scatter(const ForwardView& forward, std::int64_t batch_head) {
    std::fill(bits_.begin(), bits_.end(), 0);
    for (std::int32_t q = 0; q < forward.shape.q_blocks; ++q) {
      const std::int64_t walk = batch_head * forward.shape.q_blocks + q;
      const std::int32_t* entries = forward.walk_entries(walk);
      for (std::int32_t i = 0; i < forward.walks[walk].entries; ++i) {
        row(entries[i])[q / 64] |= std::uint64_t{1} << (q % 64);
      }
    }
  }
  [[nodiscard]] std::int32_t words() const { return words_; }
  [[nodiscard]] std::uint64_t* row(std::int32_t kv_block) {
    return bits_.data() + static_cast<std::size_t>(kv_block) * static_cast<std::size_t>(words_);
  }
  [[nodiscard]] bool attends(std::int32_t kv_block, std::int32_t q) {
    return (row(kv_block)[q / 64] >> (q % 64) & 1) != 0;
  }

 private:
  std::int32_t words_;
  std::vector<std::uint64_t> bits_;
};

// The lists that pack_window() asks about.
class WindowLists {
 public:
  WindowLists(ReverseBitmap& bitmap, const WindowBlock* blocks)
      : bitmap_(bitmap),
        blocks_(blocks),
        unions_(static_cast<std::size_t>(kPackWindow) * static_cast<std::size_t>(bitmap.words())) {}

  [[nodiscard]] std::int32_t size(std::int32_t i) const {
    const std::uint64_t* list = bitmap_.row(blocks_[i].block);
    std::int32_t count = 0;
    for (std::int32_t w = 0; w < bitmap_.words(); ++w) {
      count += std::popcount(list[w]);
    }
    return count;
  }
  [[nodiscard]] std::int32_t added(std::int32_t owner, std::int32_t i) {
    const std::uint64_t* list = bitmap_.row(blocks_[i].block);
    const std::uint64_t* all = union_of(owner);
    std::int32_t count = 0;
    for (std::int32_t w = 0; w < bitmap_.words(); ++w) {
      count += std::popcount(list[w] & ~all[w]);
    }
    return count;
  }
  void open(std::int32_t owner, std::int32_t i) {
    std::copy_n(bitmap_.row(blocks_[i].block), bitmap_.words(), union_of(owner));
  }
  void join(std::int32_t owner, std::int32_t i) {
    const std::uint64_t* list = bitmap_.row(blocks_[i].block);
    std::uint64_t* all = union_of(owner);
    for (std::int32_t w = 0; w < bitmap_.words(); ++w) {
      all[w] |= list[w];
    }
  }
  [[nodiscard]] std::uint64_t* union_of(std::int32_t owner) {
    return unions_.data() +
           static_cast<std::size_t>(owner) * static_cast<std::size_t>(bitmap_.words());
  }

 private:
  ReverseBitmap& bitmap_;
  const WindowBlock* blocks_;
  std::vector<std::uint64_t> unions_;
};

class Builder {
 public:
  Builder(const ForwardView& forward, const MutableBackward& plan)
      : forward_(forward), plan_(plan), bitmap_(forward.shape), lists_(bitmap_, blocks_) {}

  void build() {
    const Shape& shape = forward_.shape;
    plan_.header->magic = kBackwardMagic;
    plan_.header->version = kPlanVersion;
    plan_.header->shape = shape;
    for (std::int64_t bh = 0; bh < batch_heads(shape); ++bh) {
      bitmap_.scatter(forward_, bh);
      for (std::int32_t window = 0; window < window_count(shape); ++window) {
        write_window(static_cast<std::int32_t>(bh), window);
      }
    }
    std::int32_t at = 0;
    at = queue_route(kOwnerSlots, at);
    plan_.header->items8 = at;
    plan_.header->items4 = queue_route(kSmallOwnerSlots, at) - at;
  }

 private:
  void write_window(std::int32_t batch_head, std::int32_t window) {
    const std::int32_t count =
        list_window(forward_.kv_blocks(batch_head), forward_.shape.kv_blocks, window, blocks_);
    WindowOwner owners[kPackWindow];
    const std::int32_t owner_count = pack_window(blocks_, count, lists_, owners);
    for (std::int32_t o = 0; o < owner_count; ++o) {
      write_owner(batch_head, owners[o], lists_.union_of(o));
    }
  }

  void write_owner(std::int32_t batch_head, const WindowOwner& window_owner,
                   const std::uint64_t* list) {
    BackwardHeader& header = *plan_.header;
    Owner& owner = plan_.owners[header.owners++];
    owner.batch_head = batch_head;
    owner.slots = window_owner.slots;
    owner.blocks = window_owner.blocks;
    owner.block_begin = header.owner_blocks;
    owner.pages = window_owner.pages;
    owner.entry_begin = header.q_entries;
    for (std::int32_t i = 0; i < owner.blocks; ++i) {
      plan_.owner_blocks[header.owner_blocks++] = blocks_[window_owner.member[i]].block;
    }
    const std::int32_t* members = plan_.owner_blocks + owner.block_begin;
    const Extent* kv_blocks = forward_.kv_blocks(batch_head);
    owner.flags = owner.blocks > 1                           ? kOwnerMixed
                  : kv_blocks[members[0]].rows == kBlockRows ? kOwnerFull
                                                             : 0;

    for (std::int32_t w = 0; w < bitmap_.words(); ++w) {
      for (std::uint64_t bits = list[w]; bits != 0; bits &= bits - 1) {
        const std::int32_t q = w * 64 + std::countr_zero(bits);
        plan_.q_entries[header.q_entries++] =
            make_q_entry(q, attended_slots(owner, members, kv_blocks, q));
        ++owner.entries;
      }
    }
  }

  [[nodiscard]] std::uint32_t attended_slots(const Owner& owner, const std::int32_t* members,
                                             const Extent* kv_blocks, std::int32_t q) {
    std::uint32_t slots = kAllValid;
    std::int32_t slot = 0;
    for (std::int32_t i = 0; i < owner.blocks; ++i) {
      const std::int32_t pages = pages_of(kv_blocks[members[i]].rows);
      if (!bitmap_.attends(members[i], q)) {
        slots &= ~(((1u << pages) - 1u) << slot);
      }
      slot += pages;
    }
    return slots;
  }

  // Appends the items of all owners of one route, head by head.
  std::int32_t queue_route(std::int32_t slots, std::int32_t at) {
    std::int32_t owner = 0;
    for (std::int64_t bh = 0; bh < batch_heads(forward_.shape); ++bh) {
      items_.clear();
      for (; owner < plan_.header->owners && plan_.owners[owner].batch_head == bh; ++owner) {
        if (plan_.owners[owner].slots == slots) {
          split_owner(owner);
        }
      }
      const auto count = static_cast<std::int32_t>(items_.size());
      counting_sort<kItemBuckets>(
          count,
          [&](std::int32_t i) { return item_bucket(items_[static_cast<std::size_t>(i)].pages); },
          [&](std::int32_t to, std::int32_t i) {
            plan_.items[at + to] = items_[static_cast<std::size_t>(i)];
          });
      at += count;
    }
    return at;
  }

  // The groups of one owner; one without entries for an owner whose blocks nobody selects.
  void split_owner(std::int32_t number) {
    const Owner& owner = plan_.owners[number];
    const Extent* q_blocks = forward_.q_blocks(owner.batch_head);
    const std::size_t first = items_.size();
    std::int32_t done = 0;
    do {
      const std::uint32_t begin = owner.entry_begin + static_cast<std::uint32_t>(done);
      const Group group = cut_group(owner.entries - done, [&](std::int32_t i) {
        const std::uint32_t entry = plan_.q_entries[begin + static_cast<std::uint32_t>(i)];
        return pages_of(q_blocks[entry_block(entry)].rows);
      });
      items_.push_back({number,
                        begin,
                        group.entries,
                        group.pages,
                        static_cast<std::int32_t>(items_.size() - first),
                        0,
                        {}});
      done += group.entries;
    } while (done < owner.entries);
    for (std::size_t i = first; i < items_.size(); ++i) {
      items_[i].groups = static_cast<std::int32_t>(items_.size() - first);
    }
  }

  const ForwardView& forward_;
  const MutableBackward& plan_;
  ReverseBitmap bitmap_;
  WindowBlock blocks_[kPackWindow] = {};
  WindowLists lists_;
  std::vector<OwnerItem> items_;  // scratch: the items of a head and route
};

}  // namespace

void build_backward(const ForwardView& forward, const MutableBackward& plan) {
  Builder(forward, plan).build();
}

}  // namespace kpage::plan
