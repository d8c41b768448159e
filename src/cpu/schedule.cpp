#include "cpu/schedule.h"

#include <algorithm>

namespace kpage::cpu {
namespace {

// Enough for the threads of a large machine; each part of a head costs a pass over its dQ.
constexpr std::int64_t kTasksWanted = 32;

}  // namespace

Schedule::Schedule(const plan::ForwardView& forward, const plan::BackwardView& backward,
                   std::int64_t group)
    : backward_(backward) {
  list_items();
  const std::int64_t heads = plan::batch_heads(forward.shape);
  std::int64_t owner = 0;
  for (std::int64_t bh = 0; bh < heads; ++bh) {
    const std::int64_t begin = owner;
    while (owner < backward.header->owners && backward.owners[owner].batch_head == bh) {
      ++owner;
    }
    split_head(bh, begin, owner, ceil_div(kTasksWanted, heads));
  }
  number_turns(group);
}

void Schedule::list_items() {
  const auto owners = static_cast<std::size_t>(backward_.header->owners);
  const std::int32_t count = backward_.header->items8 + backward_.header->items4;
  first_item_.assign(owners + 1, 0);
  for (std::int32_t i = 0; i < count; ++i) {
    ++first_item_[static_cast<std::size_t>(backward_.items[i].owner) + 1];
  }
  for (std::size_t owner = 0; owner < owners; ++owner) {
    first_item_[owner + 1] += first_item_[owner];
  }
  items_.resize(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) {
    const plan::OwnerItem& item = backward_.items[i];
    items_[first_item_[static_cast<std::size_t>(item.owner)] +
           static_cast<std::size_t>(item.group)] = static_cast<std::uint32_t>(i);
  }
}

// Parts of about the same work. A head without owners has one all the same: it writes zeros.
void Schedule::split_head(std::int64_t batch_head, std::int64_t owner_begin, std::int64_t owner_end,
                          std::int64_t parts_wanted) {
  const std::int64_t most = std::max<std::int64_t>(owner_end - owner_begin, 1);
  const auto parts = static_cast<std::int32_t>(std::min(parts_wanted, most));
  splits_heads_ = splits_heads_ || parts > 1;
  std::int64_t total = 0;
  for (std::int64_t owner = owner_begin; owner < owner_end; ++owner) {
    total += work(owner);
  }
  std::int64_t done = 0;
  std::int64_t at = owner_begin;
  for (std::int32_t part = 0; part < parts; ++part) {
    Task task;
    task.batch_head = batch_head;
    task.owner_begin = at;
    while (at < owner_end && done * parts < total * (part + 1)) {
      done += work(at++);
    }
    task.owner_end = at;
    task.part = part;
    task.parts = parts;
    tasks_.push_back(task);
  }
}

void Schedule::number_turns(std::int64_t group) {
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    Task& task = tasks_[i];
    task.kv_head = task.batch_head / group;
    const bool follows = i > 0 && tasks_[i - 1].kv_head == task.kv_head;
    task.turn = follows ? tasks_[i - 1].turn + 1 : 0;
    task.last_turn = true;
    if (follows) {
      tasks_[i - 1].last_turn = false;
    }
  }
}

// Page pairs of the owner's walk; storing its tile is work, too.
std::int64_t Schedule::work(std::int64_t owner) const {
  std::int64_t pages = 1;
  for (const std::uint32_t item : items(owner)) {
    pages += backward_.items[item].pages;
  }
  return pages * backward_.owners[owner].slots;
}

}  // namespace kpage::cpu
