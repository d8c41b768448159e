#include "kernels/sm90/backward/launch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <tuple>
#include <utility>

#include <cuda_runtime_api.h>

#include "base/message.h"
#include "kernels/common/check.h"
#include "kernels/sm90/backward/instantiations/instantiations.h"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/support.h"
#include "plan/views.h"

namespace kpage::kernels::sm90 {
namespace {

using backward_kernel::OperandMaps;
using backward_kernel::Params;
using backward_kernel::RowNumbers;
using backward_kernel::RowTensor;

constexpr std::int64_t kSectionBytes = 128;
// Of a page.
constexpr std::int64_t kStatisticsBytes = 2 * plan::kPageRows * std::int64_t{sizeof(float)};
constexpr std::int64_t kScaleBytes = plan::kPageRows * std::int64_t{sizeof(std::uint16_t)};

constexpr std::array<Kernel<backward_kernel::Launch>, 4> kKernels = {{
    {DType::kBFloat16, 64, backward_kernel::launch_bf16_d64},
    {DType::kBFloat16, 128, backward_kernel::launch_bf16_d128},
    {DType::kFloat16, 64, backward_kernel::launch_fp16_d64},
    {DType::kFloat16, 128, backward_kernel::launch_fp16_d128},
}};

const Kernel<backward_kernel::Launch>* find_kernel(const BackwardArgs& args) {
  return sm90::find_kernel(kKernels, args.q);
}

// Every block ends in at most one partial page.
std::int64_t page_capacity(const BackwardArgs& args) {
  const std::int64_t blocks = args.plan.shape.q_blocks;
  return std::min<std::int64_t>(plan::kBlockPages * blocks,
                                args.q.shape[2] / plan::kPageRows + blocks);
}

bool shares_heads(const BackwardArgs& args) { return args.k.shape[1] != args.q.shape[1]; }

// Byte offsets into the workspace.
struct Workspace {
  std::int64_t ticket, sweeps, statistics, d_q, row_scales;
  std::int64_t zeroed;  // from here on to the end
  std::int64_t bounds, d_k_sum, d_v_sum, bytes;
};
Workspace workspace_of(const BackwardArgs& args) {
  const std::int64_t pages = args.q.shape[0] * args.q.shape[1] * page_capacity(args);
  const std::int64_t head_dim = args.q.shape[3];
  constexpr std::int64_t kFloat = sizeof(float);
  // Deterministic, every query head has sums of its own, to be added up in order.
  const std::int64_t sum_heads = !shares_heads(args)  ? 0
                                 : args.deterministic ? args.q.shape[1]
                                                      : args.k.shape[1];
  const std::int64_t sum_bytes = args.k.shape[0] * sum_heads * args.k.shape[2] * head_dim * kFloat;
  Workspace at{};
  std::int64_t end = 0;
  const auto place = [&end](std::int64_t bytes) {
    const std::int64_t begin = end;
    end = round_up<std::int64_t>(end + bytes, kSectionBytes);
    return begin;
  };
  at.ticket = place(sizeof(std::uint32_t));
  at.sweeps =
      place(backward_kernel::sweep_count(args.plan.shape) * std::int64_t{sizeof(std::int32_t)});
  at.statistics = place(pages * kStatisticsBytes);
  at.d_q = place(pages * plan::kPageRows * head_dim * kFloat);
  at.row_scales = place(args.deterministic ? pages * kScaleBytes : 0);
  at.zeroed = end;
  at.bounds = place(args.deterministic ? args.q.shape[0] * args.q.shape[1] *
                                             std::int64_t{sizeof(backward_kernel::HeadBounds)}
                                       : 0);
  at.d_k_sum = place(sum_bytes);
  at.d_v_sum = place(sum_bytes);
  at.bytes = end;
  return at;
}

RowTensor rows_of(const TensorRef& tensor) {
  return {tensor.data, tensor.stride[0], tensor.stride[1], tensor.stride[2]};
}
RowNumbers numbers_of(const RowsRef& rows) {
  return {rows.data, rows.stride[0], rows.stride[1], rows.stride[2]};
}

Status encode(const TensorRef& tensor, const char* name, OperandMaps& maps, SlabStrides& slabs) {
  PageMaps pages;
  if (Status status = encode_page_maps(tensor, name, pages); !status.ok()) {
    return status;
  }
  GroupMaps groups;
  if (Status status = encode_group_maps(tensor, name, groups); !status.ok()) {
    return status;
  }
  std::ranges::copy(groups.rows, std::ranges::copy(pages.run, maps.box).out);
  slabs = slab_strides(tensor);
  return {};
}

Status check_tensors(const BackwardArgs& args) {
  for (const auto& [tensor, name] : {std::pair{&args.q, "q"}, std::pair{&args.k, "k"},
                                     std::pair{&args.v, "v"}, std::pair{&args.d_o, "d_o"}}) {
    if (Status status = check_pageable(*tensor, name); !status.ok()) {
      return status;
    }
  }
  for (const auto& [tensor, name] : {std::pair{&args.o, "o"}, std::pair{&args.dq, "dq"},
                                     std::pair{&args.dk, "dk"}, std::pair{&args.dv, "dv"}}) {
    if (Status status = check_rows(*tensor, name); !status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace

Status can_backward(const BackwardArgs& args) {
  if (find_kernel(args) == nullptr) {
    return no_kernel(args.q);
  }
  constexpr std::int64_t kMostPages = std::numeric_limits<std::int32_t>::max();
  if (const std::int64_t heads = args.q.shape[0] * args.q.shape[1];
      heads > 0 && page_capacity(args) > kMostPages / heads) {
    return {ErrorCode::kUnsupported, text("up to ", kMostPages, " pages of 16 query rows, not ",
                                          heads * page_capacity(args))};
  }
  return check_device(args.q.device.index);
}

std::int64_t backward_workspace_bytes(const BackwardArgs& args) { return workspace_of(args).bytes; }

Status backward(const BackwardArgs& args) {
  const Kernel<backward_kernel::Launch>* kernel = find_kernel(args);
  if (kernel == nullptr) {
    return can_backward(args);
  }
  Status status = check_tensors(args);
  int ctas = 0;
  if (status.ok()) {
    status = device_figure(cudaDevAttrMultiProcessorCount, args.q.device.index, ctas);
  }
  Params params{};
  backward_kernel::MainParams& main = params.main;
  for (const auto& [tensor, name, maps, slabs] :
       {std::tuple{&args.q, "q", &main.q, &main.q_slabs},
        std::tuple{&args.d_o, "d_o", &main.d_o, &main.d_o_slabs},
        std::tuple{&args.k, "k", &main.k, &main.k_slabs},
        std::tuple{&args.v, "v", &main.v, &main.v_slabs}}) {
    if (status.ok()) {
      status = encode(*tensor, name, *maps, *slabs);
    }
  }
  if (!status.ok()) {
    return status;
  }

  const double scale = args.scale.value_or(1.0 / std::sqrt(static_cast<double>(args.q.shape[3])));
  const Workspace at = workspace_of(args);
  const auto section = [&args](std::int64_t offset) {
    return reinterpret_cast<float*>(args.workspace + offset);
  };
  main.forward = plan::forward_view(args.plan);
  main.backward = plan::backward_view(args.plan);
  main.group =
      args.k.shape[1] > 0 ? static_cast<std::int32_t>(args.q.shape[1] / args.k.shape[1]) : 1;
  main.page_capacity = static_cast<std::int32_t>(page_capacity(args));
  main.statistics = section(at.statistics);
  main.d_q = section(at.d_q);
  main.ticket = reinterpret_cast<std::uint32_t*>(args.workspace + at.ticket);
  main.sweeps = reinterpret_cast<std::int32_t*>(args.workspace + at.sweeps);
  main.scale = static_cast<float>(scale);
  // Statistics are divided by it: a scale of zero is one that scores do not show.
  constexpr double kSmallestScale = 0x1p-60;
  main.scale_log2 = static_cast<float>((std::abs(scale) < kSmallestScale ? kSmallestScale : scale) *
                                       std::numbers::log2e);
  main.no_score = -std::copysign(std::numeric_limits<float>::infinity(), main.scale_log2);
  main.kv_rows = args.k.shape[2];
  main.d_k = rows_of(args.dk);
  main.d_v = rows_of(args.dv);
  main.d_k_sum = section(at.d_k_sum);
  main.d_v_sum = section(at.d_v_sum);

  backward_kernel::BoundsParams& bounds = params.bounds;
  bounds.k = rows_of(args.k);
  bounds.v = rows_of(args.v);
  bounds.forward = main.forward;
  bounds.backward = main.backward;
  bounds.group = main.group;
  bounds.kv_rows = main.kv_rows;
  backward_kernel::PreprocessParams& pre = params.preprocess;
  if (args.deterministic) {
    bounds.bounds = reinterpret_cast<backward_kernel::HeadBounds*>(args.workspace + at.bounds);
    pre.bounds = bounds.bounds;
    pre.row_scales = reinterpret_cast<std::uint32_t*>(args.workspace + at.row_scales);
    main.row_scales = pre.row_scales;
  }
  pre.o = rows_of(args.o);
  pre.d_o = rows_of(args.d_o);
  pre.lse = numbers_of(args.lse);
  pre.d_lse = numbers_of(args.d_lse);
  pre.forward = main.forward;
  pre.q_rows = args.q.shape[2];
  pre.page_capacity = main.page_capacity;
  pre.statistics = section(at.statistics);
  pre.d_q = section(at.d_q);
  pre.ticket = main.ticket;
  pre.sweeps = main.sweeps;
  pre.scale_log2 = main.scale_log2;
  pre.no_score = main.no_score;

  backward_kernel::PostprocessParams& post = params.postprocess;
  post.forward = main.forward;
  post.q_rows = args.q.shape[2];
  post.kv_rows = args.k.shape[2];
  post.group = main.group;
  post.page_capacity = main.page_capacity;
  post.d_q = main.d_q;
  post.row_scales = main.row_scales;
  post.scale = main.scale;
  post.d_q_out = rows_of(args.dq);
  post.d_k = main.d_k;
  post.d_v = main.d_v;
  post.d_k_sum = main.d_k_sum;
  post.d_v_sum = main.d_v_sum;

  if (at.bytes > at.zeroed) {
    const cudaError_t error = cudaMemsetAsync(
        args.workspace + at.zeroed, 0, static_cast<std::size_t>(at.bytes - at.zeroed), args.stream);
    if (error != cudaSuccess) {
      return cuda_status(error, "cudaMemsetAsync");
    }
  }
  const bool multiplied = plan::walk_count(args.plan.shape) > 0 && args.q.shape[2] > 0 &&
                          args.k.shape[2] > 0 && args.plan.shape.kv_blocks > 0;
  post.multiplied = multiplied;
  return cuda_status(kernel->launch(params, multiplied ? ctas : 0, args.stream),
                     "launch of the backward kernels");
}

}  // namespace kpage::kernels::sm90
