// Steps of clustering selectors: rows by cluster, means, blocks.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kpage/layout.h"

#include "base/elements.h"
#include "base/parallel.h"
#include "cpu/select.h"

namespace kpage::cpu {

void cluster_order(const ClusterOrderArgs& args) {
  const auto last = static_cast<std::int32_t>(args.clusters - 1);
  parallel_for(args.slices, args.threads, [&](std::int64_t slice, std::int32_t) {
    const std::int32_t* labels = args.labels + slice * args.rows;
    std::int32_t* sizes = args.sizes + slice * args.clusters;
    std::int32_t* offsets = args.offsets + slice * args.clusters;
    std::fill(sizes, sizes + args.clusters, 0);
    for (std::int64_t row = 0; row < args.rows; ++row) {
      ++sizes[std::clamp(labels[row], 0, last)];
    }
    std::vector<std::int32_t> next(static_cast<std::size_t>(args.clusters));
    std::int32_t begin = 0;
    for (std::int64_t c = 0; c < args.clusters; ++c) {
      offsets[c] = next[static_cast<std::size_t>(c)] = begin;
      begin += sizes[c];
    }
    for (std::int64_t row = 0; row < args.rows; ++row) {
      std::int32_t& place = next[static_cast<std::size_t>(std::clamp(labels[row], 0, last))];
      args.order[slice * args.rows + place] = static_cast<std::int32_t>(row);
      args.places[slice * args.rows + row] = place++;
    }
  });
}

void cluster_means(const ClusterMeansArgs& args) {
  const std::int64_t heads = args.x.shape[1];
  const std::int64_t rows = args.x.shape[2];
  const std::int64_t head_dim = args.x.shape[3];
  const DType dtype = args.x.dtype;
  const std::int64_t items = args.x.shape[0] * heads * args.clusters;
  parallel_for(items, args.threads, [&](std::int64_t item, std::int32_t) {
    const std::int64_t slice = item / args.clusters;
    const std::int64_t begin = std::max(args.offsets[item], 0);
    const std::int64_t end = std::min<std::int64_t>(begin + args.sizes[item], rows);
    std::vector<float> sums(static_cast<std::size_t>(head_dim));
    for (std::int64_t place = begin; place < end; ++place) {
      const std::int64_t row = args.order[slice * rows + place];
      if (row < 0 || row >= rows) {
        continue;
      }
      const std::int64_t start = row_start(args.x, slice / heads, slice % heads, row);
      for (std::int64_t d = 0; d < head_dim; ++d) {
        sums[static_cast<std::size_t>(d)] +=
            static_cast<float>(read_element(args.x.data, dtype, start + d));
      }
    }
    float squares = 0;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      const std::int64_t at = item * head_dim + d;
      const double old = read_element(args.centroids, dtype, at);
      const float mean = sums[static_cast<std::size_t>(d)] / static_cast<float>(args.sizes[item]);
      write_element(args.means, dtype, at, args.sizes[item] > 0 ? static_cast<double>(mean) : old);
      const auto moved = static_cast<float>(read_element(args.means, dtype, at) - old);
      squares += moved * moved;
    }
    args.shifts[item] = std::sqrt(squares);
  });
}

void cluster_blocks(const ClusterBlocksArgs& args) {
  parallel_for(args.slices, args.threads, [&](std::int64_t slice, std::int32_t) {
    const std::int32_t* sizes = args.sizes + slice * args.clusters;
    std::int32_t* cluster = args.cluster + slice * args.blocks;
    std::int32_t* block_sizes = args.block_sizes + slice * args.blocks;
    std::int32_t* offsets = args.block_offsets + slice * args.blocks;
    std::int64_t block = 0;
    std::int32_t begin = 0;
    for (std::int64_t c = 0; c < args.clusters; ++c) {
      for (std::int32_t left = sizes[c]; left > 0 && block < args.blocks; ++block) {
        cluster[block] = static_cast<std::int32_t>(c);
        block_sizes[block] = std::min(left, kBlockRows);
        offsets[block] = begin;
        begin += block_sizes[block];
        left -= block_sizes[block];
      }
    }
    std::fill(cluster + block, cluster + args.blocks, -1);
    std::fill(block_sizes + block, block_sizes + args.blocks, 0);
    std::fill(offsets + block, offsets + args.blocks, 0);
  });
}

}  // namespace kpage::cpu
