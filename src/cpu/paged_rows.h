// Room for rows of one side of every head: the pages of its blocks, one after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/format.h"

namespace kpage::cpu {

class PagedRows {
 public:
  PagedRows(const plan::Shape& shape, PartitionScope scope, const plan::ScopeInfo* scopes) {
    const std::int64_t heads = plan::batch_heads(shape);
    first_.reserve(static_cast<std::size_t>(heads) + 1);
    first_.push_back(0);
    for (std::int64_t bh = 0; bh < heads; ++bh) {
      const std::int64_t rows =
          std::int64_t{scopes[plan::scope_of(scope, shape, bh)].pages} * plan::kPageRows;
      first_.push_back(first_.back() + rows);
      most_ = std::max(most_, rows);
    }
  }

  // Where the rows of a head begin among those of all heads.
  [[nodiscard]] std::int64_t first(std::int64_t batch_head) const {
    return first_[static_cast<std::size_t>(batch_head)];
  }
  [[nodiscard]] std::int64_t count(std::int64_t batch_head) const {
    return first(batch_head + 1) - first(batch_head);
  }
  [[nodiscard]] std::int64_t all() const { return first_.back(); }
  [[nodiscard]] std::int64_t most() const { return most_; }  // of a head
  // Where the rows of a block begin among those of its head.
  [[nodiscard]] static std::int64_t of_block(const plan::Extent& block) {
    return std::int64_t{block.page} * plan::kPageRows;
  }

 private:
  std::vector<std::int64_t> first_;
  std::int64_t most_ = 0;
};

}  // namespace kpage::cpu
