// The nearest centroid of each row: a matrix product whose results live in registers only.
//
// A warp keeps 32 rows in registers and goes over all centroids, 64 at a time through shared
// memory. Of |x - c|^2 = |x|^2 - 2 (x . c - |c|^2 / 2) the bracket decides. A product does not care
// in which order it sums, so both operands take their columns in the order in which a lane's 16
// bytes lie in memory: two k-steps of the tensor core from one load.
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "base/hd.h"
#include "kernels/common/check.h"
#include "kernels/common/warp.cuh"
#include "kernels/select/elements.cuh"
#include "kernels/select/launch.h"

namespace kpage::kernels {
namespace {

constexpr std::int32_t kWarps = 8;
constexpr std::int32_t kThreads = kWarp * kWarps;
constexpr std::int32_t kRowTiles = 2;  // of 16 rows, of a warp
constexpr std::int32_t kRows = kWarps * kRowTiles * 16;
constexpr std::int32_t kCentroids = 64;  // in shared memory at a time
constexpr std::int32_t kColumns = 8;     // centroids of a product
constexpr std::int32_t kPad = 64;        // bytes: two rows that are read together share no bank
constexpr std::int64_t kMostGridY = 65535;

struct NearestParams {
  const std::byte* x;
  std::int64_t batch_stride, head_stride, row_stride;  // in bytes
  std::int64_t heads, slices;
  std::int32_t rows;
  std::int32_t clusters;
  const std::byte* centroids;
  const float* half_squares;
  std::int32_t* labels;
};

// D[16, 8] += A[16, 16] * B[16, 8].
template <class Element>
__device__ __forceinline__ void multiply(float (&d)[4], std::uint32_t a0, std::uint32_t a1,
                                         std::uint32_t a2, std::uint32_t a3, std::uint32_t b0,
                                         std::uint32_t b1) {
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

template <std::int32_t kRowBytes>
struct alignas(16) Stage {
  std::byte rows[kCentroids][kRowBytes + kPad];
  float half_squares[kCentroids];
};

// Begins to copy centroids [first, first + kCentroids); past the last one are zeros, infinitely
// far.
template <std::int32_t kRowBytes>
__device__ __forceinline__ void fetch(Stage<kRowBytes>& stage, const std::byte* centroids,
                                      const float* half_squares, std::int32_t first,
                                      std::int32_t clusters) {
  constexpr std::int32_t kVectors = kRowBytes / 16;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < kCentroids * kVectors;
       i += kThreads) {
    const std::int32_t row = i / kVectors;
    const std::int32_t at = i % kVectors * 16;
    const bool has = first + row < clusters;
    const std::byte* from = centroids + std::int64_t{has ? first + row : 0} * kRowBytes + at;
    __pipeline_memcpy_async(&stage.rows[row][at], from, 16, has ? 0 : 16);
  }
  if (threadIdx.x < kCentroids) {
    const std::int32_t number = first + static_cast<std::int32_t>(threadIdx.x);
    stage.half_squares[threadIdx.x] = number < clusters ? half_squares[number] : INFINITY;
  }
  __pipeline_commit();
}

struct Best {
  float score;
  std::int32_t number;

  __device__ __forceinline__ void offer(float other, std::int32_t other_number) {
    if (other > score) {
      score = other;
      number = other_number;
    }
  }
};

template <class Element, std::int32_t kHeadDim>
__global__ void __launch_bounds__(kThreads, 1) nearest_kernel(const NearestParams p) {
  constexpr std::int32_t kRowBytes = kHeadDim * static_cast<std::int32_t>(sizeof(Element));
  constexpr std::int32_t kChunks = kHeadDim / 32;  // of 64 bytes: two k-steps
  __shared__ Stage<kRowBytes> stages[2];
  const auto lane = static_cast<std::int32_t>(threadIdx.x) % kWarp;
  const std::int32_t group = lane / 4;
  const std::int32_t vector = lane % 4 * 16;  // bytes
  const std::int32_t first_row = static_cast<std::int32_t>(blockIdx.x) * kRows +
                                 static_cast<std::int32_t>(threadIdx.x) / kWarp * (kRowTiles * 16) +
                                 group;
  for (std::int64_t slice = blockIdx.y; slice < p.slices; slice += gridDim.y) {
    const std::byte* x = p.x + slice / p.heads * p.batch_stride + slice % p.heads * p.head_stride;
    uint4 a[kRowTiles][2][kChunks];  // rows `group` and `group + 8` of each tile
#pragma unroll
    for (std::int32_t tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (std::int32_t half = 0; half < 2; ++half) {
        const std::int32_t row = first_row + tile * 16 + half * 8;
#pragma unroll
        for (std::int32_t chunk = 0; chunk < kChunks; ++chunk) {
          a[tile][half][chunk] =
              row < p.rows
                  ? *reinterpret_cast<const uint4*>(x + row * p.row_stride + chunk * 64 + vector)
                  : uint4{};
        }
      }
    }
    const std::byte* centroids = p.centroids + slice * p.clusters * kRowBytes;
    const float* half_squares = p.half_squares + slice * p.clusters;
    // Not by initialisers of members: nvcc 13.0 leaves all but the first row of such an array zero.
    Best best[kRowTiles][2];
#pragma unroll
    for (std::int32_t tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (std::int32_t half = 0; half < 2; ++half) {
        best[tile][half] = {-INFINITY, 0};
      }
    }
    fetch(stages[0], centroids, half_squares, 0, p.clusters);
    std::int32_t turn = 0;
    for (std::int32_t first = 0; first < p.clusters; first += kCentroids, turn ^= 1) {
      // An empty group where there is no next one, so that the wait below always leaves one.
      if (first + kCentroids < p.clusters) {
        fetch(stages[turn ^ 1], centroids, half_squares, first + kCentroids, p.clusters);
      } else {
        __pipeline_commit();
      }
      __pipeline_wait_prior(1);
      __syncthreads();
      const Stage<kRowBytes>& stage = stages[turn];
#pragma unroll 2
      for (std::int32_t column = 0; column < kCentroids; column += kColumns) {
        float d[kRowTiles][4] = {};
#pragma unroll
        for (std::int32_t chunk = 0; chunk < kChunks; ++chunk) {
          const uint4 b =
              *reinterpret_cast<const uint4*>(&stage.rows[column + group][chunk * 64 + vector]);
#pragma unroll
          for (std::int32_t tile = 0; tile < kRowTiles; ++tile) {
            const uint4& upper = a[tile][0][chunk];
            const uint4& lower = a[tile][1][chunk];
            multiply<Element>(d[tile], upper.x, lower.x, upper.y, lower.y, b.x, b.y);
            multiply<Element>(d[tile], upper.z, lower.z, upper.w, lower.w, b.z, b.w);
          }
        }
        const std::int32_t at = column + lane % 4 * 2;
        const float2 half = *reinterpret_cast<const float2*>(&stage.half_squares[at]);
#pragma unroll
        for (std::int32_t tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
          for (std::int32_t i = 0; i < 2; ++i) {
            best[tile][i].offer(d[tile][2 * i] - half.x, first + at);
            best[tile][i].offer(d[tile][2 * i + 1] - half.y, first + at + 1);
          }
        }
      }
      __syncthreads();  // the stage may be filled again
    }
#pragma unroll
    for (std::int32_t tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
      for (std::int32_t i = 0; i < 2; ++i) {
        Best of_row = best[tile][i];
#pragma unroll
        for (std::int32_t step = 1; step < 4; step *= 2) {
          const float score = __shfl_xor_sync(kAllLanes, of_row.score, step);
          const std::int32_t number = __shfl_xor_sync(kAllLanes, of_row.number, step);
          if (score > of_row.score || (score == of_row.score && number < of_row.number)) {
            of_row = {score, number};
          }
        }
        const std::int32_t row = first_row + tile * 16 + i * 8;
        if (lane % 4 == 0 && row < p.rows) {
          p.labels[slice * p.rows + row] = of_row.number;
        }
      }
    }
  }
}

template <class Element>
void launch(const NearestParams& params, std::int64_t head_dim, Stream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(params.rows, kRows)),
                  static_cast<unsigned>(std::min(params.slices, kMostGridY)));
  if (head_dim == 128) {
    nearest_kernel<Element, 128><<<grid, kThreads, 0, stream>>>(params);
  } else {
    nearest_kernel<Element, 64><<<grid, kThreads, 0, stream>>>(params);
  }
}

bool aligned(const NearestArgs& args) {
  const auto address = reinterpret_cast<std::uintptr_t>(args.x.data) |
                       reinterpret_cast<std::uintptr_t>(args.centroids);
  bool fits = address % 16 == 0;
  for (std::size_t i = 0; i < 3; ++i) {
    fits = fits && (args.x.shape[i] <= 1 || args.x.stride[i] * size_of(args.x.dtype) % 16 == 0);
  }
  return fits;
}

}  // namespace

Status nearest_centroids(const NearestArgs& args) {
  const auto& [batch, heads, rows, head_dim] = args.x.shape;
  const bool half = args.x.dtype == DType::kBFloat16 || args.x.dtype == DType::kFloat16;
  if (!half || (head_dim != 64 && head_dim != 128) || !aligned(args) || rows > 0x7fffff00) {
    return {ErrorCode::kUnsupported,
            "nearest_centroids on a CUDA device: bfloat16 or float16 of head_dim 64 or 128, rows "
            "aligned to 16 bytes"};
  }
  const NearestParams params{static_cast<const std::byte*>(args.x.data),
                             args.x.stride[0] * 2,
                             args.x.stride[1] * 2,
                             args.x.stride[2] * 2,
                             heads,
                             batch * heads,
                             static_cast<std::int32_t>(rows),
                             static_cast<std::int32_t>(args.clusters),
                             static_cast<const std::byte*>(args.centroids),
                             args.half_squares,
                             args.labels};
  if (args.x.dtype == DType::kBFloat16) {
    launch<__nv_bfloat16>(params, head_dim, args.stream);
  } else {
    launch<__half>(params, head_dim, args.stream);
  }
  KPAGE_CUDA_TRY(cudaGetLastError());
  return {};
}

}  // namespace kpage::kernels
