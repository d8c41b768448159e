// The main kernel: a persistent grid whose CTAs take owners by ticket, those of eight slots first,
// then those of four.
#pragma once

#include <cstdint>

#include "kernels/ptx/barrier.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/registers.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/consumer.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/producer.cuh"
#include "kernels/sm90/backward/scheduler.cuh"

namespace kpage::kernels::sm90::backward_kernel {

template <class Route>
__device__ __forceinline__ void init_route(RouteBarriers& barriers) {
  for (int i = 0; i < kMaxStages; ++i) {
    ptx::init(barriers.query_full[i], kWarpThreads);
    ptx::init(barriers.query_empty[i], Route::kReaders * kWarpThreads);
    ptx::init(barriers.gradient_full[i], 1);
    ptx::init(barriers.gradient_empty[i], Route::kReaders);
  }
  ptx::init(barriers.owner_full, 1);
  ptx::init(barriers.owner_empty, kConsumerWarps);
}

template <class Shared>
__device__ __forceinline__ void init_barriers(Shared& shared) {
  init_route<Route<plan::kOwnerSlots>>(shared.route[0]);
  init_route<Route<plan::kSmallOwnerSlots>>(shared.route[1]);
  static_assert(kOwnerRecords == 2);  // the scheduler looks at the record before
  shared.owners[1].parity = 1;
  for (int i = 0; i < kOwnerRecords; ++i) {
    ptx::init(shared.owner_record_full[i], kWarpThreads);
    ptx::init(shared.owner_record_empty[i],
              (kConsumerWarps + 3) * kWarpThreads);  // and the three warps that load
  }
  for (int i = 0; i < kTileRecords; ++i) {
    ptx::init(shared.tile_record_full[i], kWarpThreads);
    ptx::init(shared.tile_record_empty[i], 2 * kWarpThreads);  // the warps of Q and of dO
  }
  for (int i = 0; i < 2; ++i) {
    ptx::init(shared.d_s_full[i], kConsumerWarps);
  }
  ptx::fence_barrier_init();
}

// Both routes, one after the other. They overlay each other's stages, hence the barrier between.
template <class RunRoute>
__device__ __forceinline__ void run_routes(const RunRoute& run_route) {
  run_route.template operator()<plan::kOwnerSlots>();
  __syncwarp();
  ptx::named_sync<kThreads>(kRouteBarrier);
  run_route.template operator()<plan::kSmallOwnerSlots>();
}

template <class C>
__global__ __launch_bounds__(kThreads,
                             1) void backward_kernel(const __grid_constant__ MainParams params) {
  extern __shared__ __align__(1024) std::byte raw[];
  auto& shared = *reinterpret_cast<typename C::SharedStorage*>(raw);
  if (static_cast<std::uint32_t>(__cvta_generic_to_shared(raw)) != kSharedBase) {
    __trap();  // addresses are constants: see kSharedBase
  }
  if (threadIdx.x == 0) {
    init_barriers(shared);
  }
  __syncthreads();

  const int group = uniform(static_cast<int>(threadIdx.x) / kGroupThreads);
  if (group == 0) {
    ptx::lower_registers<kProducerRegisters>();
    const int warp = uniform(static_cast<int>(threadIdx.x) / kWarpThreads);
    if (warp == kSchedulerWarp) {
      Scheduler<C> scheduler(shared, params);
      run_routes([&]<int kSlots>() { scheduler.template run<kSlots>(); });
    } else if (warp == kQueryWarp) {
      TileLoader<C, true> loader(shared, params);
      run_routes([&]<int kSlots>() { loader.template run<kSlots>(); });
    } else if (warp == kGradientWarp) {
      TileLoader<C, false> loader(shared, params);
      run_routes([&]<int kSlots>() { loader.template run<kSlots>(); });
    } else {
      OwnerLoader<C> loader(shared, params);
      run_routes([&]<int kSlots>() { loader.template run<kSlots>(); });
    }
  } else {
    ptx::raise_registers<kConsumerRegisters>();
    RecordPosition<kOwnerRecords> record;
    run_routes([&]<int kSlots>() {
      Consumer<C, kSlots>(shared, params, group - 1).run(record);
      // The other route's stages and staging overlay what bulk reductions may still read.
      if (threadIdx.x % kWarpThreads == 0) {
        ptx::wait_bulk_reads();
      }
    });
    ptx::wait_bulk();
  }
}

}  // namespace kpage::kernels::sm90::backward_kernel
