// The forward builder: extents, walks, queue, each from what the one before wrote.
#include <cuda_runtime.h>

#include "kernels/common/check.h"
#include "kernels/plan/builder.h"
#include "kernels/plan/extents.cuh"
#include "kernels/plan/queue.cuh"
#include "kernels/plan/walks.cuh"

namespace kpage::kernels {

using namespace plan_builder;

Status build_forward_plan(const LayoutView& layout, std::byte* blob, Stream stream) {
  const Shape shape{layout.batch,    layout.heads,   layout.q.blocks, layout.kv.blocks,
                    layout.max_list, layout.q.scope, layout.kv.scope};
  const MutableForward plan = MutableForward::at(shape, blob);
  const std::int64_t scope_total = scopes(shape.q_scope, shape) + scopes(shape.kv_scope, shape);
  KPAGE_CUDA_TRY(
      cudaMemsetAsync(blob, 0, static_cast<std::size_t>(forward_sections(shape).bytes), stream));
  extents_kernel<<<static_cast<unsigned>(scope_total), kExtentThreads, 0, stream>>>(layout, plan);
  KPAGE_CUDA_TRY(cudaGetLastError());
  if (walk_count(shape) > 0) {
    const std::int32_t seen =
        shape.kv_blocks <= kDuplicateBlocks ? ceil_div(shape.kv_blocks, kWarp) : 0;
    const std::size_t shared =
        sizeof(std::int32_t) * kWalkWarps * static_cast<std::size_t>(kEntryClasses + seen);
    const std::int64_t ctas = ceil_div<std::int64_t>(walk_count(shape), kWalkWarps);
    walks_kernel<<<static_cast<unsigned>(ctas), kWalkWarps * kWarp, shared, stream>>>(layout, plan);
    KPAGE_CUDA_TRY(cudaGetLastError());
  }
  queue_kernel<<<static_cast<unsigned>(batch_heads(shape)), kQueueThreads, 0, stream>>>(layout,
                                                                                        plan);
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
