#include "tensor.h"

#include <array>
#include <cmath>

#include "kpage/tokens.h"

#include "base/elements.h"
#include "base/parallel.h"
#include "failure.h"

namespace kpage::cli {
namespace {

// SplitMix64's finaliser: neighbouring numbers give unrelated bits.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The sum of four uniform draws, scaled to variance 1: close to normal, and the same everywhere.
double normal_like(std::uint64_t bits) {
  std::uint64_t sum = 0;
  for (int i = 0; i < 4; ++i) {
    sum += (bits >> (16 * i)) & 0xffffu;
  }
  return (static_cast<double>(sum) / 65536.0 - 2.0) * std::sqrt(3.0);
}

// The index is the same for all heads.
void gather(const TensorRef& from, std::span<const std::int32_t> source_of_row,
            const TensorRef& to) {
  GatherArgs args;
  args.x = from;
  args.index.data = const_cast<std::int32_t*>(source_of_row.data());  // inputs are never written
  args.index.shape = {to.shape[0], to.shape[1], to.shape[2]};
  args.index.stride = {0, 0, 1};
  args.out = to;
  check(kpage::gather_rows(args));
}

}  // namespace

Tensor::Tensor(DType dtype, std::int64_t batch, std::int64_t heads, std::int64_t rows,
               std::int64_t head_dim)
    : type(dtype),
      shape{batch, heads, rows, head_dim},
      data(static_cast<std::size_t>(batch * heads * rows * head_dim * size_of(dtype))) {}

TensorRef contiguous(const void* data, DType dtype, std::span<const std::int64_t> shape) {
  TensorRef ref;
  ref.data = const_cast<void*>(data);  // inputs are never written
  ref.dtype = dtype;
  ref.shape = {shape[0], shape[1], shape[2], shape[3]};
  ref.stride = {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
  return ref;
}

TensorRef Tensor::ref() { return contiguous(data.data(), type, shape); }

RowValues::RowValues(std::int64_t batch, std::int64_t heads, std::int64_t rows)
    : shape{batch, heads, rows}, data(static_cast<std::size_t>(batch * heads * rows)) {}

RowsRef RowValues::ref() {
  RowsRef ref;
  ref.data = data.data();
  ref.shape = {shape[0], shape[1], shape[2]};
  ref.stride = {shape[1] * shape[2], shape[2], 1};
  return ref;
}

Tensor gather_rows(const TensorRef& from, std::span<const std::int32_t> source_of_row) {
  const auto rows = static_cast<std::int64_t>(source_of_row.size());
  Tensor to(from.dtype, from.shape[0], from.shape[1], rows, from.shape[3]);
  gather(from, source_of_row, to.ref());
  return to;
}

RowValues gather_rows(const RowValues& from, std::span<const std::int32_t> source_of_row) {
  const auto rows = static_cast<std::int64_t>(source_of_row.size());
  RowValues to(from.shape[0], from.shape[1], rows);
  // A number a row is a row of one column.
  const auto as_columns = [](const RowValues& values) {
    const std::array shape = {values.shape[0], values.shape[1], values.shape[2], std::int64_t{1}};
    return contiguous(values.data.data(), DType::kFloat32, shape);
  };
  gather(as_columns(from), source_of_row, as_columns(to));
  return to;
}

void fill_random(Tensor& tensor, std::uint64_t seed, std::span<const std::int32_t> number_of_row) {
  const std::int64_t rows = tensor.shape[2];
  const std::int64_t head_dim = tensor.shape[3];
  parallel_for(tensor.shape[0] * tensor.shape[1], 0, [&](std::int64_t slice, std::int32_t) {
    const std::uint64_t stream = mixed(mixed(seed) + static_cast<std::uint64_t>(slice));
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t number =
          number_of_row.empty() ? row : number_of_row[static_cast<std::size_t>(row)];
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const auto place = static_cast<std::uint64_t>(number * head_dim + d);
        write_element(tensor.data.data(), tensor.type, (slice * rows + row) * head_dim + d,
                      normal_like(mixed(stream + place)));
      }
    }
  });
}

}  // namespace kpage::cli
