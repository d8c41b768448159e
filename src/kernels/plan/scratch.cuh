// Memory that the backward builder needs while it works.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/plan/warp.cuh"
#include "plan/format.h"
#include "plan/packing.h"

namespace kpage::kernels::plan_builder {

using namespace plan;

inline constexpr std::int32_t kWarps = 4;  // a CTA, where a warp works alone

// Counts of a window while it is packed, first places once they are known.
struct Totals {
  std::int32_t owners;
  std::int32_t blocks;
  std::uint32_t entries;
};

struct Window {
  Totals totals;
  std::int32_t owner_count;
  WindowOwner owners[kPackWindow];
  std::int32_t entries[kPackWindow];  // of each owner
  std::int32_t block[kPackWindow];    // of each place in the window's list
};

struct Scratch {
  std::uint32_t* lists;      // [B * H, NK, words]: bit q: query block q attends to the K/V block
  std::uint32_t* unions;     // [B * H, windows, 16, words]: the same for owners
  Window* windows;           // [B * H, windows]
  std::int32_t* pages;       // [owners]: Q pages of each owner's walk
  std::int32_t* groups;      // [owners]
  std::int32_t* head_items;  // [B * H, 2]: items of each head on each route
  std::int32_t words;        // ceil(NQ / 32)
  std::int32_t window_count;
  std::int64_t zeroed_bytes;  // `lists` and `head_items` come first and start as zeros
  std::int64_t bytes;
};

inline Scratch place_scratch(const Shape& shape, std::byte* base) {
  Scratch s{};
  s.words = ceil_div(shape.q_blocks, kWarp);
  s.window_count = window_count(shape);
  const std::int64_t heads = batch_heads(shape);
  std::int64_t end = 0;
  const auto place = [&end, base](auto*& pointer, std::int64_t count) {
    using T = std::remove_reference_t<decltype(*pointer)>;
    pointer = reinterpret_cast<T*>(base + end);
    end = round_up<std::int64_t>(end + count * std::int64_t{sizeof(T)}, 128);
  };
  place(s.lists, heads * shape.kv_blocks * s.words);
  place(s.head_items, heads * 2);
  s.zeroed_bytes = end;
  place(s.unions, heads * s.window_count * kPackWindow * s.words);
  place(s.windows, heads * s.window_count);
  place(s.pages, owner_capacity(shape));
  place(s.groups, owner_capacity(shape));
  s.bytes = end;
  return s;
}

}  // namespace kpage::kernels::plan_builder
