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

namespace {

// Sums of weights in [0, 1] are taken in whole units, so that their order does not matter.
constexpr double kUnits = 1 << 30;

// The weights of a row, in the precision that they are compared in.
void read_weights(const LeadingArgs& args, std::int64_t row, std::vector<float>& weights) {
  float top = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < args.columns; ++i) {
    weights[static_cast<std::size_t>(i)] =
        static_cast<float>(read_element(args.scores, args.dtype, row * args.columns + i));
    top = std::max(top, weights[static_cast<std::size_t>(i)]);
  }
  if (args.counts != nullptr) {
    const std::int32_t* counts = args.counts + row / args.rows * args.columns;
    float sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<float>(counts[i]) * std::exp(weights[i] - top);
      sum += weights[i];
    }
    for (float& weight : weights) {
      write_element(&weight, args.dtype, 0, static_cast<double>(weight / std::max(sum, 1e-12F)));
      weight = static_cast<float>(read_element(&weight, args.dtype, 0));
    }
  }
  for (float& weight : weights) {
    weight = weight > 0 ? weight : 0;  // neither a NaN nor a negative number is a weight
  }
}

}  // namespace

void leading_map(const LeadingArgs& args) {
  const auto limit = static_cast<std::int64_t>(args.limit * kUnits);
  parallel_for(args.groups * args.rows, args.threads, [&](std::int64_t row, std::int32_t) {
    std::vector<float> weights(static_cast<std::size_t>(args.columns));
    read_weights(args, row, weights);
    std::vector<std::int32_t> columns(weights.size());
    std::iota(columns.begin(), columns.end(), 0);
    std::stable_sort(columns.begin(), columns.end(), [&](std::int32_t a, std::int32_t b) {
      return weights[static_cast<std::size_t>(a)] > weights[static_cast<std::size_t>(b)];
    });
    std::uint8_t* map = args.map + row * args.columns;
    std::int64_t sum = 0;
    for (std::int64_t place = 0; place < args.columns; ++place) {
      const std::int32_t column = columns[static_cast<std::size_t>(place)];
      const std::int64_t before = sum;
      sum += std::llrint(static_cast<double>(weights[static_cast<std::size_t>(column)]) * kUnits);
      map[column] = place < args.least || (args.crosses ? before : sum) <= limit ? 1 : 0;
    }
  });
}

void lists_of_map(const ListsArgs& args) {
  parallel_for(args.groups * args.lists, args.threads, [&](std::int64_t item, std::int32_t) {
    const std::int64_t group = item / args.lists;
    const std::int64_t row =
        args.row_of_list == nullptr ? item % args.lists : args.row_of_list[item];
    const bool has_row = row >= 0 && row < args.rows;
    const std::uint8_t* members =
        args.map + (group * args.rows + (has_row ? row : 0)) * args.columns;
    std::int32_t* list = args.index + item * args.max_list;
    std::int32_t count = 0;
    for (std::int64_t id = 0; has_row && id < args.ids; ++id) {
      const std::int64_t column =
          args.column_of_id == nullptr ? id : args.column_of_id[group * args.ids + id];
      if (column >= 0 && column < args.columns && members[column] != 0) {
        if (count < args.max_list) {
          list[count] = static_cast<std::int32_t>(id);
        }
        ++count;
      }
    }
    std::fill(list + std::min<std::int64_t>(count, args.max_list), list + args.max_list, 0);
    args.nums[item] = count;
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
        for (std::int64_t row = std::max<std::int64_t>(first, 0); row < end; ++row) {
          const std::int64_t start = row_start(args.x, slice / heads, slice % heads, row);
          for (std::int64_t d = 0; d < head_dim; ++d) {
            sums[d] += static_cast<float>(read_element(args.x.data, args.x.dtype, start + d));
          }
        }
      });
}

}  // namespace kpage::cpu
