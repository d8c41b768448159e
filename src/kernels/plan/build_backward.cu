// The backward builder: reverse lists, packing, places, owners, items, each from what the one
// before wrote.
#include <cuda_runtime.h>

#include "kernels/common/check.h"
#include "kernels/plan/builder.h"
#include "kernels/plan/items.cuh"
#include "kernels/plan/owners.cuh"
#include "kernels/plan/reverse.cuh"

namespace kpage::kernels {

using namespace plan_builder;

namespace {

[[nodiscard]] unsigned ctas(std::int64_t warps) {
  return static_cast<unsigned>(ceil_div<std::int64_t>(warps, kWarps));
}

}  // namespace

std::int64_t backward_plan_scratch_bytes(const PlanShape& shape) {
  return place_scratch(shape, nullptr).bytes;
}

Status build_backward_plan(const PlanShape& shape, const std::byte* forward_blob, std::byte* blob,
                           std::byte* scratch_memory, Stream stream) {
  const ForwardView forward = ForwardView::at(shape, forward_blob);
  const MutableBackward plan = MutableBackward::at(shape, blob);
  const Scratch scratch = place_scratch(shape, scratch_memory);
  const std::int64_t windows = batch_heads(shape) * scratch.window_count;
  KPAGE_CUDA_TRY(
      cudaMemsetAsync(blob, 0, static_cast<std::size_t>(backward_sections(shape).bytes), stream));
  KPAGE_CUDA_TRY(
      cudaMemsetAsync(scratch_memory, 0, static_cast<std::size_t>(scratch.zeroed_bytes), stream));
  constexpr std::int32_t kThreads = kWarps * kWarp;
  if (windows > 0 && walk_count(shape) > 0) {
    scatter_kernel<<<ctas(walk_count(shape)), kThreads, 0, stream>>>(forward, scratch);
    KPAGE_CUDA_TRY(cudaGetLastError());
  }
  if (windows > 0) {
    pack_kernel<<<ctas(windows), kThreads, 0, stream>>>(forward, scratch);
    KPAGE_CUDA_TRY(cudaGetLastError());
  }
  places_kernel<<<1, kScanThreads, 0, stream>>>(plan, scratch);
  KPAGE_CUDA_TRY(cudaGetLastError());
  if (windows > 0) {
    owners_kernel<<<ctas(windows * kPackWindow), kThreads, 0, stream>>>(forward, plan, scratch);
    KPAGE_CUDA_TRY(cudaGetLastError());
    items_kernel<<<static_cast<unsigned>(batch_heads(shape)), kItemThreads, 0, stream>>>(
        forward, plan, scratch);
    KPAGE_CUDA_TRY(cudaGetLastError());
  }
  return {};
}

}  // namespace kpage::kernels
