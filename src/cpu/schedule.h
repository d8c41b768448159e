// How the backward pass is cut into tasks. It depends on the plan alone, so that sums are taken in
// the same order whatever the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/format.h"

namespace kpage::cpu {

using OwnerItems = std::span<const std::uint32_t>;  // numbers of OwnerItems, group by group

// Some consecutive owners of one head. One thread runs a task.
struct Task {
  std::int64_t batch_head = 0;
  std::int64_t kv_head = 0;  // batch * Hkv + key/value head
  std::int64_t owner_begin = 0;
  std::int64_t owner_end = 0;
  std::int32_t part = 0;   // number of the task within its head
  std::int32_t parts = 1;  // tasks of its head
  std::int32_t turn = 0;   // number of the task among those of its key/value head
  bool last_turn = false;
};

class Schedule {
 public:
  // `group`: query heads to a key/value head.
  Schedule(const plan::ForwardView& forward, const plan::BackwardView& backward,
           std::int64_t group);

  // Those of a key/value head follow each other, in the order of their turns.
  [[nodiscard]] const std::vector<Task>& tasks() const { return tasks_; }
  [[nodiscard]] OwnerItems items(std::int64_t owner) const {
    const auto i = static_cast<std::size_t>(owner);
    return OwnerItems(items_).subspan(first_item_[i], first_item_[i + 1] - first_item_[i]);
  }
  // Whether any head has several tasks, which then need sums of their own.
  [[nodiscard]] bool splits_heads() const { return splits_heads_; }

 private:
  void list_items();
  void split_head(std::int64_t batch_head, std::int64_t owner_begin, std::int64_t owner_end,
                  std::int64_t parts_wanted);
  void number_turns(std::int64_t group);
  [[nodiscard]] std::int64_t work(std::int64_t owner) const;

  plan::BackwardView backward_;
  std::vector<Task> tasks_;
  std::vector<std::uint32_t> items_;     // of all owners
  std::vector<std::size_t> first_item_;  // [owners + 1]
  bool splits_heads_ = false;
};

}  // namespace kpage::cpu
