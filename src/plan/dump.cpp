// Plans as text, for people.
#include <sstream>
#include <string>

#include "kpage/plan.h"

#include "plan/format.h"
#include "plan/views.h"

namespace kpage {
namespace {

using namespace plan;

void dump_blocks(std::ostringstream& out, const char* side, const Extent* blocks,
                 std::int32_t count, const ScopeInfo& info) {
  out << "  " << side << ": " << count << " blocks, " << info.valid_rows << " valid rows, "
      << info.pages << " pages, rows end at " << info.end_row << '\n';
  for (std::int32_t b = 0; b < count; ++b) {
    if (blocks[b].rows > 0) {
      out << "    block " << b << ": row " << blocks[b].row << ", " << blocks[b].rows
          << " rows, page " << blocks[b].page << '\n';
    }
  }
}

void dump_walk(std::ostringstream& out, const ForwardView& plan, std::int64_t number) {
  const std::int64_t bh = number / plan.shape.q_blocks;
  const std::int64_t q = number % plan.shape.q_blocks;
  const std::int32_t q_rows = plan.q_blocks(bh)[q].rows;
  const Walk& walk = plan.walks[number];
  const std::int32_t* entries = plan.walk_entries(number);
  out << "  walk of query block " << q << ": " << q_rows << " rows, "
      << (takes_q64(q_rows) ? "Q64" : "Q128") << ", " << walk.entries << " entries, "
      << walk.full_pages << " full pages + " << walk.tails << " tails in " << walk_tiles(walk)
      << " tiles\n";
  const auto run_at = [&](std::int32_t i) {
    return run_of(walk, i, plan.kv_blocks(bh)[entries[entry_of_run(walk, i)]]);
  };
  Cursor cursor;
  for (std::int32_t t = 0; t < walk_tiles(walk); ++t) {
    const auto tile = next_tile<kTilePages>(cursor, walk_runs(walk), run_at);
    out << "    tile " << t << ':';
    for (std::int32_t i = 0; i < tile.count; ++i) {
      const Segment& s = tile.segment[i];
      out << ' ' << s.row << '+' << s.rows << " (block " << entries[entry_of_run(walk, tile.run[i])]
          << ')';
    }
    if (t >= first_masked_tile(walk)) {
      const std::uint32_t* words =
          plan.walk_masks(number) + (t - first_masked_tile(walk)) * kMaskWordsPerTile;
      out << ", masks" << std::hex;
      for (std::int32_t w = 0; w < kMaskWordsPerTile; ++w) {
        out << ' ' << words[w];
      }
      out << std::dec;
    }
    out << '\n';
  }
}

void dump_owner(std::ostringstream& out, const BackwardView& plan, std::int32_t number) {
  const Owner& owner = plan.owners[number];
  out << "  owner " << number << ": " << owner.pages << " pages in " << owner.slots << " slots"
      << ((owner.flags & kOwnerFull) != 0    ? ", full"
          : (owner.flags & kOwnerMixed) != 0 ? ", mixed"
                                             : "")
      << ", K/V blocks";
  for (std::int32_t i = 0; i < owner.blocks; ++i) {
    out << ' ' << plan.owner_blocks[owner.block_begin + i];
  }
  out << "; query blocks";
  for (std::int32_t i = 0; i < owner.entries; ++i) {
    const std::uint32_t entry = plan.q_entries[owner.entry_begin + static_cast<std::uint32_t>(i)];
    out << ' ' << entry_block(entry);
    if (entry_slots(entry) != kAllValid) {
      out << '/' << std::hex << entry_slots(entry) << std::dec;
    }
  }
  out << '\n';
}

}  // namespace

std::string Plan::dump(std::int32_t batch_head) const {
  const ForwardView forward = forward_view(ref());
  const Shape& shape = shape_;
  std::ostringstream out;
  out << "plan version " << forward.header->version << ": batch " << shape.batch << ", heads "
      << shape.heads << ", " << shape.q_blocks << " query blocks, " << shape.kv_blocks
      << " key/value blocks, lists of at most " << shape.max_list << "; " << forward_.size()
      << " + " << backward_.size() << " bytes\n";
  out << "queues: " << forward.header->q128 << " walks on Q128, " << forward.header->q64
      << " on Q64\n";
  for (std::int32_t bh = 0; bh < batch_heads(shape); ++bh) {
    if (batch_head >= 0 && bh != batch_head) {
      continue;
    }
    out << "batch " << bh / shape.heads << ", head " << bh % shape.heads << '\n';
    dump_blocks(out, "Q", forward.q_blocks(bh), shape.q_blocks,
                forward.q_scopes[scope_of(shape.q_scope, shape, bh)]);
    dump_blocks(out, "K/V", forward.kv_blocks(bh), shape.kv_blocks,
                forward.kv_scopes[scope_of(shape.kv_scope, shape, bh)]);
    for (std::int32_t q = 0; q < shape.q_blocks; ++q) {
      if (forward.q_blocks(bh)[q].rows > 0) {
        dump_walk(out, forward, std::int64_t{bh} * shape.q_blocks + q);
      }
    }
    if (has_backward()) {
      const BackwardView backward = backward_view(ref());
      for (std::int32_t o = 0; o < backward.header->owners; ++o) {
        if (backward.owners[o].batch_head == bh) {
          dump_owner(out, backward, o);
        }
      }
    }
  }
  return out.str();
}

}  // namespace kpage
