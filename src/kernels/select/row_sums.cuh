// Sums of rows by a block of threads, in groups of lanes that read a row together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kpage/types.h"

#include "kernels/select/elements.cuh"

namespace kpage::kernels::select {

inline constexpr std::int32_t kVectorBytes = 16;

template <class Element, std::int32_t kElements>
struct alignas(sizeof(Element) * kElements) Vector {
  Element of[kElements];
};

// Sums places [begin, end): a thread those of kElements neighbouring columns of every `groups`-th
// one. row_at(place) gives the row, or -1 for none. Leaves one sum a group and column in `parts`,
// [groups][head_dim] of at most kThreads * kElements, for the threads to read after a barrier.
// Returns how many groups there are.
template <class Element, std::int32_t kElements, std::int32_t kThreads, class RowAt>
__device__ __forceinline__ std::int32_t sum_rows(const Element* x, std::int64_t row_stride,
                                                 std::int32_t head_dim, std::int64_t begin,
                                                 std::int64_t end, float* parts,
                                                 const RowAt& row_at) {
  const std::int32_t lanes = head_dim / kElements;
  const std::int32_t groups = kThreads / lanes;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t group = thread / lanes;
  const std::int32_t column = thread % lanes * kElements;
  if (group < groups) {
    float sums[kElements] = {};
    // All loads of a batch are on their way before the first is waited for.
    constexpr std::int32_t kBatch = 8;
    for (std::int64_t first = begin + group; first < end; first += kBatch * groups) {
      std::int64_t rows[kBatch];
#pragma unroll
      for (std::int32_t b = 0; b < kBatch; ++b) {
        const std::int64_t place = first + b * groups;
        rows[b] = place < end ? row_at(place) : -1;
      }
      Vector<Element, kElements> values[kBatch];
#pragma unroll
      for (std::int32_t b = 0; b < kBatch; ++b) {
        if (rows[b] >= 0) {
          values[b] = *reinterpret_cast<const Vector<Element, kElements>*>(
              x + rows[b] * row_stride + column);
        }
      }
#pragma unroll
      for (std::int32_t b = 0; b < kBatch; ++b) {
#pragma unroll
        for (std::int32_t i = 0; i < kElements; ++i) {
          sums[i] += rows[b] >= 0 ? to_float(values[b].of[i]) : 0.0F;
        }
      }
    }
#pragma unroll
    for (std::int32_t i = 0; i < kElements; ++i) {
      parts[group * head_dim + column + i] = sums[i];
    }
  }
  return groups;
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

// Lanes that a row takes.
inline std::int64_t lanes_of(const TensorRef& x) {
  return has_vectors(x) ? x.shape[3] * size_of(x.dtype) / kVectorBytes : x.shape[3];
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
