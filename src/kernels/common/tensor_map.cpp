#include "kernels/common/tensor_map.h"

#include <algorithm>
#include <array>
#include <limits>

#include <cuda_runtime_api.h>

#include "base/hd.h"
#include "base/message.h"
#include "plan/format.h"

namespace kpage::kernels {
namespace {

constexpr std::int64_t kElementBytes = 2;
constexpr std::int64_t kGroupRows = 8;
constexpr std::int64_t kAlignment = 16;
constexpr cuuint64_t kSlabBytes = kSlabColumns * kElementBytes;
constexpr auto kBoxColumns = static_cast<cuuint32_t>(kSlabColumns);
constexpr std::int64_t kMaxStrideBytes = std::int64_t{1} << 40;

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

// The driver's entry point, found through the runtime: nothing links libcuda.
Status find_encoder(Encode& encode) {
  // A thread that has run nothing on the device yet, as autograd's may not have, has no current
  // context. The runtime would make one at its first kernel, the driver's functions do not.
  int device = 0;
  if (cudaGetDevice(&device) == cudaSuccess) {
    cudaSetDevice(device);
  }
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                             12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || entry == nullptr) {
    return {ErrorCode::kCuda,
            std::string("the driver has no cuTensorMapEncodeTiled: ") + cudaGetErrorString(error)};
  }
  encode = reinterpret_cast<Encode>(entry);
  return {};
}

bool has_elements(const TensorRef& tensor) {
  return std::ranges::all_of(tensor.shape, [](std::int64_t extent) { return extent > 0; });
}

// The row pitch in bytes. One row has none of its own.
std::int64_t pitch_bytes(const TensorRef& tensor) {
  const std::int64_t pitch = tensor.shape[2] > 1 ? tensor.stride[2] : tensor.shape[3];
  return pitch * kElementBytes;
}

std::int64_t slab_count(const TensorRef& tensor) {
  const SlabStrides step = slab_strides(tensor);
  return std::int64_t{step.batch} * (tensor.shape[0] - 1) +
         std::int64_t{step.head} * (tensor.shape[1] - 1) + tensor.shape[3] / kSlabColumns;
}

template <std::size_t kRank>
Status encode_map(Encode encode, const TensorRef& tensor, const char* name,
                  const std::array<cuuint64_t, kRank>& extents,
                  const std::array<cuuint64_t, kRank - 1>& strides,
                  const std::array<cuuint32_t, kRank>& box, CUtensorMap& map) {
  std::array<cuuint32_t, kRank> ones;
  ones.fill(1);
  const CUresult result =
      encode(&map,
             tensor.dtype == DType::kBFloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                              : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             kRank, tensor.data, extents.data(), strides.data(), box.data(), ones.data(),
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return {ErrorCode::kCuda,
            text(name, ": the driver refused a tensor map, error ", static_cast<int>(result))};
  }
  return {};
}

// Boxes of `rows` rows of all slabs; rows past the tensor come as zeros.
Status encode_rows(Encode encode, const TensorRef& tensor, const char* name, std::int32_t rows,
                   CUtensorMap& map) {
  return encode_map<3>(encode, tensor, name,
                       {kSlabColumns, static_cast<cuuint64_t>(tensor.shape[2]),
                        static_cast<cuuint64_t>(slab_count(tensor))},
                       {static_cast<cuuint64_t>(pitch_bytes(tensor)), kSlabBytes},
                       {kBoxColumns, static_cast<cuuint32_t>(rows),
                        static_cast<cuuint32_t>(tensor.shape[3] / kSlabColumns)},
                       map);
}

}  // namespace

Status check_pageable(const TensorRef& tensor, const char* name) {
  if (tensor.dtype != DType::kBFloat16 && tensor.dtype != DType::kFloat16) {
    return {ErrorCode::kUnsupported, text(name, ": expected bf16 or fp16")};
  }
  const auto& [batch, heads, rows, head_dim] = tensor.shape;
  if (head_dim <= 0 || head_dim % kSlabColumns != 0) {
    return {ErrorCode::kUnsupported,
            text(name, ": expected a head_dim that is a multiple of 64, got ", head_dim)};
  }
  if (!has_elements(tensor)) {
    return {};
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % kAlignment != 0) {
    return invalid_argument(name, "data aligned to 16 bytes", tensor.data);
  }
  if (tensor.stride[3] != 1) {
    return invalid_argument(name, "a stride of head_dim of 1", tensor.stride[3]);
  }
  constexpr std::array<const char*, 3> kNames = {"batch", "heads", "rows"};
  constexpr std::array<std::int64_t, 3> kMultiples = {kSlabColumns, kSlabColumns,
                                                      kAlignment / kElementBytes};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const std::int64_t stride = tensor.stride[i];
    if (tensor.shape[i] > 1 && (stride < 0 || stride % kMultiples[i] != 0)) {
      return invalid_argument(
          name, text("a stride of ", kNames[i], " that is a multiple of ", kMultiples[i]), stride);
    }
  }
  if (rows > 1 && tensor.stride[2] == 0) {
    return invalid_argument(name, "a stride of rows that is not 0", tensor.stride[2]);
  }
  const std::int64_t slabs = (batch > 1 ? (batch - 1) * tensor.stride[0] / kSlabColumns : 0) +
                             (heads > 1 ? (heads - 1) * tensor.stride[1] / kSlabColumns : 0) +
                             head_dim / kSlabColumns;
  if (slabs > std::numeric_limits<std::int32_t>::max() ||
      kGroupRows * pitch_bytes(tensor) >= kMaxStrideBytes) {
    return invalid_argument(name, "strides that tensor maps reach",
                            shape_text({tensor.stride[0], tensor.stride[1], tensor.stride[2]}));
  }
  return {};
}

SlabStrides slab_strides(const TensorRef& tensor) {
  return {tensor.shape[0] > 1 ? static_cast<std::int32_t>(tensor.stride[0] / kSlabColumns) : 0,
          tensor.shape[1] > 1 ? static_cast<std::int32_t>(tensor.stride[1] / kSlabColumns) : 0};
}

Status encode_page_maps(const TensorRef& tensor, const char* name, PageMaps& maps) {
  if (Status status = check_pageable(tensor, name); !status.ok()) {
    return status;
  }
  if (!has_elements(tensor)) {
    maps = {};  // nothing will be loaded through them
    return {};
  }
  Encode encode = nullptr;
  if (Status status = find_encoder(encode); !status.ok()) {
    return status;
  }
  const auto slabs = static_cast<cuuint64_t>(slab_count(tensor));
  const auto box_slabs = static_cast<cuuint32_t>(tensor.shape[3] / kSlabColumns);
  const std::int64_t rows = tensor.shape[2];
  const auto pitch = static_cast<cuuint64_t>(pitch_bytes(tensor));
  constexpr auto kBoxRows = static_cast<cuuint32_t>(kGroupRows);
  for (std::int32_t i = 0; i < kRunMaps; ++i) {
    const std::int64_t run_rows = std::int64_t{plan::kPageRows} << i;
    const auto groups = static_cast<cuuint32_t>(run_rows / kGroupRows);
    // The last dimension holds first rows. Too short a tensor has none, but a map has to have one.
    const auto first_rows = static_cast<cuuint64_t>(max_of<std::int64_t>(rows - run_rows + 1, 1));
    Status status =
        encode_map<5>(encode, tensor, name, {kSlabColumns, kGroupRows, slabs, groups, first_rows},
                      {pitch, kSlabBytes, kGroupRows * pitch, pitch},
                      {kBoxColumns, kBoxRows, box_slabs, groups, 1}, maps.run[i]);
    if (!status.ok()) {
      return status;
    }
  }
  return encode_rows(encode, tensor, name, kGroupRows, maps.group);
}

Status encode_box_map(const TensorRef& tensor, const char* name, std::int32_t rows,
                      CUtensorMap& map) {
  if (Status status = check_pageable(tensor, name); !status.ok()) {
    return status;
  }
  Encode encode = nullptr;
  if (Status status = find_encoder(encode); !status.ok()) {
    return status;
  }
  return encode_rows(encode, tensor, name, rows, map);
}

Status encode_group_maps(const TensorRef& tensor, const char* name, GroupMaps& maps) {
  if (!has_elements(tensor)) {
    maps = {};  // nothing will be loaded through them
    return {};
  }
  Encode encode = nullptr;
  if (Status status = find_encoder(encode); !status.ok()) {
    return status;
  }
  const auto slabs = static_cast<cuuint64_t>(slab_count(tensor));
  const auto box_slabs = static_cast<cuuint32_t>(tensor.shape[3] / kSlabColumns);
  const auto pitch = static_cast<cuuint64_t>(pitch_bytes(tensor));
  // The box reaches past its second dimension, and what lies there comes as zeros.
  std::int64_t group_rows = 0;
  for (CUtensorMap& map : maps.rows) {
    ++group_rows;
    const auto first_rows =
        static_cast<cuuint64_t>(max_of<std::int64_t>(tensor.shape[2] - group_rows + 1, 1));
    Status status =
        encode_map<5>(encode, tensor, name,
                      {kSlabColumns, static_cast<cuuint64_t>(group_rows), slabs, 1, first_rows},
                      {pitch, kSlabBytes, kGroupRows * pitch, pitch},
                      {kBoxColumns, static_cast<cuuint32_t>(kGroupRows), box_slabs, 1, 1}, map);
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

}  // namespace kpage::kernels
