#include "select.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/elements.h"
#include "base/parallel.h"
#include "failure.h"

namespace kpage::cli {
namespace {

float rounded(float value, DType dtype) {
  return dtype == DType::kBFloat16 ? bf16_to_float(float_to_bf16(value))
                                   : fp16_to_float(float_to_fp16(value));
}

// Means of the rows of each cube: [B * H, cubes, D], rounded to the dtype.
std::vector<float> cube_means(const char* name, const TensorRef& x, const Tiling& tiling) {
  const std::int64_t cubes = tiling.count() - tiling.prefix_tiles - tiling.suffix_tiles;
  const std::int64_t head_dim = x.shape[3];
  const std::int64_t slices = x.shape[0] * x.shape[1];
  std::vector<float> means(static_cast<std::size_t>(slices * cubes * head_dim));
  parallel_for(slices, 0, [&](std::int64_t slice, std::int32_t) {
    const auto* data = static_cast<const std::uint16_t*>(x.data) +
                       row_start(x, slice / x.shape[1], slice % x.shape[1], 0);
    for (std::int64_t cube = 0; cube < cubes; ++cube) {
      const auto tile = static_cast<std::size_t>(tiling.prefix_tiles + cube);
      const std::int32_t size = tiling.tiles.sizes[tile];
      float* mean = means.data() + (slice * cubes + cube) * head_dim;
      for (std::int32_t i = 0; i < size; ++i) {
        const auto row =
            static_cast<std::size_t>(tiling.tiles.offsets[tile]) + static_cast<std::size_t>(i);
        const std::uint16_t* from = data + tiling.token_of_row[row] * x.stride[2];
        for (std::int64_t d = 0; d < head_dim; ++d) {
          mean[d] += x.dtype == DType::kBFloat16 ? bf16_to_float(from[d]) : fp16_to_float(from[d]);
        }
      }
      for (std::int64_t d = 0; d < head_dim; ++d) {
        mean[d] = rounded(mean[d] / static_cast<float>(std::max(size, 1)), x.dtype);
      }
    }
  });
  const auto bad =
      std::find_if_not(means.begin(), means.end(), [](float mean) { return std::isfinite(mean); });
  if (bad != means.end()) {
    const std::int64_t slice = (bad - means.begin()) / (cubes * head_dim);
    throw bad_input(std::string("tensor ") + name + ": head " + std::to_string(slice % x.shape[1]) +
                    " of batch element " + std::to_string(slice / x.shape[1]) +
                    " has rows whose mean is not finite, so its blocks have no scores");
  }
  return means;
}

// The numbers of the `keep` largest scores, ascending.
void best(const std::vector<float>& scores, std::int32_t keep, std::vector<std::int32_t>& order,
          std::int32_t* to) {
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const float x = scores[static_cast<std::size_t>(a)];
    const float y = scores[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::nth_element(order.begin(), order.begin() + (keep - 1), order.end(), before);
  std::copy_n(order.begin(), keep, to);
  std::sort(to, to + keep);
}

}  // namespace

ClusterGraph select_by_means(const TensorRef& q, const TensorRef& k, const Tiling& tiling,
                             std::int32_t keep) {
  const std::int64_t cubes = tiling.count() - tiling.prefix_tiles - tiling.suffix_tiles;
  const std::int64_t head_dim = q.shape[3];
  const std::int64_t slices = q.shape[0] * q.shape[1];
  const std::int64_t group = q.shape[1] / k.shape[1];
  const std::vector<float> q_means = cube_means("q", q, tiling);
  const std::vector<float> k_means = cube_means("k", k, tiling);
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(head_dim)));

  ClusterGraph graph;
  graph.row_offsets.resize(static_cast<std::size_t>(slices * cubes + 1));
  for (std::size_t row = 0; row < graph.row_offsets.size(); ++row) {
    graph.row_offsets[row] = static_cast<std::int64_t>(row) * keep;
  }
  graph.columns.resize(static_cast<std::size_t>(slices * cubes * keep));
  parallel_for(slices, 0, [&](std::int64_t slice, std::int32_t) {
    const std::int64_t kv_slice = slice / q.shape[1] * k.shape[1] + slice % q.shape[1] / group;
    // [D, cubes], so that the loop over cubes vectorises.
    std::vector<float> keys(static_cast<std::size_t>(head_dim * cubes));
    for (std::int64_t cube = 0; cube < cubes; ++cube) {
      for (std::int64_t d = 0; d < head_dim; ++d) {
        keys[static_cast<std::size_t>(d * cubes + cube)] =
            k_means[static_cast<std::size_t>((kv_slice * cubes + cube) * head_dim + d)];
      }
    }
    std::vector<float> scores(static_cast<std::size_t>(cubes));
    std::vector<std::int32_t> order(static_cast<std::size_t>(cubes));
    for (std::int64_t cube = 0; cube < cubes; ++cube) {
      std::fill(scores.begin(), scores.end(), 0.0f);
      const float* mean = q_means.data() + (slice * cubes + cube) * head_dim;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const float* key = keys.data() + d * cubes;
        for (std::int64_t j = 0; j < cubes; ++j) {
          scores[static_cast<std::size_t>(j)] += mean[d] * key[j];
        }
      }
      for (float& score : scores) {
        score = rounded(rounded(score, q.dtype) / root, q.dtype);
        if (std::isnan(score)) {  // infinities of both signs met: ordered below all others
          score = -std::numeric_limits<float>::infinity();
        }
      }
      best(scores, keep, order, graph.columns.data() + (slice * cubes + cube) * keep);
    }
  });
  return graph;
}

}  // namespace kpage::cli
