// Sums of rows by a block of threads, in groups of lanes that read a row together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kpage/types.h"

#include "kernels/common/check.h"
#include "kernels/select/elements.cuh"

namespace kpage::kernels::select {

inline constexpr std::int32_t kVectorBytes = 16;
// Threads of a block. Of vectors few, so that many blocks wait for memory at a time and few of a
// block's rows leave threads idle.
template <std::int32_t kElements>
constexpr std::int32_t kSumThreads = kElements == 1 ? 256 : 128;
// Blocks of an SM: with registers for a batch. Left to itself the assembler aims at more, and loads
// the batch's rows one after the other.
template <std::int32_t kElements>
constexpr std::int32_t kSumBlocks = 1024 / kSumThreads<kElements>;
constexpr std::int32_t kSumBatch = 8;  // rows that a thread loads before it adds the first

// What a thread loads of a row: words are cleared in fewer steps than elements.
template <class Element, std::int32_t kElements>
struct Vector {
  using Words = std::conditional_t<kElements == 1, Element, uint4>;
  static_assert(sizeof(Words) == sizeof(Element) * kElements);
  Words words;

  __device__ __forceinline__ void add_to(float (&sums)[kElements]) const {
    Element of[kElements];
    std::memcpy(of, &words, sizeof(of));
#pragma unroll
    for (std::int32_t i = 0; i < kElements; ++i) {
      sums[i] += to_float(of[i]);
    }
  }
};

// Sums places [begin, end): a thread those of kElements neighbouring columns of every `groups`-th
// one. row_at(place) gives the row, or -1 for none. Leaves one sum a group and column in `parts`,
// [groups][head_dim] of at most threads * kElements, for the threads to read after a barrier.
// Returns how many groups there are.
template <class Element, std::int32_t kElements, class RowAt>
__device__ __forceinline__ std::int32_t sum_rows(const Element* x, std::int64_t row_stride,
                                                 std::int32_t head_dim, std::int32_t begin,
                                                 std::int32_t end, float* parts,
                                                 const RowAt& row_at) {
  const std::int32_t lanes = head_dim / kElements;
  const std::int32_t groups = kSumThreads<kElements> / lanes;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t group = thread / lanes;
  const std::int32_t column = thread % lanes * kElements;
  if (group < groups) {
    float sums[kElements] = {};
    for (std::int32_t left = end - begin - group; left > 0; left -= kSumBatch * groups) {
      std::int32_t rows[kSumBatch];
#pragma unroll
      for (std::int32_t b = 0; b < kSumBatch; ++b) {
        rows[b] = b * groups < left ? row_at(end - left + b * groups) : -1;
      }
      Vector<Element, kElements> values[kSumBatch] = {};
#pragma unroll
      for (std::int32_t b = 0; b < kSumBatch; ++b) {
        if (rows[b] >= 0) {
          values[b] = *reinterpret_cast<const Vector<Element, kElements>*>(
              x + rows[b] * row_stride + column);
        }
      }
#pragma unroll
      for (std::int32_t b = 0; b < kSumBatch; ++b) {
        values[b].add_to(sums);
      }
    }
#pragma unroll
    for (std::int32_t i = 0; i < kElements; ++i) {
      parts[group * head_dim + column + i] = sums[i];
    }
  }
  return groups;
}

// Of the sums of all groups that sum_rows() left: the total of a column.
__device__ __forceinline__ float add_groups(const float* parts, std::int32_t groups,
                                            std::int32_t head_dim, std::int32_t column) {
  float total = 0.0F;
  for (std::int32_t g = 0; g < groups; ++g) {
    total += parts[g * head_dim + column];
  }
  return total;
}

// Whether vectors of kVectorBytes lie where all rows begin, and rows are whole numbers of them.
inline bool has_vectors(const TensorRef& x) {
  const std::int64_t element = size_of(x.dtype);
  bool fits = x.shape[3] * element % kVectorBytes == 0 &&
              reinterpret_cast<std::uintptr_t>(x.data) % kVectorBytes == 0;
  for (std::size_t i = 0; i < 3; ++i) {
    fits = fits && (x.shape[i] <= 1 || x.stride[i] * element % kVectorBytes == 0);
  }
  return fits;
}

// Whether a block has a lane for each vector or element of a row.
inline bool has_lanes(const TensorRef& x) {
  return has_vectors(x) ? x.shape[3] * size_of(x.dtype) / kVectorBytes <= kSumThreads<kVectorBytes>
                        : x.shape[3] <= kSumThreads<1>;
}

// What the kernels that sum `groups` groups of rows of x ask for.
inline Status check_sums(const char* step, const TensorRef& x, std::int64_t groups) {
  constexpr std::int64_t kMost = 0x7fffffff;
  const auto& [batch, heads, rows, head_dim] = x.shape;
  if (groups > kMost || rows > kMost || batch * heads > kMost) {
    return unsupported(step, text("at most ", kMost, " blocks or clusters, rows, and heads"),
                       text(groups, ", ", rows, " and ", batch * heads));
  }
  if (!has_lanes(x)) {
    return unsupported(
        step, "rows of at most 256 elements, or of 2,048 bytes where they are aligned to 16",
        text(head_dim, " elements"));
  }
  return {};
}

// Calls launch.template operator()<Element, kElements>() for the tensor.
template <class Launch>
void with_vectors(const TensorRef& x, const Launch& launch) {
  with_element(x.dtype, [&](auto element) {
    using Element = decltype(element);
    if (has_vectors(x)) {
      launch.template
      operator()<Element, kVectorBytes / static_cast<std::int32_t>(sizeof(Element))>();
    } else {
      launch.template operator()<Element, 1>();
    }
  });
}

}  // namespace kpage::kernels::select
