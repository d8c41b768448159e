#include <algorithm>
#include <bit>

#include <cuda_runtime.h>

#include "kernels/common/check.h"
#include "kernels/common/grid.h"
#include "kernels/tokens/gather.cuh"
#include "kernels/tokens/launch.h"

namespace kpage::kernels {
namespace {

using namespace tokens;

constexpr std::int64_t kWidestVector = 16;  // bytes

// The widest vector that every row of the two tensors is made of and aligned to.
std::int64_t vector_bytes(const TensorRef& x, const TensorRef& out) {
  const std::int64_t bytes = size_of(x.dtype);
  auto bits = static_cast<std::uint64_t>(kWidestVector | x.shape[3] * bytes);
  for (const TensorRef* t : {&x, &out}) {
    bits |= reinterpret_cast<std::uintptr_t>(t->data);
    for (std::size_t i = 0; i < 3; ++i) {
      bits |= t->shape[i] > 1 ? static_cast<std::uint64_t>(t->stride[i] * bytes) : 0;
    }
  }
  return std::int64_t{1} << std::countr_zero(bits);
}

template <class Vector>
void launch(const GatherParams& params, Stream stream) {
  const std::uint32_t rows_of_block = (kGatherThreads >> params.lane_bits) * kGatherRows;
  const dim3 grid(ceil_div(params.rows, rows_of_block), slice_ctas(params.batch));
  gather_kernel<Vector><<<grid, kGatherThreads, 0, stream>>>(params);
}

}  // namespace

Status gather_rows(const GatherArgs& args) {
  const auto& [batch, heads, rows, head_dim] = args.out.shape;
  if (batch == 0 || heads == 0 || rows == 0 || head_dim == 0) {
    return {};
  }
  constexpr std::int64_t kMostRows = std::int64_t{1} << 31;
  if (heads >= kMostRows / rows || batch >= kMostRows) {
    return unsupported("tokens", "fewer than 2^31 rows over all heads of a batch element",
                       text(heads, " heads of ", rows));
  }
  const std::int64_t bytes = size_of(args.x.dtype);
  const std::int64_t vector = vector_bytes(args.x, args.out);
  const bool heads_are_outer = args.out.stride[1] >= args.out.stride[2];
  const auto in_order = [heads_are_outer](std::int64_t of_head, std::int64_t of_row) {
    return heads_are_outer ? OuterInner{of_head, of_row} : OuterInner{of_row, of_head};
  };
  GatherParams params{};
  params.x = static_cast<const std::byte*>(args.x.data);
  params.index = args.index.data;
  params.out = static_cast<std::byte*>(args.out.data);
  params.x_batch = args.x.stride[0] * bytes;
  params.index_batch = args.index.stride[0];
  params.out_batch = args.out.stride[0] * bytes;
  params.x_head = in_order(args.x.stride[1] * bytes, 0);
  params.index_stride = in_order(args.index.stride[1], args.index.stride[2]);
  params.out_stride = in_order(args.out.stride[1] * bytes, args.out.stride[2] * bytes);
  params.x_row = args.x.stride[2] * bytes;
  params.inner = Divisor(static_cast<std::uint32_t>(heads_are_outer ? rows : heads));
  params.rows = static_cast<std::uint32_t>(heads * rows);
  params.x_rows = static_cast<std::uint32_t>(args.x.shape[2]);
  params.batch = static_cast<std::uint32_t>(batch);
  params.vectors = static_cast<std::uint32_t>(head_dim * bytes / vector);
  constexpr std::uint32_t kMostLaneBits = 5;  // a warp
  params.lane_bits =
      std::min(kMostLaneBits, static_cast<std::uint32_t>(std::bit_width(params.vectors - 1)));
  switch (vector) {
    case 16:
      launch<uint4>(params, args.stream);
      break;
    case 8:
      launch<uint2>(params, args.stream);
      break;
    case 4:
      launch<std::uint32_t>(params, args.stream);
      break;
    default:
      launch<std::uint16_t>(params, args.stream);
      break;
  }
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
