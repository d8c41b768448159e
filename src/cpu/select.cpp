#include "cpu/select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/elements.h"
#include "base/parallel.h"

namespace kpage::cpu {

void top_k(const TopKArgs& args) {
  if (args.keep == 0) {
    return;
  }
  parallel_for(args.rows, args.threads, [&](std::int64_t row, std::int32_t) {
    std::vector<double> scores(static_cast<std::size_t>(args.columns));
    for (std::int64_t i = 0; i < args.columns; ++i) {
      const double score = read_element(args.scores, args.dtype, row * args.columns + i);
      scores[static_cast<std::size_t>(i)] =
          std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
    }
    std::vector<std::int32_t> columns(scores.size());
    std::iota(columns.begin(), columns.end(), 0);
    const auto kept = columns.begin() + args.keep;
    std::nth_element(columns.begin(), kept - 1, columns.end(), [&](std::int32_t a, std::int32_t b) {
      const double left = scores[static_cast<std::size_t>(a)];
      const double right = scores[static_cast<std::size_t>(b)];
      return left != right ? left > right : a < b;
    });
    std::sort(columns.begin(), kept);
    std::copy(columns.begin(), kept, args.index + row * args.keep);
  });
}

void lists_of_map(const ListsArgs& args) {
  parallel_for(args.rows, args.threads, [&](std::int64_t row, std::int32_t) {
    const std::uint8_t* members = args.map + row * args.columns;
    std::int32_t* list = args.index + row * args.max_list;
    std::int32_t count = 0;
    for (std::int64_t i = 0; i < args.columns; ++i) {
      if (members[i] != 0) {
        if (count < args.max_list) {
          list[count] = static_cast<std::int32_t>(i);
        }
        ++count;
      }
    }
    std::fill(list + std::min<std::int64_t>(count, args.max_list), list + args.max_list, 0);
    args.nums[row] = count;
  });
}

void block_sums(const BlockSumsArgs& args) {
  const std::int64_t heads = args.x.shape[1];
  const std::int64_t rows = args.x.shape[2];
  const std::int64_t head_dim = args.x.shape[3];
  parallel_for(
      args.x.shape[0] * heads * args.blocks, args.threads, [&](std::int64_t item, std::int32_t) {
        const std::int64_t slice = item / args.blocks;
        const std::int64_t block = args.per_head ? item : item % args.blocks;
        float* sums = args.sums + item * head_dim;
        std::fill(sums, sums + head_dim, 0.0F);
        const std::int64_t first = args.offsets[block];
        const std::int64_t end = std::min(first + args.sizes[block], rows);
        for (std::int64_t place = std::max<std::int64_t>(first, 0); place < end; ++place) {
          const std::int64_t row =
              args.row_of_place == nullptr ? place : args.row_of_place[slice * rows + place];
          if (row < 0 || row >= rows) {
            continue;
          }
          const std::int64_t start = row_start(args.x, slice / heads, slice % heads, row);
          for (std::int64_t d = 0; d < head_dim; ++d) {
            sums[d] += static_cast<float>(read_element(args.x.data, args.x.dtype, start + d));
          }
        }
      });
}

}  // namespace kpage::cpu
