// The layouts that benchmarks speak of, by name.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kpage/geometry.h"

#include "base/message.h"

namespace kpage {
namespace {

constexpr Dims kGrid480p{21, 30, 52};
constexpr Dims kGrid720p{21, 45, 80};

Result<Layout> full(std::int32_t blocks, std::uint64_t seed) {
  const Result<Tiling> tiling = linear_tiling(blocks * kBlockRows);
  return tiling.ok() ? random_tile_layout(tiling.value(), 8, 64, seed) : tiling.status();
}

Result<Layout> cubes(Dims grid, Dims tile, std::int32_t heads, std::int32_t keep,
                     std::uint64_t seed) {
  const Result<Tiling> tiling = make_tiling({{}, grid, {}}, tile);
  return tiling.ok() ? random_tile_layout(tiling.value(), heads, keep, seed) : tiling.status();
}

Result<Layout> padded(std::int32_t frames, std::uint64_t seed) {
  return cubes({frames, 34, 60}, {2, 8, 8}, 8, 64, seed);
}

// 90 % of the tiles left out. Tiles lie where the system has them, padded to their volume.
Result<Layout> vsa(Dims grid, Dims tile, std::uint64_t seed) {
  const Result<Tiling> tiling = make_tiling({{}, grid, {}}, tile, Placement::kTile);
  return tiling.ok()
             ? random_tile_layout(tiling.value(), 12, vsa_top_k(0.9, tiling.value().count()), seed)
             : tiling.status();
}

// The windows of STA's released configuration for HunyuanVideo, in its proportions, on 24 heads.
Result<Layout> sta() {
  struct Share {
    std::size_t heads;
    Dims window;
  };
  constexpr std::array<Share, 5> kShares{
      {{10, {5, 3, 3}}, {8, {1, 6, 10}}, {3, {3, 3, 5}}, {2, {5, 1, 10}}, {1, {5, 6, 1}}}};
  std::vector<Dims> windows;
  for (const Share& share : kShares) {
    windows.insert(windows.end(), share.heads, share.window);
  }
  const Result<Tiling> tiling = make_tiling({{}, {30, 45, 80}, {}}, {6, 8, 8});
  if (!tiling.ok()) {
    return tiling.status();
  }
  const Result<ClusterGraph> graph = sliding_windows(tiling.value(), windows);
  return graph.ok() ? tile_layout(1, static_cast<std::int32_t>(windows.size()), tiling.value(),
                                  graph.value())
                    : graph.status();
}

Result<Layout> ssta(std::int32_t frames, std::uint64_t seed) {
  constexpr std::int32_t kHeads = 16;
  const Result<Tiling> tiling = make_tiling({{}, {frames, 45, 80}, {}}, {6, 8, 8});
  if (!tiling.ok()) {
    return tiling.status();
  }
  const std::vector<Dims> windows(kHeads, Dims{3, 3, 3});
  const Result<ClusterGraph> window = sliding_windows(tiling.value(), windows);
  const Result<ClusterGraph> top_k =
      random_top_k(std::int64_t{kHeads} * tiling.value().count(), tiling.value().count(),
                   ssta_top_k(64, frames), seed);
  if (!window.ok() || !top_k.ok()) {
    return window.ok() ? top_k.status() : window.status();
  }
  const Result<ClusterGraph> graph = unite(window.value(), top_k.value());
  return graph.ok() ? tile_layout(1, kHeads, tiling.value(), graph.value()) : graph.status();
}

Result<Layout> svg2(std::int32_t heads, Dims grid, std::int32_t q_clusters,
                    std::int32_t kv_clusters, std::uint64_t seed) {
  return svg2_like_layout(
      {heads, static_cast<std::int32_t>(grid.volume()), q_clusters, kv_clusters, 0.5, 0.2}, seed);
}

struct Named {
  std::string_view name;
  Result<Layout> (*make)(std::uint64_t seed);
};

constexpr std::array kNamed = std::to_array<Named>({
    {"full-512", [](std::uint64_t seed) { return full(512, seed); }},
    {"full-1024", [](std::uint64_t seed) { return full(1024, seed); }},
    {"full-1536", [](std::uint64_t seed) { return full(1536, seed); }},
    {"full-2048", [](std::uint64_t seed) { return full(2048, seed); }},
    {"full-3072", [](std::uint64_t seed) { return full(3072, seed); }},
    {"padded-5s", [](std::uint64_t seed) { return padded(31, seed); }},
    {"padded-10s", [](std::uint64_t seed) { return padded(61, seed); }},
    {"padded-15s", [](std::uint64_t seed) { return padded(91, seed); }},
    {"padded-30s", [](std::uint64_t seed) { return padded(181, seed); }},
    {"vsa-444-480p", [](std::uint64_t seed) { return vsa(kGrid480p, {4, 4, 4}, seed); }},
    {"vsa-444-720p", [](std::uint64_t seed) { return vsa(kGrid720p, {4, 4, 4}, seed); }},
    {"vsa-288-720p", [](std::uint64_t seed) { return vsa(kGrid720p, {2, 8, 8}, seed); }},
    {"vsa-488-480p", [](std::uint64_t seed) { return vsa(kGrid480p, {4, 8, 8}, seed); }},
    {"vsa-488-720p", [](std::uint64_t seed) { return vsa(kGrid720p, {4, 8, 8}, seed); }},
    {"sta-30x45x80", [](std::uint64_t) { return sta(); }},
    {"ssta-720p-121f", [](std::uint64_t seed) { return ssta(31, seed); }},
    {"ssta-720p-241f", [](std::uint64_t seed) { return ssta(61, seed); }},
    {"svg2-480p-300-1000", [](std::uint64_t seed) { return svg2(12, kGrid480p, 300, 1000, seed); }},
    {"svg2-720p-300-1000", [](std::uint64_t seed) { return svg2(40, kGrid720p, 300, 1000, seed); }},
    {"svg2-720p-100-500", [](std::uint64_t seed) { return svg2(40, kGrid720p, 100, 500, seed); }},
    {"representative-1",
     [](std::uint64_t seed) { return representative_layout(kRepresentativeCases[0], seed); }},
    {"representative-2",
     [](std::uint64_t seed) { return representative_layout(kRepresentativeCases[1], seed); }},
    {"representative-3",
     [](std::uint64_t seed) { return representative_layout(kRepresentativeCases[2], seed); }},
    {"representative-4",
     [](std::uint64_t seed) { return representative_layout(kRepresentativeCases[3], seed); }},
    {"representative-5",
     [](std::uint64_t seed) { return representative_layout(kRepresentativeCases[4], seed); }},
});

}  // namespace

std::vector<std::string_view> layout_names() {
  std::vector<std::string_view> names;
  names.reserve(kNamed.size());
  for (const Named& named : kNamed) {
    names.push_back(named.name);
  }
  return names;
}

Result<Layout> named_layout(std::string_view name, std::uint64_t seed) {
  const auto* found = std::find_if(kNamed.begin(), kNamed.end(),
                                   [&](const Named& named) { return named.name == name; });
  if (found == kNamed.end()) {
    std::string names;
    for (const Named& named : kNamed) {
      names += text(names.empty() ? "" : ", ", named.name);
    }
    return invalid_argument("name", text("one of ", names), text('"', name, '"'));
  }
  return found->make(seed);
}

std::vector<Layout> representative_layouts(std::uint64_t seed) {
  std::vector<Layout> layouts;
  layouts.reserve(kRepresentativeCases.size());
  for (const RepresentativeCase& which : kRepresentativeCases) {
    layouts.push_back(std::move(representative_layout(which, seed)).value());
  }
  return layouts;
}

}  // namespace kpage
