#include "support/plan_pairs.h"

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <vector>

#include "oracle/blocks.h"
#include "plan/format.h"
#include "plan/views.h"

namespace kpage::test {
namespace {

using plan::kPageRows;

// How often each pair of rows of one head was executed.
class PairCounts {
 public:
  PairCounts(std::int64_t q_rows, std::int64_t kv_rows)
      : kv_rows_(kv_rows), counts_(static_cast<std::size_t>(q_rows * kv_rows)) {}

  void add(std::int64_t q_row, std::int64_t kv_row) {
    ++counts_[static_cast<std::size_t>(q_row * kv_rows_ + kv_row)];
  }

  [[nodiscard]] std::string difference(const PairCounts& expected) const {
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] != expected.counts_[i]) {
        std::ostringstream out;
        const auto columns = static_cast<std::size_t>(kv_rows_);
        out << "query row " << i / columns << " and key row " << i % columns << " are executed "
            << int{counts_[i]} << " times instead of " << int{expected.counts_[i]};
        return std::move(out).str();
      }
    }
    return {};
  }

 private:
  std::int64_t kv_rows_;
  std::vector<std::uint8_t> counts_;
};

std::int64_t rows_of_side(const plan::Extent* blocks, std::int32_t count) {
  std::int64_t rows = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    rows = std::max<std::int64_t>(rows, blocks[i].row + blocks[i].rows);
  }
  return rows;
}

std::vector<PairCounts> no_pairs(const plan::ForwardView& plan) {
  std::vector<PairCounts> counts;
  for (std::int64_t i = 0; i < plan::batch_heads(plan.shape); ++i) {
    counts.emplace_back(rows_of_side(plan.q_blocks(i), plan.shape.q_blocks),
                        rows_of_side(plan.kv_blocks(i), plan.shape.kv_blocks));
  }
  return counts;
}

std::string difference_from_layout(const LayoutView& layout, const plan::ForwardView& plan,
                                   const std::vector<PairCounts>& executed) {
  std::vector<PairCounts> expected = no_pairs(plan);
  for (std::int64_t i = 0; i < plan::batch_heads(plan.shape); ++i) {
    const std::int64_t batch = i / layout.heads;
    const std::int64_t head = i % layout.heads;
    for (std::int64_t block = 0; block < layout.q.blocks; ++block) {
      const oracle::RowRange q = oracle::q_block_rows(layout, batch, head, block);
      for (const std::int32_t kv_block : oracle::list_of(layout, batch, head, block)) {
        const oracle::RowRange kv = oracle::kv_block_rows(layout, batch, head, kv_block);
        for (std::int64_t pair = 0; pair < q.count * kv.count; ++pair) {
          expected[static_cast<std::size_t>(i)].add(q.first + pair / kv.count,
                                                    kv.first + pair % kv.count);
        }
      }
    }
  }
  for (std::size_t i = 0; i < executed.size(); ++i) {
    if (std::string text = executed[i].difference(expected[i]); !text.empty()) {
      return "batch * heads + head " + std::to_string(i) + ": " + text;
    }
  }
  return {};
}

// The 16 bits of a slot of tile `tile`.
std::uint32_t slot_mask(const plan::ForwardView& plan, std::int64_t walk, std::int32_t tile,
                        std::int32_t slot) {
  const std::int32_t first = plan::first_masked_tile(plan.walks[walk]);
  if (tile < first) {
    return 0xffff;
  }
  const std::uint32_t word =
      plan.walk_masks(walk)[(tile - first) * plan::kMaskWordsPerTile + slot / 2];
  return slot % 2 == 0 ? word & 0xffff : word >> 16;
}

// Pages of an owner, in slot order: first row and valid rows.
struct Page {
  std::int32_t row;
  std::int32_t rows;
};
void append_pages(const plan::Extent& block, std::vector<Page>& pages) {
  for (std::int32_t done = 0; done < block.rows; done += kPageRows) {
    pages.push_back({block.row + done, std::min(kPageRows, block.rows - done)});
  }
}

}  // namespace

std::string forward_pairs_difference(const LayoutView& layout, const Plan& plan) {
  const plan::ForwardView view = plan::forward_view(plan.ref());
  std::vector<PairCounts> executed = no_pairs(view);
  for (std::int32_t i = 0; i < view.header->q128 + view.header->q64; ++i) {
    const std::int64_t number = view.queue[i];
    const plan::Walk& walk = view.walks[number];
    const std::int64_t batch_head = number / view.shape.q_blocks;
    const plan::Extent& q = view.q_blocks(batch_head)[number % view.shape.q_blocks];
    const auto run_at = [&](std::int32_t run) {
      const std::int32_t block = view.walk_entries(number)[plan::entry_of_run(walk, run)];
      return plan::run_of(walk, run, view.kv_blocks(batch_head)[block]);
    };
    plan::Cursor cursor;
    for (std::int32_t tile = 0; tile < plan::walk_tiles(walk); ++tile) {
      const auto cut = plan::next_tile<plan::kTilePages>(cursor, plan::walk_runs(walk), run_at);
      std::vector<std::int32_t> slot_rows;
      for (std::int32_t s = 0; s < cut.count; ++s) {
        for (std::int32_t page = 0; page < cut.segment[s].pages; ++page) {
          slot_rows.push_back(cut.segment[s].row + page * kPageRows);
        }
      }
      for (std::int32_t slot = 0; slot < plan::kTilePages; ++slot) {
        const std::uint32_t mask = slot_mask(view, number, tile, slot);
        if (slot >= static_cast<std::int32_t>(slot_rows.size())) {
          if (mask != 0) {
            return "walk " + std::to_string(number) + ": a dummy page has valid rows";
          }
          continue;
        }
        for (std::int32_t pair = 0; pair < kPageRows * q.rows; ++pair) {
          if ((mask >> (pair % kPageRows)) & 1u) {
            executed[static_cast<std::size_t>(batch_head)].add(
                q.row + pair / kPageRows,
                slot_rows[static_cast<std::size_t>(slot)] + pair % kPageRows);
          }
        }
      }
    }
  }
  return difference_from_layout(layout, view, executed);
}

std::string backward_pairs_difference(const LayoutView& layout, const Plan& plan) {
  const plan::ForwardView forward = plan::forward_view(plan.ref());
  const plan::BackwardView view = plan::backward_view(plan.ref());
  std::vector<PairCounts> executed = no_pairs(forward);
  for (std::int32_t i = 0; i < view.header->items8 + view.header->items4; ++i) {
    const plan::OwnerItem& item = view.items[i];
    const plan::Owner& owner = view.owners[item.owner];
    std::vector<Page> slots;
    for (std::int32_t block = 0; block < owner.blocks; ++block) {
      append_pages(
          forward.kv_blocks(owner.batch_head)[view.owner_blocks[owner.block_begin + block]], slots);
    }
    // Steps of 64 page pairs, each with its adjacency word, as the kernels take them.
    std::vector<Page> q_pages;
    std::vector<std::uint32_t> entry_of_page;
    for (std::int32_t e = 0; e < item.entries; ++e) {
      const std::uint32_t entry = view.q_entries[item.entry_begin + static_cast<std::uint32_t>(e)];
      append_pages(forward.q_blocks(owner.batch_head)[plan::entry_block(entry)], q_pages);
      entry_of_page.resize(q_pages.size(), entry);
    }
    const auto step_pages = static_cast<std::size_t>(plan::kStepPairs / owner.slots);
    for (std::size_t begin = 0; begin < q_pages.size(); begin += step_pages) {
      const std::size_t end = std::min(q_pages.size(), begin + step_pages);
      std::uint64_t adjacency = 0;
      for (std::size_t page = begin; page < end; ++page) {
        adjacency |= plan::adjacency_bits(static_cast<std::int32_t>(page - begin), owner.slots,
                                          entry_of_page[page]);
      }
      if ((owner.flags & plan::kOwnerMixed) == 0) {
        adjacency = ~std::uint64_t{0};  // no step of this owner looks at its word
      }
      for (std::size_t page = begin; page < end; ++page) {
        for (std::size_t slot = 0; slot < slots.size(); ++slot) {
          const std::size_t bit = (page - begin) * static_cast<std::size_t>(owner.slots) + slot;
          if (((adjacency >> bit) & 1u) == 0) {
            continue;
          }
          for (std::int32_t pair = 0; pair < q_pages[page].rows * slots[slot].rows; ++pair) {
            executed[static_cast<std::size_t>(owner.batch_head)].add(
                q_pages[page].row + pair / slots[slot].rows,
                slots[slot].row + pair % slots[slot].rows);
          }
        }
      }
    }
  }
  return difference_from_layout(layout, forward, executed);
}

}  // namespace kpage::test
