// The plan: a layout compiled to the metadata that kernels walk (paper 3.2 to 3.4).
//
// This header is its only definition. Both builders write it, and the CPU backend, the kernels,
// validate() and `kpage plan --dump` read it through the traversals below. A plan is two blobs of
// plain memory, forward and backward, each a header and sections whose places depend on the shape
// alone (Sections), so that a device can build it without telling the host anything. docs/plan.md
// draws it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kpage/plan_shape.h"

#include "base/hd.h"

namespace kpage::plan {

inline constexpr std::int32_t kPageRows = 16;
inline constexpr std::int32_t kBlockPages = kBlockRows / kPageRows;  // 8
inline constexpr std::int32_t kTilePages = 8;  // pages of keys in an N128 tile
inline constexpr std::int32_t kTileColumns = kTilePages * kPageRows;
inline constexpr std::int32_t kQ64Rows = 64;  // query blocks of at most this take the Q64 route
inline constexpr std::int32_t kQ64Tiles = 2;  // N128 tiles that make the Q64 route's N256
inline constexpr std::int32_t kMaskWordsPerTile = kTilePages / 2;
inline constexpr std::int32_t kToTheEnd = 0x7fffffff;  // a gap that ends where the tensor ends
inline constexpr std::uint32_t kPlanVersion = 2;

using Shape = PlanShape;

KPAGE_HD std::int64_t batch_heads(const Shape& s) { return std::int64_t{s.batch} * s.heads; }
KPAGE_HD std::int64_t walk_count(const Shape& s) { return batch_heads(s) * s.q_blocks; }
KPAGE_HD std::int64_t scopes(PartitionScope scope, const Shape& s) {
  return scope == PartitionScope::kShared    ? 1
         : scope == PartitionScope::kPerHead ? std::int64_t{s.heads}
                                             : batch_heads(s);
}
// Which scope serves a (batch, head) pair, numbered batch * heads + head.
KPAGE_HD std::int64_t scope_of(PartitionScope scope, const Shape& s, std::int64_t batch_head) {
  return scope == PartitionScope::kShared    ? 0
         : scope == PartitionScope::kPerHead ? batch_head % s.heads
                                             : batch_head;
}

// --- Both sides' blocks ---------------------------------------------------------------------

// One block of one side.
struct alignas(16) Extent {
  std::int32_t row;      // first row; 0 for an empty block
  std::int32_t rows;     // valid rows, 0..128
  std::int32_t page;     // number of its first page among the pages of its scope, in block order
  std::int32_t gap_end;  // padding follows the block up to here: the next block in row order, or
                         // kToTheEnd; equal to row + rows where there is none; 0 for an empty block
};

// One side of one scope.
struct alignas(16) ScopeInfo {
  std::int32_t first_row;  // rows before it are padding; kToTheEnd where every block is empty
  std::int32_t end_row;    // one past the last valid row; 0 where every block is empty
  std::int32_t pages;      // of all its blocks
  std::int32_t valid_rows;
};

KPAGE_HD std::int32_t pages_of(std::int32_t rows) { return ceil_div(rows, kPageRows); }
KPAGE_HD std::int32_t full_pages_of(std::int32_t rows) { return rows / kPageRows; }
KPAGE_HD std::int32_t tail_rows_of(std::int32_t rows) { return rows % kPageRows; }

// Up to eight pages that lie one after the other in memory.
struct Run {
  std::int32_t row;    // first row
  std::int32_t pages;  // 1..8
  std::int32_t rows;   // valid rows: 16 * pages, but for a last page that is partial
};

// The part of a run that falls into one tile.
struct Segment {
  std::int32_t slot;  // page slot of the tile at which it starts
  std::int32_t row;
  std::int32_t pages;  // 0: the run does not reach into the tile
  std::int32_t rows;
};

// What falls into a tile of `tile_pages` slots of a run whose first page stands at slot `start`,
// which is negative where the run began in an earlier tile.
KPAGE_HD Segment clip(std::int32_t start, const Run& run, std::int32_t tile_pages) {
  const std::int32_t first = max_of(start, 0);
  const std::int32_t end = min_of(start + run.pages, tile_pages);
  const std::int32_t skipped = first - start;
  const std::int32_t pages = max_of(end - first, 0);
  return {first, run.row + skipped * kPageRows, pages,
          max_of(min_of(run.rows - skipped * kPageRows, pages * kPageRows), 0)};
}

// --- Forward --------------------------------------------------------------------------------

// The walk of one query block, number (batch * heads + head) * q_blocks + block. Its entries are
// the non-empty blocks of the list, at walk * max_list, in the order of entry_class() and within a
// class in the order of the list. The full pages of all entries come first, entry by entry; then
// the tail pages, one for each of the last `tails` entries; then dummies up to the end of a tile.
struct alignas(16) Walk {
  std::int32_t entries;     // non-empty blocks
  std::int32_t runs;        // the first `runs` entries have full pages
  std::int32_t tails;       // the last `tails` entries have a tail page
  std::int32_t full_pages;  // the fully valid prefix: from this page on, validity masks apply
};

// Entries without a tail come first, those with more full pages before those with fewer, so that
// full blocks fill whole tiles, runs stay long, and the tails are a suffix.
inline constexpr std::int32_t kEntryClasses = 2 * kBlockPages;
KPAGE_HD std::int32_t entry_class(std::int32_t rows) {
  const std::int32_t full = full_pages_of(rows);
  return tail_rows_of(rows) == 0 ? kBlockPages - full : 2 * kBlockPages - 1 - full;
}

KPAGE_HD std::int32_t walk_pages(const Walk& w) { return w.full_pages + w.tails; }
KPAGE_HD std::int32_t walk_tiles(const Walk& w) { return ceil_div(walk_pages(w), kTilePages); }
KPAGE_HD std::int32_t walk_runs(const Walk& w) { return w.runs + w.tails; }
// The first tile that holds a tail or a dummy.
KPAGE_HD std::int32_t first_masked_tile(const Walk& w) { return w.full_pages / kTilePages; }
KPAGE_HD bool takes_q64(std::int32_t q_rows) { return q_rows <= kQ64Rows; }
// Masks are stored for the tiles from first_masked_tile on: at most `max_list` tails, the first at
// any slot. A tile of dummies alone, which rounds a Q64 walk, is not stored: its mask is zero.
KPAGE_HD std::int32_t mask_words_per_walk(const Shape& s) {
  return kMaskWordsPerTile * ceil_div(s.max_list + kTilePages - 1, kTilePages);
}

// Which entry of the walk is run i, for i in [0, walk_runs).
KPAGE_HD std::int32_t entry_of_run(const Walk& w, std::int32_t i) {
  return i < w.runs ? i : w.entries - w.tails + (i - w.runs);
}
// Run i of a walk, from the extent of its entry: all full pages of it, or its tail page.
KPAGE_HD Run run_of(const Walk& w, std::int32_t i, const Extent& block) {
  const std::int32_t full = full_pages_of(block.rows);
  if (i < w.runs) {
    return {block.row, full, full * kPageRows};
  }
  return {block.row + full * kPageRows, 1, tail_rows_of(block.rows)};
}
// Which rows of a page count, the first in the lowest bit.
KPAGE_HD std::uint32_t page_mask(std::int32_t valid_rows) {
  return valid_rows >= kPageRows ? 0xffffu : (1u << max_of(valid_rows, 0)) - 1u;
}

// The mask of page `page` of a walk, whose entries' extents `block_at(i)` gives for entry i.
template <class BlockAt>
KPAGE_HD std::uint32_t mask_of_page(const Walk& w, std::int32_t page, const BlockAt& block_at) {
  if (page < w.full_pages) {
    return page_mask(kPageRows);
  }
  if (page >= walk_pages(w)) {
    return 0;
  }
  const std::int32_t entry = entry_of_run(w, w.runs + page - w.full_pages);
  return page_mask(tail_rows_of(block_at(entry).rows));
}
// Word `word` of a walk's masks: two pages, the first in the low half.
template <class BlockAt>
KPAGE_HD std::uint32_t mask_word(const Walk& w, std::int32_t word, const BlockAt& block_at) {
  const std::int32_t page = first_masked_tile(w) * kTilePages + 2 * word;
  return mask_of_page(w, page, block_at) | (mask_of_page(w, page + 1, block_at) << kPageRows);
}
KPAGE_HD std::int32_t mask_words(const Walk& w) {
  return (walk_tiles(w) - first_masked_tile(w)) * kMaskWordsPerTile;
}

// --- Order of work --------------------------------------------------------------------------

// Longest first, to a share of an octave that has `fraction_bits` bits. Bucket 0 goes first, work
// without length last.
KPAGE_HD std::int32_t octave_bucket(std::int32_t length, std::int32_t buckets,
                                    std::int32_t fraction_bits) {
  if (length <= 0) {
    return buckets - 1;
  }
  std::int32_t log2 = 0;
  while ((length >> (log2 + 1)) != 0) {
    ++log2;
  }
  const std::int32_t leading =
      log2 >= fraction_bits ? length >> (log2 - fraction_bits) : length << (fraction_bits - log2);
  return buckets - 2 - ((log2 << fraction_bits) + leading - (1 << fraction_bits));
}

// Heads run one after the other, and the blocks of a head in their own order, so that CTAs in
// flight share pages in L2; within a head, walks that are longer by a factor of about the square
// root of two go first, so that the last ones are short.
inline constexpr std::int32_t kLengthBuckets = 64;
KPAGE_HD std::int32_t length_bucket(std::int32_t tiles) {
  return octave_bucket(tiles, kLengthBuckets, 1);
}

// --- Backward -------------------------------------------------------------------------------

inline constexpr std::int32_t kOwnerSlots = 8;
inline constexpr std::int32_t kSmallOwnerSlots = 4;  // the mirror of the Q64 route
inline constexpr std::int32_t kStepPairs = 64;       // page pairs of a step: 8 x 8 or 16 x 4
inline constexpr std::int32_t kPackWindow = 16;      // blocks whose packing is decided together
inline constexpr std::int32_t kGroupPages = 8192;    // most Q pages of one work item (paper: G_g)
inline constexpr std::uint32_t kAllValid = 0xff;     // slots of an entry: no page pair is masked

inline constexpr std::int32_t kOwnerFull = 1;  // one block of 128 rows: whole-tile loads and stores
inline constexpr std::int32_t kOwnerMixed = 2;  // several blocks: entries carry their page pairs

// A K/V tile that one CTA owns: the pages of one block or of several, none of which straddles
// owners, in slots that count up in the order of its blocks.
struct alignas(16) Owner {
  std::int32_t batch_head;
  std::int32_t slots;         // 8 or 4
  std::int32_t flags;         // kOwnerFull, kOwnerMixed
  std::int32_t blocks;        // K/V blocks in it
  std::int32_t block_begin;   // the first of them in owner_blocks
  std::int32_t pages;         // slots in use
  std::uint32_t entry_begin;  // the first of its entries in q_entries
  std::int32_t entries;       // query blocks that attend to any of its blocks
};

// A part of an owner's reverse walk: one group of query blocks (paper 3.3.2).
struct alignas(16) OwnerItem {
  std::int32_t owner;
  std::uint32_t entry_begin;  // in q_entries
  std::int32_t entries;
  std::int32_t pages;   // Q pages of those entries, partial last pages included
  std::int32_t group;   // number of the group within the owner
  std::int32_t groups;  // of the owner; 1 but for walks of more than kGroupPages
  std::int32_t reserved[2];
};

// Order of the items of a head. Finer than for walks: CTAs that start together on owners of one
// length sweep the query pages together, and find them in L2.
inline constexpr std::int32_t kItemBuckets = 256;
KPAGE_HD std::int32_t item_bucket(std::int32_t pages) {
  return octave_bucket(pages, kItemBuckets, 4);
}

// An entry of a reverse walk: a query block, and the owner's slots that it attends to. Slots that
// the owner does not use count as attended: rows are masked by validity, page pairs by the graph.
// Entries ascend: whoever walks owners side by side sweeps the query blocks of a head once.
KPAGE_HD std::uint32_t make_q_entry(std::int32_t q_block, std::uint32_t slots) {
  return (static_cast<std::uint32_t>(q_block) << 8) | slots;
}
KPAGE_HD std::int32_t entry_block(std::uint32_t entry) {
  return static_cast<std::int32_t>(entry >> 8);
}
KPAGE_HD std::uint32_t entry_slots(std::uint32_t entry) { return entry & 0xffu; }
// All pages of a query block, the partial last one included: backward masks query rows by their
// statistics, so tails need not be a suffix.
KPAGE_HD Run q_run_of(const Extent& block) { return {block.row, pages_of(block.rows), block.rows}; }

// A step is 8 Q pages x 8 slots or 16 Q pages x 4 slots; its page-pair adjacency is one word, bit
// (page * slots + slot), all ones where nothing is masked (paper 3.3.3). It is assembled from the
// entries, a page at a time.
KPAGE_HD std::uint64_t adjacency_bits(std::int32_t page, std::int32_t slots, std::uint32_t entry) {
  const std::uint64_t mask = (std::uint64_t{1} << slots) - 1;
  return (entry_slots(entry) & mask) << (page * slots);
}

// --- Blobs ----------------------------------------------------------------------------------

// What a device builder found wrong with its input: the first fault in the order of Argument, then
// of position. The plan it leaves behind is safe to run: offenders are dropped from it.
enum class Argument : std::int32_t {
  kNone = 0,
  kQBlockSizes,
  kQBlockOffsets,
  kKvBlockSizes,
  kKvBlockOffsets,
  kBlockNums,
  kBlockIndex,
};
enum class Fault : std::int32_t { kNone = 0, kOutOfRange, kDuplicate, kOverlap };

struct alignas(16) ForwardHeader {
  std::uint32_t magic;    // kForwardMagic
  std::uint32_t version;  // kPlanVersion
  Argument argument;      // kNone: the input was right
  Fault fault;
  std::int64_t position;  // flat index into that argument
  std::int64_t value;     // what stood there
  Shape shape;
  std::int32_t q128;  // length of the Q128 queue
  std::int32_t q64;   // length of the Q64 queue, which follows it
  std::int32_t reserved[3];
};

struct alignas(16) BackwardHeader {
  std::uint32_t magic;  // kBackwardMagic
  std::uint32_t version;
  std::int32_t owners;
  std::int32_t owner_blocks;  // entries of that section in use
  std::uint32_t q_entries;    // the same
  std::int32_t items8;        // length of the queue of owners with eight slots
  std::int32_t items4;        // length of the queue of owners with four, which follows it
  Shape shape;
  std::int32_t reserved[2];
};

static_assert(sizeof(ForwardHeader) == 80 && sizeof(BackwardHeader) == 64);

inline constexpr std::uint32_t kForwardMagic = 0x4650504b;   // "KPPF"
inline constexpr std::uint32_t kBackwardMagic = 0x4250504b;  // "KPPB"

// Byte offsets of the sections of a forward blob, and its size. Every section is aligned to 128.
struct ForwardSections {
  std::int64_t header, q_scopes, kv_scopes, q_extents, kv_extents, walks, queue, entries, masks,
      bytes;
};
KPAGE_HD ForwardSections forward_sections(const Shape& s) {
  ForwardSections at{};
  std::int64_t end = 0;
  const auto place = [&end](std::int64_t bytes) {
    const std::int64_t begin = end;
    end = round_up<std::int64_t>(end + bytes, 128);
    return begin;
  };
  const std::int64_t q_scopes = scopes(s.q_scope, s);
  const std::int64_t kv_scopes = scopes(s.kv_scope, s);
  at.header = place(sizeof(ForwardHeader));
  at.q_scopes = place(q_scopes * std::int64_t{sizeof(ScopeInfo)});
  at.kv_scopes = place(kv_scopes * std::int64_t{sizeof(ScopeInfo)});
  at.q_extents = place(q_scopes * s.q_blocks * std::int64_t{sizeof(Extent)});
  at.kv_extents = place(kv_scopes * s.kv_blocks * std::int64_t{sizeof(Extent)});
  at.walks = place(walk_count(s) * std::int64_t{sizeof(Walk)});
  at.queue = place(walk_count(s) * 4);
  at.entries = place(walk_count(s) * s.max_list * 4);
  at.masks = place(walk_count(s) * mask_words_per_walk(s) * 4);
  at.bytes = end;
  return at;
}

struct BackwardSections {
  std::int64_t header, owners, owner_blocks, items, q_entries, bytes;
};
KPAGE_HD std::int64_t owner_capacity(const Shape& s) { return batch_heads(s) * s.kv_blocks; }
// Every owner has one item at least; each further one holds more than kGroupPages - 8 pages.
KPAGE_HD std::int64_t item_capacity(const Shape& s) {
  return owner_capacity(s) +
         ceil_div<std::int64_t>(walk_count(s) * s.max_list, kGroupPages / kBlockPages - 1);
}
KPAGE_HD BackwardSections backward_sections(const Shape& s) {
  BackwardSections at{};
  std::int64_t end = 0;
  const auto place = [&end](std::int64_t bytes) {
    const std::int64_t begin = end;
    end = round_up<std::int64_t>(end + bytes, 128);
    return begin;
  };
  at.header = place(sizeof(BackwardHeader));
  at.owners = place(owner_capacity(s) * std::int64_t{sizeof(Owner)});
  at.owner_blocks = place(owner_capacity(s) * 4);
  at.items = place(item_capacity(s) * std::int64_t{sizeof(OwnerItem)});
  at.q_entries = place(walk_count(s) * s.max_list * 4);
  at.bytes = end;
  return at;
}

// Typed pointers into a forward blob, of either memory. Read-only: builders use MutableForward.
template <class Byte>
struct BasicForward {
  template <class T>
  using Ptr = std::conditional_t<std::is_const_v<Byte>, const T*, T*>;

  Shape shape{};
  Ptr<ForwardHeader> header = nullptr;
  Ptr<ScopeInfo> q_scopes = nullptr;    // [scopes]
  Ptr<ScopeInfo> kv_scopes = nullptr;   // [scopes]
  Ptr<Extent> q_extents = nullptr;      // [scopes, NQ]
  Ptr<Extent> kv_extents = nullptr;     // [scopes, NK]
  Ptr<Walk> walks = nullptr;            // [B, H, NQ]
  Ptr<std::uint32_t> queue = nullptr;   // [B * H * NQ]: walks in order of work, Q128 then Q64;
                                        // query blocks without valid rows are in neither
  Ptr<std::int32_t> entries = nullptr;  // [B, H, NQ, Kmax]: K/V block ids; zeros fill the rest
  Ptr<std::uint32_t> masks = nullptr;   // [B, H, NQ, mask_words_per_walk]; zeros fill the rest

  KPAGE_HD static BasicForward at(const Shape& shape, Byte* blob) {
    const ForwardSections s = forward_sections(shape);
    BasicForward v;
    v.shape = shape;
    v.header = reinterpret_cast<Ptr<ForwardHeader>>(blob + s.header);
    v.q_scopes = reinterpret_cast<Ptr<ScopeInfo>>(blob + s.q_scopes);
    v.kv_scopes = reinterpret_cast<Ptr<ScopeInfo>>(blob + s.kv_scopes);
    v.q_extents = reinterpret_cast<Ptr<Extent>>(blob + s.q_extents);
    v.kv_extents = reinterpret_cast<Ptr<Extent>>(blob + s.kv_extents);
    v.walks = reinterpret_cast<Ptr<Walk>>(blob + s.walks);
    v.queue = reinterpret_cast<Ptr<std::uint32_t>>(blob + s.queue);
    v.entries = reinterpret_cast<Ptr<std::int32_t>>(blob + s.entries);
    v.masks = reinterpret_cast<Ptr<std::uint32_t>>(blob + s.masks);
    return v;
  }

  // The blocks of a (batch, head) pair: [NQ] and [NK].
  KPAGE_HD Ptr<Extent> q_blocks(std::int64_t batch_head) const {
    return q_extents + scope_of(shape.q_scope, shape, batch_head) * shape.q_blocks;
  }
  KPAGE_HD Ptr<Extent> kv_blocks(std::int64_t batch_head) const {
    return kv_extents + scope_of(shape.kv_scope, shape, batch_head) * shape.kv_blocks;
  }
  KPAGE_HD Ptr<std::int32_t> walk_entries(std::int64_t walk) const {
    return entries + walk * shape.max_list;
  }
  KPAGE_HD Ptr<std::uint32_t> walk_masks(std::int64_t walk) const {
    return masks + walk * mask_words_per_walk(shape);
  }
};
using ForwardView = BasicForward<const std::byte>;
using MutableForward = BasicForward<std::byte>;

template <class Byte>
struct BasicBackward {
  template <class T>
  using Ptr = std::conditional_t<std::is_const_v<Byte>, const T*, T*>;

  Shape shape{};
  Ptr<BackwardHeader> header = nullptr;
  Ptr<Owner> owners = nullptr;               // in the order of batch, head, window, making
  Ptr<std::int32_t> owner_blocks = nullptr;  // K/V block ids
  Ptr<OwnerItem> items = nullptr;            // in order of work: eight slots, then four
  Ptr<std::uint32_t> q_entries = nullptr;    // make_q_entry()

  KPAGE_HD static BasicBackward at(const Shape& shape, Byte* blob) {
    const BackwardSections s = backward_sections(shape);
    BasicBackward v;
    v.shape = shape;
    v.header = reinterpret_cast<Ptr<BackwardHeader>>(blob + s.header);
    v.owners = reinterpret_cast<Ptr<Owner>>(blob + s.owners);
    v.owner_blocks = reinterpret_cast<Ptr<std::int32_t>>(blob + s.owner_blocks);
    v.items = reinterpret_cast<Ptr<OwnerItem>>(blob + s.items);
    v.q_entries = reinterpret_cast<Ptr<std::uint32_t>>(blob + s.q_entries);
    return v;
  }
};
using BackwardView = BasicBackward<const std::byte>;
using MutableBackward = BasicBackward<std::byte>;

// --- Traversal ------------------------------------------------------------------------------

// Where a tile of a walk begins: the run that holds its first page, and that run's pages which
// earlier tiles took.
struct Cursor {
  std::int32_t run = 0;
  std::int32_t skip = 0;
};

// The segments of one tile, in slot order, found from the runs one at a time. Warps find the same
// with a run a lane (clip() of each); this is the serial form.
template <std::int32_t kPages>
struct TileSegments {
  Segment segment[kPages];
  std::int32_t run[kPages];  // which run each is of
  std::int32_t count = 0;
  std::int32_t pages = 0;  // slots filled; the rest are dummies
};

// Cuts the next tile off a walk. `run_at(i)` gives run i of `runs`.
template <std::int32_t kPages, class RunAt>
KPAGE_HD TileSegments<kPages> next_tile(Cursor& at, std::int32_t runs, const RunAt& run_at) {
  TileSegments<kPages> tile;
  while (tile.pages < kPages && at.run < runs) {
    const Run run = run_at(at.run);
    const Segment part = clip(tile.pages - at.skip, run, kPages);
    tile.segment[tile.count] = part;
    tile.run[tile.count] = at.run;
    ++tile.count;
    tile.pages += part.pages;
    at.skip += part.pages;
    if (at.skip == run.pages) {
      ++at.run;
      at.skip = 0;
    }
  }
  return tile;
}

}  // namespace kpage::plan
