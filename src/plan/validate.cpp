#include "plan/validate.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/message.h"

namespace kpage::plan {
namespace {

template <class... Parts>
Status broken(const std::string& where, Parts... parts) {
  std::string message = "plan: " + where + ": ";
  const auto add = [&message](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      message += std::to_string(part);
    } else {
      message += part;
    }
  };
  (add(parts), ...);
  return {ErrorCode::kInvalidArgument, message};
}

std::string name(const char* what, std::int64_t number) {
  return std::string(what) + " " + std::to_string(number);
}

// --- Extents --------------------------------------------------------------------------------

Status check_scope(const std::string& where, const Extent* extents, std::int32_t count,
                   const ScopeInfo& info) {
  std::int32_t pages = 0;
  std::int32_t valid_rows = 0;
  std::vector<std::int32_t> order;
  for (std::int32_t b = 0; b < count; ++b) {
    const Extent& e = extents[b];
    if (e.rows < 0 || e.rows > kBlockRows || e.row < 0 || e.row > kMaxRows - e.rows) {
      return broken(where, "block ", b, " holds rows ", e.row, " + ", e.rows);
    }
    if (e.page != pages) {
      return broken(where, "block ", b, " begins at page ", e.page, ", expected ", pages);
    }
    if (e.rows == 0 && (e.row != 0 || e.gap_end != 0)) {
      return broken(where, "empty block ", b, " has a place");
    }
    if (e.rows > 0) {
      order.push_back(b);
    }
    pages += pages_of(e.rows);
    valid_rows += e.rows;
  }
  std::sort(order.begin(), order.end(),
            [extents](std::int32_t a, std::int32_t b) { return extents[a].row < extents[b].row; });
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Extent& e = extents[order[i]];
    const bool last = i + 1 == order.size();
    const std::int32_t next = last ? kToTheEnd : extents[order[i + 1]].row;
    if (next < e.row + e.rows) {
      return broken(where, "blocks ", order[i], " and ", order[i + 1], " overlap");
    }
    if (e.gap_end != next) {
      return broken(where, "the gap after block ", order[i], " ends at ", e.gap_end, ", expected ",
                    next);
    }
  }
  const std::int32_t first_row = order.empty() ? kToTheEnd : extents[order.front()].row;
  const std::int32_t end_row =
      order.empty() ? 0 : extents[order.back()].row + extents[order.back()].rows;
  if (info.first_row != first_row || info.end_row != end_row || info.pages != pages ||
      info.valid_rows != valid_rows) {
    return broken(where, "totals do not match the blocks");
  }
  return {};
}

Status check_side(const char* side, PartitionScope scope, const Shape& shape, std::int32_t blocks,
                  const Extent* extents, const ScopeInfo* infos) {
  for (std::int64_t i = 0; i < scopes(scope, shape); ++i) {
    Status status = check_scope(name(side, i), extents + i * blocks, blocks, infos[i]);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

// --- Walks ----------------------------------------------------------------------------------

// `seen` is a stamp for each K/V block: the last walk that held it, plus one.
Status check_walk(const ForwardView& plan, std::int64_t number, std::vector<std::int64_t>& seen) {
  const std::string where = name("walk", number);
  const std::int64_t bh = number / plan.shape.q_blocks;
  const Extent* blocks = plan.kv_blocks(bh);
  const Walk& walk = plan.walks[number];
  const std::int32_t* entries = plan.walk_entries(number);
  const bool empty_block = plan.q_blocks(bh)[number % plan.shape.q_blocks].rows == 0;
  if (walk.entries < 0 || walk.entries > plan.shape.max_list || (empty_block && walk.entries > 0)) {
    return broken(where, walk.entries, " entries");
  }
  std::int32_t runs = 0;
  std::int32_t tails = 0;
  std::int32_t full_pages = 0;
  for (std::int32_t i = 0; i < walk.entries; ++i) {
    const std::int32_t id = entries[i];
    if (id < 0 || id >= plan.shape.kv_blocks || blocks[id].rows == 0) {
      return broken(where, "entry ", i, " is block ", id);
    }
    std::int64_t& stamp = seen[static_cast<std::size_t>(id)];
    if (stamp == number + 1) {
      return broken(where, "block ", id, " stands twice");
    }
    stamp = number + 1;
    if (i > 0 && entry_class(blocks[entries[i - 1]].rows) > entry_class(blocks[id].rows)) {
      return broken(where, "entry ", i, " is out of order");
    }
    full_pages += full_pages_of(blocks[id].rows);
    runs += full_pages_of(blocks[id].rows) > 0 ? 1 : 0;
    tails += tail_rows_of(blocks[id].rows) > 0 ? 1 : 0;
  }
  if (walk.runs != runs || walk.tails != tails || walk.full_pages != full_pages) {
    return broken(where, "counts do not match the entries");
  }
  for (std::int32_t i = walk.entries; i < plan.shape.max_list; ++i) {
    if (entries[i] != 0) {
      return broken(where, "something stands past its entries");
    }
  }
  const std::uint32_t* masks = plan.walk_masks(number);
  const auto block_at = [&](std::int32_t i) { return blocks[entries[i]]; };
  const std::int32_t words = mask_words(walk);
  for (std::int32_t word = 0; word < mask_words_per_walk(plan.shape); ++word) {
    if (masks[word] != (word < words ? mask_word(walk, word, block_at) : 0u)) {
      return broken(where, "mask word ", word, " does not match the entries");
    }
  }
  return {};
}

Status check_queue(const ForwardView& plan) {
  const std::int32_t q_blocks = plan.shape.q_blocks;
  std::vector<bool> queued(static_cast<std::size_t>(walk_count(plan.shape)));
  const std::int64_t q128 = plan.header->q128;
  const std::int64_t end = q128 + plan.header->q64;
  if (q128 < 0 || plan.header->q64 < 0 || end > walk_count(plan.shape)) {
    return broken("queue", "lengths ", q128, " and ", plan.header->q64);
  }
  const auto rank = [&](std::int64_t at) {
    const std::int64_t walk = plan.queue[at];
    return std::tuple(walk / q_blocks, length_bucket(walk_tiles(plan.walks[walk])), walk);
  };
  for (std::int64_t i = 0; i < end; ++i) {
    const std::int64_t walk = plan.queue[i];
    if (walk >= walk_count(plan.shape) || queued[static_cast<std::size_t>(walk)]) {
      return broken("queue", "place ", i, " holds walk ", walk);
    }
    queued[static_cast<std::size_t>(walk)] = true;
    const std::int32_t rows = plan.q_blocks(walk / q_blocks)[walk % q_blocks].rows;
    if (rows == 0 || takes_q64(rows) != (i >= q128)) {
      return broken("queue", "walk ", walk, " is on the wrong route");
    }
    if (i > 0 && i != q128 && rank(i - 1) >= rank(i)) {
      return broken("queue", "place ", i, " is out of order");
    }
  }
  for (std::int64_t walk = 0; walk < walk_count(plan.shape); ++walk) {
    const bool empty = plan.q_blocks(walk / q_blocks)[walk % q_blocks].rows == 0;
    if (queued[static_cast<std::size_t>(walk)] == empty) {
      return broken("queue", "walk ", walk, empty ? " is empty, yet queued" : " is missing");
    }
  }
  return {};
}

// --- Owners ---------------------------------------------------------------------------------

class BackwardCheck {
 public:
  BackwardCheck(const ForwardView& forward, const BackwardView& plan)
      : forward_(forward), plan_(plan), header_(*plan.header) {}

  Status run() {
    if (header_.magic != kBackwardMagic || header_.version != kPlanVersion ||
        header_.shape != forward_.shape) {
      return broken("backward header", "not that of this plan");
    }
    const Shape& shape = forward_.shape;
    const std::int64_t items = std::int64_t{header_.items8} + header_.items4;
    if (header_.owners < 0 || header_.owners > owner_capacity(shape) || header_.owner_blocks < 0 ||
        header_.owner_blocks > owner_capacity(shape) || header_.items8 < 0 || header_.items4 < 0 ||
        items > item_capacity(shape) || header_.q_entries > walk_count(shape) * shape.max_list) {
      return broken("backward header", "counts beyond capacity");
    }
    std::int32_t owner = 0;
    for (std::int64_t bh = 0; bh < batch_heads(shape); ++bh) {
      if (Status status = check_head(static_cast<std::int32_t>(bh), owner); !status.ok()) {
        return status;
      }
    }
    if (owner != header_.owners || blocks_ != header_.owner_blocks ||
        entries_ != header_.q_entries) {
      return broken("backward header", "counts do not match the owners");
    }
    return check_items();
  }

 private:
  Status check_head(std::int32_t bh, std::int32_t& owner) {
    const Shape& shape = forward_.shape;
    const Extent* kv_blocks = forward_.kv_blocks(bh);
    reverse_.assign(static_cast<std::size_t>(shape.kv_blocks), {});
    for (std::int32_t q = 0; q < shape.q_blocks; ++q) {
      const std::int64_t walk = std::int64_t{bh} * shape.q_blocks + q;
      for (std::int32_t i = 0; i < forward_.walks[walk].entries; ++i) {
        reverse_[static_cast<std::size_t>(forward_.walk_entries(walk)[i])].push_back(q);
      }
    }
    owned_.assign(static_cast<std::size_t>(shape.kv_blocks), false);
    for (; owner < header_.owners && plan_.owners[owner].batch_head == bh; ++owner) {
      if (Status status = check_owner(owner); !status.ok()) {
        return status;
      }
    }
    for (std::int32_t b = 0; b < shape.kv_blocks; ++b) {
      if (owned_[static_cast<std::size_t>(b)] != (kv_blocks[b].rows > 0)) {
        return broken(name("head", bh), "K/V block ", b, " has no owner, or should have none");
      }
    }
    return {};
  }

  Status check_owner(std::int32_t number) {
    const std::string where = name("owner", number);
    const Owner& owner = plan_.owners[number];
    const Extent* kv_blocks = forward_.kv_blocks(owner.batch_head);
    if ((owner.slots != kOwnerSlots && owner.slots != kSmallOwnerSlots) || owner.blocks < 1 ||
        owner.blocks > owner.slots || owner.block_begin != blocks_ ||
        owner.entry_begin != entries_ || owner.entries < 0 ||
        owner.entry_begin + std::uint64_t(owner.entries) > header_.q_entries ||
        owner.block_begin + owner.blocks > header_.owner_blocks) {
      return broken(where, "fields out of range");
    }
    blocks_ += owner.blocks;
    entries_ += static_cast<std::uint32_t>(owner.entries);

    // slots_of[q]: which slots query block q attends to, from the graph.
    std::vector<std::uint32_t> slots_of(static_cast<std::size_t>(forward_.shape.q_blocks));
    std::int32_t slot = 0;
    std::int32_t first_rows = 0;
    for (std::int32_t i = 0; i < owner.blocks; ++i) {
      const std::int32_t b = plan_.owner_blocks[owner.block_begin + i];
      if (b < 0 || b >= forward_.shape.kv_blocks || kv_blocks[b].rows == 0 ||
          owned_[static_cast<std::size_t>(b)]) {
        return broken(where, "K/V block ", b);
      }
      owned_[static_cast<std::size_t>(b)] = true;
      first_rows = i == 0 ? kv_blocks[b].rows : first_rows;
      const std::int32_t pages = pages_of(kv_blocks[b].rows);
      for (const std::int32_t q : reverse_[static_cast<std::size_t>(b)]) {
        slots_of[static_cast<std::size_t>(q)] |= ((1u << pages) - 1u) << slot;
      }
      slot += pages;
    }
    if (slot != owner.pages || slot > owner.slots) {
      return broken(where, owner.pages, " pages in ", owner.slots, " slots");
    }
    const std::int32_t flags = owner.blocks > 1           ? kOwnerMixed
                               : first_rows == kBlockRows ? kOwnerFull
                                                          : 0;
    if (owner.flags != flags) {
      return broken(where, "flags ", owner.flags, ", expected ", flags);
    }

    const std::uint32_t unused = kAllValid & ~((1u << owner.pages) - 1u);
    std::int32_t listed = 0;
    for (std::int32_t i = 0; i < owner.entries; ++i) {
      const std::uint32_t entry = plan_.q_entries[owner.entry_begin + std::uint32_t(i)];
      const std::int32_t q = entry_block(entry);
      if (q >= forward_.shape.q_blocks ||
          entry_slots(entry) != (slots_of[static_cast<std::size_t>(q)] | unused) ||
          slots_of[static_cast<std::size_t>(q)] == 0) {
        return broken(where, "entry ", i, " does not match the graph");
      }
      if (i > 0) {
        const std::int32_t before =
            entry_block(plan_.q_entries[owner.entry_begin + std::uint32_t(i - 1)]);
        if (before >= q) {
          return broken(where, "entry ", i, " is out of order");
        }
      }
    }
    for (const std::uint32_t slots : slots_of) {
      listed += slots != 0 ? 1 : 0;
    }
    if (listed != owner.entries) {
      return broken(where, owner.entries, " entries, expected ", listed);
    }
    return {};
  }

  // Every owner's entries are covered by its groups, in order, and the queues are in order.
  Status check_items() {
    const std::int32_t items = header_.items8 + header_.items4;
    std::vector<std::int32_t> groups_seen(static_cast<std::size_t>(header_.owners));
    std::vector<std::int32_t> entries_seen(static_cast<std::size_t>(header_.owners));
    const auto rank = [&](const OwnerItem& item) {
      return std::tuple(plan_.owners[item.owner].batch_head, item_bucket(item.pages), item.owner,
                        item.group);
    };
    for (std::int32_t i = 0; i < items; ++i) {
      const std::string where = name("item", i);
      const OwnerItem& item = plan_.items[i];
      if (item.owner < 0 || item.owner >= header_.owners) {
        return broken(where, "owner ", item.owner);
      }
      const Owner& owner = plan_.owners[item.owner];
      if ((owner.slots == kOwnerSlots) != (i < header_.items8)) {
        return broken(where, "on the wrong route");
      }
      if (i > 0 && i != header_.items8 && rank(plan_.items[i - 1]) >= rank(item)) {
        return broken(where, "out of order");
      }
      if (item.entry_begin < owner.entry_begin || item.entries < 0 ||
          item.entry_begin + std::uint64_t(item.entries) >
              owner.entry_begin + std::uint64_t(owner.entries) ||
          item.pages > kGroupPages) {
        return broken(where, "fields out of range");
      }
      std::int32_t pages = 0;
      for (std::int32_t e = 0; e < item.entries; ++e) {
        const std::uint32_t entry = plan_.q_entries[item.entry_begin + std::uint32_t(e)];
        pages += pages_of(forward_.q_blocks(owner.batch_head)[entry_block(entry)].rows);
      }
      if (pages != item.pages || item.group < 0 || item.group >= item.groups) {
        return broken(where, "pages or group do not match its entries");
      }
      ++groups_seen[static_cast<std::size_t>(item.owner)];
      entries_seen[static_cast<std::size_t>(item.owner)] += item.entries;
      if (item.group + 1 < item.groups && pages <= kGroupPages - kBlockPages) {
        return broken(where, "a group that is not full");
      }
    }
    for (std::int32_t i = 0; i < items; ++i) {
      const OwnerItem& item = plan_.items[i];
      const auto o = static_cast<std::size_t>(item.owner);
      if (groups_seen[o] != item.groups || entries_seen[o] != plan_.owners[item.owner].entries) {
        return broken(name("owner", item.owner), "groups do not cover its entries");
      }
    }
    for (std::size_t o = 0; o < groups_seen.size(); ++o) {
      if (groups_seen[o] == 0) {
        return broken(name("owner", static_cast<std::int64_t>(o)), "has no item");
      }
    }
    return {};
  }

  const ForwardView& forward_;
  const BackwardView& plan_;
  const BackwardHeader& header_;
  std::vector<std::vector<std::int32_t>> reverse_;  // of the head: query blocks of each K/V block
  std::vector<bool> owned_;                         // of the head
  std::int32_t blocks_ = 0;
  std::uint32_t entries_ = 0;
};

}  // namespace

Status check_shape(const Shape& s) {
  constexpr std::int64_t kMostBlocks = 0x7fffffff;
  constexpr std::int64_t kMostPlaces = 0xfffffffe;
  const auto known = [](PartitionScope scope) {
    return scope >= PartitionScope::kShared && scope <= PartitionScope::kPerBatchHead;
  };
  const auto within = [](std::int32_t value, std::int32_t low, std::int32_t high) {
    return low <= value && value <= high;
  };
  std::int64_t places = 0;
  const bool fits = s.batch >= 1 && s.heads >= 1 && within(s.q_blocks, 0, kMaxBlocks) &&
                    within(s.kv_blocks, 0, kMaxBlocks) && within(s.max_list, 0, kMaxBlocks) &&
                    known(s.q_scope) && known(s.kv_scope) && batch_heads(s) <= kMostBlocks &&
                    walk_count(s) <= kMostBlocks && owner_capacity(s) <= kMostBlocks &&
                    !__builtin_mul_overflow(walk_count(s), s.max_list, &places) &&
                    places <= kMostPlaces;
  if (!fits) {
    return invalid_argument(
        "plan",
        text("at least one batch element and head, in each head at most ", kMaxBlocks,
             " blocks of either side and places in a list, and over all heads at most 2^31 - 1 "
             "blocks of either side and 2^32 - 2 places in lists"),
        "batch, heads, q blocks, kv blocks, list length " +
            shape_text({s.batch, s.heads, s.q_blocks, s.kv_blocks, s.max_list}));
  }
  return {};
}

Status validate_forward(const ForwardView& plan) {
  const ForwardHeader& header = *plan.header;
  if (header.magic != kForwardMagic || header.version != kPlanVersion ||
      header.shape != plan.shape) {
    return broken("forward header", "not that of this plan");
  }
  const Shape& shape = plan.shape;
  Status status =
      check_side("q scope", shape.q_scope, shape, shape.q_blocks, plan.q_extents, plan.q_scopes);
  if (!status.ok()) {
    return status;
  }
  status = check_side("kv scope", shape.kv_scope, shape, shape.kv_blocks, plan.kv_extents,
                      plan.kv_scopes);
  if (!status.ok()) {
    return status;
  }
  std::vector<std::int64_t> seen(static_cast<std::size_t>(shape.kv_blocks));
  for (std::int64_t walk = 0; walk < walk_count(shape); ++walk) {
    if (Status bad = check_walk(plan, walk, seen); !bad.ok()) {
      return bad;
    }
  }
  return check_queue(plan);
}

Status validate_backward(const ForwardView& forward, const BackwardView& plan) {
  return BackwardCheck(forward, plan).run();
}

}  // namespace kpage::plan
