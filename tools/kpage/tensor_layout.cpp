#include "tensor_layout.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "failure.h"

namespace kpage::cli {
namespace {

using Shape = std::vector<std::int64_t>;

[[noreturn]] void fail(const SafetensorsFile& file, const FileTensor& tensor,
                       const std::string& expected) {
  throw bad_input(file.path() + ": tensor " + tensor.name + ": expected " + expected + ", got " +
                  shape_text(tensor.shape));
}

const FileTensor& with_shape(const SafetensorsFile& file, const std::string& name,
                             const Shape& shape, const std::string& meaning) {
  const FileTensor& tensor = file.at(name);
  if (tensor.shape != shape) {
    fail(file, tensor, "shape " + shape_text(shape) + " (" + meaning + ")");
  }
  return tensor;
}

struct Partition {
  std::int32_t blocks = 0;
  PartitionScope scope = PartitionScope::kShared;
  std::vector<std::int32_t> sizes;
  std::vector<std::int32_t> offsets;
};

// The sizes and offsets of one side: `side` is "q" or "kv".
Partition read_partition(const SafetensorsFile& file, const std::string& side, std::int64_t batch,
                         std::int64_t heads) {
  const FileTensor& sizes = file.at(side + "_block_sizes");
  Partition partition;
  const std::size_t dims = sizes.shape.size();
  const std::int64_t blocks = dims > 0 ? sizes.shape.back() : 0;
  const Shape expected[] = {{blocks}, {heads, blocks}, {batch, heads, blocks}};
  if (dims < 1 || dims > 3 || sizes.shape != expected[dims - 1]) {
    fail(file, sizes,
         "shape [N], [H, N] or [B, H, N] with B = " + std::to_string(batch) +
             " and H = " + std::to_string(heads));
  }
  if (blocks > kMaxBlocks) {
    fail(file, sizes, "at most " + std::to_string(kMaxBlocks) + " blocks");
  }
  constexpr PartitionScope kScopes[] = {PartitionScope::kShared, PartitionScope::kPerHead,
                                        PartitionScope::kPerBatchHead};
  partition.blocks = static_cast<std::int32_t>(blocks);
  partition.scope = kScopes[dims - 1];
  partition.sizes = int32_values(file, sizes);
  const std::string offsets = side + "_block_offsets";
  if (file.find(offsets) != nullptr) {
    partition.offsets =
        int32_values(file, with_shape(file, offsets, sizes.shape, "that of " + sizes.name));
  }
  return partition;
}

}  // namespace

Layout read_layout(const SafetensorsFile& file) {
  const FileTensor& index = file.at("q2k_block_index");
  if (index.shape.size() != 4) {
    fail(file, index, "shape [B, H, NQ, Kmax]");
  }
  for (const std::int64_t extent : index.shape) {
    if (extent > std::numeric_limits<std::int32_t>::max()) {
      fail(file, index, "extents that 32 bits hold");
    }
  }
  Layout layout;
  layout.batch = static_cast<std::int32_t>(index.shape[0]);
  layout.heads = static_cast<std::int32_t>(index.shape[1]);
  layout.q_blocks = static_cast<std::int32_t>(index.shape[2]);
  layout.max_list = static_cast<std::int32_t>(index.shape[3]);
  const FileTensor& nums =
      with_shape(file, "q2k_block_nums", {index.shape[0], index.shape[1], index.shape[2]},
                 "the first three extents of q2k_block_index");

  Partition q = read_partition(file, "q", layout.batch, layout.heads);
  if (q.blocks != layout.q_blocks) {
    fail(file, file.at("q_block_sizes"),
         "NQ = " + std::to_string(layout.q_blocks) + " blocks as in q2k_block_index");
  }
  layout.q_scope = q.scope;
  layout.q_sizes = std::move(q.sizes);
  layout.q_offsets = std::move(q.offsets);
  layout.shared_partition = file.find("kv_block_sizes") == nullptr;
  if (layout.shared_partition) {
    if (file.find("kv_block_offsets") != nullptr) {
      throw bad_input(file.path() + ": tensor kv_block_offsets: needs kv_block_sizes beside it");
    }
    layout.kv_blocks = layout.q_blocks;
    layout.kv_scope = layout.q_scope;
  } else {
    Partition kv = read_partition(file, "kv", layout.batch, layout.heads);
    layout.kv_blocks = kv.blocks;
    layout.kv_scope = kv.scope;
    layout.kv_sizes = std::move(kv.sizes);
    layout.kv_offsets = std::move(kv.offsets);
  }
  layout.q2k_block_nums = int32_values(file, nums);
  // Past its length a list may hold anything.
  layout.q2k_block_index = int32_values(file, index, [&layout](std::size_t position) {
    const auto width = static_cast<std::size_t>(layout.max_list);
    return static_cast<std::int64_t>(position % width) < layout.q2k_block_nums[position / width];
  });
  return layout;
}

void write_layout(std::ostream& file, const Layout& layout) {
  std::vector<FileTensor> tensors;
  const auto add = [&](const char* name, Shape shape, const std::vector<std::int32_t>& values) {
    tensors.push_back({name, "I32", std::move(shape), std::as_bytes(std::span(values))});
  };
  const auto add_partition = [&](const std::string& side, PartitionScope scope, std::int64_t blocks,
                                 const std::vector<std::int32_t>& sizes,
                                 const std::vector<std::int32_t>& offsets) {
    Shape shape = {layout.batch, layout.heads, blocks};
    shape.erase(shape.begin(), shape.begin() + (2 - static_cast<int>(scope)));
    add((side + "_block_sizes").c_str(), shape, sizes);
    if (!offsets.empty()) {
      add((side + "_block_offsets").c_str(), shape, offsets);
    }
  };
  add("q2k_block_index", {layout.batch, layout.heads, layout.q_blocks, layout.max_list},
      layout.q2k_block_index);
  add("q2k_block_nums", {layout.batch, layout.heads, layout.q_blocks}, layout.q2k_block_nums);
  add_partition("q", layout.q_scope, layout.q_blocks, layout.q_sizes, layout.q_offsets);
  if (!layout.shared_partition) {
    add_partition("kv", layout.kv_scope, layout.kv_blocks, layout.kv_sizes, layout.kv_offsets);
  }
  write_safetensors(file, tensors, {{"format", "kpage layout"}});
}

}  // namespace kpage::cli
