// Tensors in host memory with strides of any order, guarded by regions that no run may touch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kpage/types.h"

#include "support/random.h"

namespace kpage::test {

// A tensor, and the buffer it is a slice of. `ref` points into `storage`, so that a copy of the
// storage on another device serves with the same strides, `offset` bytes into it.
struct HostTensor {
  std::vector<std::byte> storage;
  std::int64_t offset = 0;  // bytes
  TensorRef ref;

  HostTensor() = default;
  HostTensor(HostTensor&&) = default;
  HostTensor& operator=(HostTensor&&) = default;
};
struct HostRows {
  std::vector<std::byte> storage;
  std::int64_t offset = 0;
  RowsRef ref;

  HostRows() = default;
  HostRows(HostRows&&) = default;
  HostRows& operator=(HostRows&&) = default;
};

// What a backend asks of a tensor's strides, in elements.
struct Alignment {
  std::int64_t rows = 1;   // of the stride of rows and of the first element
  std::int64_t heads = 1;  // of the strides of heads and batch elements: a multiple of `rows`
};

// BHSD, BSHD or another order of [batch, heads, rows], contiguous or a slice of a larger tensor;
// the last element is the last of the storage, by chance. The storage holds poison: NaN.
[[nodiscard]] HostTensor random_tensor(Random& random, const std::array<std::int64_t, 4>& shape,
                                       DType dtype, const Alignment& alignment);
[[nodiscard]] HostRows random_rows(Random& random, const std::array<std::int64_t, 3>& shape);

// Overwrites the whole storage, the tensor and its guards, with NaN.
void poison(HostTensor& tensor);
void poison(HostRows& rows);

// [batch, heads, rows, head_dim] or [batch, heads, rows], contiguous, to and from a tensor.
void write_values(HostTensor& tensor, const std::vector<double>& values);
void write_values(HostRows& rows, const std::vector<double>& values);
[[nodiscard]] std::vector<double> read_values(const HostTensor& tensor);
[[nodiscard]] std::vector<double> read_values(const HostRows& rows);

// Whether what lies around the tensor in its storage is as it was in `before`, bit by bit.
[[nodiscard]] bool guards_untouched(const HostTensor& tensor, const std::vector<std::byte>& before);
[[nodiscard]] bool guards_untouched(const HostRows& rows, const std::vector<std::byte>& before);

}  // namespace kpage::test
