// Lets threads act in an order fixed beforehand, so that sums do not depend on their number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kpage::cpu {

// Several sequences of turns. Turn n of a sequence waits for the turns before it; so a thread that
// takes a turn up must do so after, or on, threads that have taken up all of these.
class Turns {
 public:
  explicit Turns(std::int64_t sequences) : next_(static_cast<std::size_t>(sequences)) {}

  void wait(std::int64_t sequence, std::int32_t turn) {
    std::atomic<std::int32_t>& next = next_[static_cast<std::size_t>(sequence)];
    for (std::int32_t now = next.load(); now != turn; now = next.load()) {
      next.wait(now);
    }
  }
  void pass(std::int64_t sequence) {
    std::atomic<std::int32_t>& next = next_[static_cast<std::size_t>(sequence)];
    next.fetch_add(1);
    next.notify_all();
  }

 private:
  std::vector<std::atomic<std::int32_t>> next_;
};

}  // namespace kpage::cpu
