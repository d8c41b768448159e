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
                                                 std::int32_t head_dim, std::int32_t begin,
                                                 std::int32_t end, float* parts,
                                                 const RowAt& row_at) {
  const std::int32_t lanes = head_dim / kElements;
  const std::int32_t groups = kThreads / lanes;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t group = thread / lanes;
  const std::int32_t column = thread % lanes * kElements;
  if (group < groups) {
    float sums[kElements] = {};
#pragma unroll 4
    for (std::int32_t place = begin + group; place < end; place += groups) {
      const std::int32_t row = row_at(place);
      if (row < 0) {
        continue;
      }
      const auto values =
          *reinterpret_cast<const Vector<Element, kElements>*>(x + row * row_stride + column);
#pragma unroll
      for (std::int32_t i = 0; i < kElements; ++i) {
        sums[i] += to_float(values.of[i]);
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
