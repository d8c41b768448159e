// A plan is a layout compiled to page walks: what every backend executes. It depends on the layout
// only, never on Q, K or V, and may be used for any number of runs, forward and backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "kpage/export.h"
#include "kpage/layout.h"
#include "kpage/plan_shape.h"
#include "kpage/status.h"
#include "kpage/types.h"

namespace KPAGE_EXPORT kpage {

[[nodiscard]] PlanShape plan_shape(const LayoutView& layout);
// Bytes of the two blobs of a plan: functions of the shape alone.
[[nodiscard]] std::int64_t forward_plan_bytes(const PlanShape& shape);
[[nodiscard]] std::int64_t backward_plan_bytes(const PlanShape& shape);

// A plan in somebody's memory, on the host or on a device. Blobs are aligned to 16 bytes.
struct PlanRef {
  PlanShape shape;
  Device device;
  const std::byte* forward = nullptr;   // [forward_plan_bytes]
  const std::byte* backward = nullptr;  // [backward_plan_bytes], or null: not built
};

// Sums over batch and heads (paper 4.4; pages of 16 rows, tiles of 128 columns).
struct PlanStats {
  std::int64_t q_blocks = 0;  // over all batch elements and heads
  std::int64_t q_blocks_empty = 0;
  std::int64_t q_blocks_without_keys = 0;  // with rows, whose walk has no page: their output is 0
  std::int64_t kv_blocks = 0;
  std::int64_t kv_blocks_empty = 0;
  std::int64_t q_rows = 0;  // valid rows
  std::int64_t kv_rows = 0;
  std::int64_t edges = 0;              // pairs of non-empty blocks
  std::int64_t useful_pairs = 0;       // valid row pairs
  std::int64_t whole_block_pairs = 0;  // 128 x 128 for every edge
  std::int64_t paged_pairs = 0;        // 128 x 16 for every page of every walk
  std::int64_t routed_pairs = 0;       // 64 or 128 x 16, by route
  std::int64_t paged_tail_pairs = 0;   // walks rounded up to whole tiles of 128 columns
  std::int64_t routed_tail_pairs = 0;  // and to 256 columns on the Q64 route
  std::int64_t paper_tail_pairs = 0;   // routed, in the even number of tiles that the paper's
                                       // pipeline needs (3.2.2): 256 columns on Q128, 512 on Q64
  std::int64_t q128_blocks = 0;
  std::int64_t q64_blocks = 0;
  std::int64_t q128_tiles = 0;
  std::int64_t q64_tiles = 0;
  std::int64_t q128_longest_walk = 0;  // in tiles
  std::int64_t q64_longest_walk = 0;

  // Where the backward part is built; else zero.
  std::int64_t owners8 = 0;
  std::int64_t owners4 = 0;
  std::int64_t mixed_owners = 0;
  std::int64_t backward_items = 0;
  std::int64_t backward_pairs = 0;        // slots * 16 x 16 for every Q page of every owner's walk
  std::int64_t backward_tail_pairs = 0;   // walks rounded up to steps of 64 page pairs
  std::int64_t backward_union_pairs = 0;  // of backward_pairs, those that adjacency masks

  [[nodiscard]] double efficiency() const {  // useful / routed; 1 where there is no work
    return routed_pairs == 0
               ? 1.0
               : static_cast<double>(useful_pairs) / static_cast<double>(routed_pairs);
  }
};

// A plan in host memory, with its blobs.
class Plan {
 public:
  // Validates the layout and compiles its forward part. The layout is in host memory and may be
  // overwritten or freed afterwards.
  [[nodiscard]] static Result<Plan> build(const LayoutView& layout);
  // Adopts blobs, for instance copied from a device; checks every invariant of them. `backward`
  // may be empty.
  [[nodiscard]] static Result<Plan> adopt(const PlanShape& shape,
                                          std::span<const std::byte> forward,
                                          std::span<const std::byte> backward);
  [[nodiscard]] static Result<Plan> load(const std::string& path);

  // Compiles the backward part, unless it is there.
  [[nodiscard]] Status build_backward();
  [[nodiscard]] bool has_backward() const { return !backward_.empty(); }

  [[nodiscard]] PlanRef ref() const;
  [[nodiscard]] const PlanShape& shape() const { return shape_; }
  [[nodiscard]] std::span<const std::byte> forward() const { return forward_; }
  [[nodiscard]] std::span<const std::byte> backward() const { return backward_; }

  [[nodiscard]] Status validate() const;  // every invariant of docs/plan.md
  // Replaces the file only where all of the plan could be written.
  [[nodiscard]] Status save(const std::string& path) const;
  void save(std::ostream& file) const;  // whether it could is the stream's to tell
  [[nodiscard]] PlanStats stats() const;
  // Readable text: header, extents, walks with their runs and masks, queues, owners with their
  // reverse walks. `batch_head` < 0: all.
  [[nodiscard]] std::string dump(std::int32_t batch_head = -1) const;

 private:
  PlanShape shape_;
  std::vector<std::byte> forward_;  // the allocator aligns to 16; sections are relative
  std::vector<std::byte> backward_;
};

// What a device builder found wrong with the values of its input, from a copy of the first bytes of
// the forward blob (kForwardHeaderBytes suffice): argument, flat position, what was expected and
// what came.
inline constexpr std::int64_t kForwardHeaderBytes = 128;
[[nodiscard]] Status plan_fault(const PlanShape& shape, std::span<const std::byte> forward);

// The first difference of two plans, in words; empty where they are equal byte for byte.
[[nodiscard]] std::string difference(const Plan& a, const Plan& b);

}  // namespace kpage
