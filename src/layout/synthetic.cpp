// Random graphs and cluster sizes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "kpage/geometry.h"

#include "base/message.h"
#include "base/random.h"
#include "layout/faults.h"

namespace kpage {
namespace {

// Columns of one weight: those still undrawn are the first `left` of them.
struct WeightClass {
  double weight;
  std::vector<std::int32_t> columns;
  std::size_t left;
};

Result<std::vector<WeightClass>> classes_of(std::int32_t columns, std::span<const double> weights) {
  if (!weights.empty() && static_cast<std::int64_t>(weights.size()) != columns) {
    return invalid_argument("weights", text("no or ", columns, " elements"), weights.size());
  }
  std::map<double, std::vector<std::int32_t>> by_weight;
  for (std::int32_t column = 0; column < columns; ++column) {
    const double weight = weights.empty() ? 1.0 : weights[static_cast<std::size_t>(column)];
    if (!(weight >= 0.0 && std::isfinite(weight))) {
      return invalid_argument(element("weights", column, {columns}),
                              "a finite number of at least 0", weight);
    }
    if (weight > 0.0) {
      by_weight[weight].push_back(column);
    }
  }
  std::vector<WeightClass> classes;
  classes.reserve(by_weight.size());
  for (auto& [weight, members] : by_weight) {
    classes.push_back({weight, std::move(members), 0});
  }
  return classes;
}

// The class of the next draw: in proportion to weight times what is left of it.
WeightClass& draw_class(std::vector<WeightClass>& classes, Random& random) {
  if (classes.size() == 1) {
    return classes.front();
  }
  double total = 0.0;
  for (const WeightClass& some : classes) {
    total += some.weight * static_cast<double>(some.left);
  }
  double at = random.uniform() * total;
  WeightClass* chosen = nullptr;
  for (WeightClass& some : classes) {
    if (some.left > 0) {
      chosen = &some;  // rounding may leave `at` past the end: the last one takes it
      at -= some.weight * static_cast<double>(some.left);
      if (at < 0.0) {
        break;
      }
    }
  }
  return *chosen;
}

std::int32_t draw(std::vector<WeightClass>& classes, Random& random) {
  WeightClass& from = draw_class(classes, random);
  std::swap(from.columns[random.below(from.left)], from.columns[from.left - 1]);
  return from.columns[--from.left];
}

// Queries whose list holds empty clusters alone get keys: the head's largest cluster, for one of
// them. Rows of `graph`: [heads * q_clusters].
void give_keys(ClusterGraph& graph, const Clusters& kv, std::int32_t q_clusters) {
  for (std::size_t row = 0; row + 1 < graph.row_offsets.size(); ++row) {
    const auto head = row / static_cast<std::size_t>(q_clusters);
    const auto sizes = kv.sizes.begin() + static_cast<std::ptrdiff_t>(head) * kv.clusters;
    const auto begin = graph.columns.begin() + graph.row_offsets[row];
    const auto end = graph.columns.begin() + graph.row_offsets[row + 1];
    if (std::none_of(begin, end, [&](std::int32_t column) { return sizes[column] > 0; })) {
      *begin = static_cast<std::int32_t>(std::max_element(sizes, sizes + kv.clusters) - sizes);
      std::sort(begin, end);
    }
  }
}

}  // namespace

Result<ClusterGraph> random_top_k(std::int64_t rows, std::int32_t columns, std::int32_t keep,
                                  std::uint64_t seed, std::span<const double> weights) {
  if (rows < 0) {
    return invalid_argument("rows", "at least 0", rows);
  }
  if (columns < 0) {
    return invalid_argument("columns", "at least 0", columns);
  }
  Result<std::vector<WeightClass>> grouped = classes_of(columns, weights);
  if (!grouped.ok()) {
    return grouped.status();
  }
  std::vector<WeightClass>& classes = grouped.value();
  const std::size_t drawable =
      std::accumulate(classes.begin(), classes.end(), std::size_t{0},
                      [](std::size_t sum, const WeightClass& c) { return sum + c.columns.size(); });
  if (keep < 0 || static_cast<std::size_t>(keep) > drawable) {
    return invalid_argument("keep", text("0 to ", drawable, ", the columns that may be drawn"),
                            keep);
  }
  Random random(seed);
  ClusterGraph graph;
  graph.row_offsets.reserve(static_cast<std::size_t>(rows + 1));
  graph.row_offsets.push_back(0);
  graph.columns.reserve(static_cast<std::size_t>(rows * keep));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (WeightClass& some : classes) {
      some.left = some.columns.size();
    }
    const auto begin = static_cast<std::ptrdiff_t>(graph.columns.size());
    for (std::int32_t i = 0; i < keep; ++i) {
      graph.columns.push_back(draw(classes, random));
    }
    std::sort(graph.columns.begin() + begin, graph.columns.end());
    graph.row_offsets.push_back(static_cast<std::int64_t>(graph.columns.size()));
  }
  return graph;
}

Result<Clusters> log_normal_clusters(std::int32_t heads, std::int32_t clusters, std::int32_t tokens,
                                     double sigma, std::uint64_t seed) {
  if (heads < 1) {
    return invalid_argument("heads", "at least 1", heads);
  }
  if (clusters < 1 || clusters > kMaxBlocks) {
    return invalid_argument("clusters", text("1 to ", kMaxBlocks), clusters);
  }
  if (tokens < 0 || tokens > kMaxRows) {
    return invalid_argument("tokens", text("0 to ", kMaxRows), tokens);
  }
  if (!(sigma >= 0.0 && sigma <= 16.0)) {
    return invalid_argument("sigma", "a number in [0, 16]", sigma);
  }
  Clusters out;
  out.clusters = clusters;
  out.scope = PartitionScope::kPerHead;
  Random random(seed);
  const auto count = static_cast<std::size_t>(clusters);
  std::vector<double> share(count);
  std::vector<std::size_t> order(count);
  for (std::int32_t head = 0; head < heads; ++head) {
    std::generate(share.begin(), share.end(), [&] { return std::exp(sigma * random.normal()); });
    const double scale = tokens / std::accumulate(share.begin(), share.end(), 0.0);
    const std::size_t base = out.sizes.size();
    std::int64_t left = tokens;
    for (double& part : share) {
      part *= scale;
      const auto whole = static_cast<std::int32_t>(part);
      out.sizes.push_back(whole);
      part -= whole;
      left -= whole;
    }
    // What rounding down left over goes to the largest remainders.
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return share[a] > share[b]; });
    for (std::size_t i = 0; left > 0; ++i, --left) {
      ++out.sizes[base + order[i % count]];
    }
  }
  return out;
}

Result<Layout> svg2_like_layout(const Svg2Shape& shape, std::uint64_t seed) {
  if (!(shape.keep >= 0.0 && shape.keep <= 1.0)) {
    return invalid_argument("keep", "a share in [0, 1]", shape.keep);
  }
  Random seeds(seed);
  const Result<Clusters> q =
      log_normal_clusters(shape.heads, shape.q_clusters, shape.tokens, shape.sigma, seeds.next());
  if (!q.ok()) {
    return q.status();
  }
  const Result<Clusters> kv =
      log_normal_clusters(shape.heads, shape.kv_clusters, shape.tokens, shape.sigma, seeds.next());
  if (!kv.ok()) {
    return kv.status();
  }
  const auto keep =
      std::max(1, static_cast<std::int32_t>(std::lround(shape.keep * shape.kv_clusters)));
  Result<ClusterGraph> graph = random_top_k(std::int64_t{shape.heads} * shape.q_clusters,
                                            shape.kv_clusters, keep, seeds.next());
  if (!graph.ok()) {
    return graph.status();
  }
  give_keys(graph.value(), kv.value(), shape.q_clusters);
  return cluster_layout(1, shape.heads, q.value(), kv.value(), graph.value());
}

Result<Layout> random_tile_layout(const Tiling& tiling, std::int32_t heads, std::int32_t keep,
                                  std::uint64_t seed) {
  if (Status status = layout::check_batch_heads(1, heads); !status.ok()) {
    return status;
  }
  const Result<ClusterGraph> graph =
      random_top_k(std::int64_t{heads} * tiling.count(), tiling.count(), keep, seed);
  if (!graph.ok()) {
    return graph.status();
  }
  return tile_layout(1, heads, tiling, graph.value());
}

Result<Layout> representative_layout(const RepresentativeCase& which, std::uint64_t seed) {
  constexpr std::int32_t kHeads = 8;
  const Result<Tiling> tiling = make_tiling({{}, {which.frames, 34, 62}, {}}, {2, 8, 8});
  if (!tiling.ok()) {
    return tiling.status();
  }
  std::vector<double> weights(tiling.value().tiles.sizes.size());
  std::transform(tiling.value().tiles.sizes.begin(), tiling.value().tiles.sizes.end(),
                 weights.begin(), [](std::int32_t rows) { return std::pow(rows, -1.07); });
  const Result<ClusterGraph> graph =
      random_top_k(std::int64_t{kHeads} * tiling.value().count(), tiling.value().count(),
                   which.keep, seed + static_cast<std::uint64_t>(which.frames), weights);
  if (!graph.ok()) {
    return graph.status();
  }
  return tile_layout(1, kHeads, tiling.value(), graph.value());
}

}  // namespace kpage
