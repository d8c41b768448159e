#include "support/random_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <vector>

namespace kpage::test {
namespace {

using Ints = std::vector<std::int32_t>;

std::int32_t random_size(Random& random) {
  return random.chance(0.6) ? random.one_of<std::int32_t>({0, 1, 15, 16, 17, 63, 64, 65, 127, 128})
                            : static_cast<std::int32_t>(random.below(kBlockRows + 1));
}

// The sizes of one scope: mixed, or of one kind.
Ints random_sizes(Random& random, std::int32_t blocks) {
  Ints sizes(static_cast<std::size_t>(blocks));
  const std::int64_t kind = random.below(10);
  for (std::int32_t& size : sizes) {
    size = kind == 0   ? kBlockRows
           : kind == 1 ? static_cast<std::int32_t>(random.below(65))
           : kind == 2 ? static_cast<std::int32_t>(random.below(3))
                       : random_size(random);
  }
  if (random.chance(0.02)) {
    std::fill(sizes.begin(), sizes.end(), 0);
  }
  return sizes;
}

// Places the blocks of one scope: in a random order, with gaps. Empty blocks get any offset.
Ints random_offsets(Random& random, const Ints& sizes) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (random.chance(0.5)) {
    random.shuffle(order);
  }
  const std::int64_t largest_gap = random.one_of<std::int64_t>({0, 1, 7, 20});
  Ints offsets(sizes.size());
  std::int64_t row = 0;
  for (const std::size_t block : order) {
    row += random.chance(0.5) ? random.between(0, largest_gap) : 0;
    offsets[block] = static_cast<std::int32_t>(row);
    row += sizes[block];
    if (sizes[block] == 0 && random.chance(0.5)) {
      offsets[block] = random.one_of<std::int32_t>({0, 5, std::numeric_limits<std::int32_t>::max(),
                                                    std::numeric_limits<std::int32_t>::min(), -1});
    }
  }
  return offsets;
}

void append(Ints& to, const Ints& values) { to.insert(to.end(), values.begin(), values.end()); }

// Fills a side's sizes and offsets for all its scopes, and returns the rows that it needs.
std::int64_t random_side(Random& random, std::int64_t scopes, std::int32_t blocks, Ints& sizes,
                         Ints& offsets) {
  const bool has_offsets = random.chance(0.75);
  std::int64_t rows = 0;
  for (std::int64_t scope = 0; scope < scopes; ++scope) {
    const Ints own_sizes = random_sizes(random, blocks);
    const Ints own_offsets = has_offsets ? random_offsets(random, own_sizes) : Ints();
    for (std::size_t block = 0; block < own_sizes.size(); ++block) {
      const std::int64_t offset =
          has_offsets ? own_offsets[block] : kBlockRows * static_cast<std::int64_t>(block);
      rows = own_sizes[block] > 0 ? std::max(rows, offset + own_sizes[block]) : rows;
    }
    append(sizes, own_sizes);
    append(offsets, own_offsets);
  }
  return rows;
}

void random_graph(Random& random, Layout& layout) {
  const std::int64_t lists = std::int64_t{layout.batch} * layout.heads * layout.q_blocks;
  // 0: any length; 1: short; 2: all blocks; 3: nothing.
  const std::int64_t kind = random.chance(0.02) ? 3 : random.below(3);
  std::vector<Ints> chosen;
  Ints all(static_cast<std::size_t>(layout.kv_blocks));
  std::iota(all.begin(), all.end(), 0);
  std::size_t longest = 0;
  for (std::int64_t i = 0; i < lists; ++i) {
    random.shuffle(all);
    const std::int64_t most = layout.kv_blocks;
    std::int64_t length = kind == 0   ? random.between(0, most)
                          : kind == 1 ? random.between(0, std::min<std::int64_t>(most, 2))
                          : kind == 2 ? most
                                      : 0;
    length = random.chance(0.05) ? 0 : length;
    chosen.emplace_back(all.begin(), all.begin() + length);
    longest = std::max(longest, chosen.back().size());
  }
  longest += random.chance(0.5) ? static_cast<std::size_t>(random.between(1, 3)) : 0;
  layout.max_list = static_cast<std::int32_t>(longest);
  for (const Ints& list : chosen) {
    layout.q2k_block_nums.push_back(static_cast<std::int32_t>(list.size()));
    append(layout.q2k_block_index, list);
    for (std::size_t i = list.size(); i < longest; ++i) {
      layout.q2k_block_index.push_back(static_cast<std::int32_t>(random.bits()));
    }
  }
}

PartitionScope random_scope(Random& random) {
  return random.one_of(
      {PartitionScope::kShared, PartitionScope::kPerHead, PartitionScope::kPerBatchHead});
}

}  // namespace

Case random_case(std::uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 1);
  Case c;
  c.seed = seed;
  c.kv_heads = random.one_of<std::int64_t>({1, 1, 2, 3});
  const std::int64_t group = random.one_of<std::int64_t>({1, 1, 2, 3});
  Layout& layout = c.layout;
  layout.batch = static_cast<std::int32_t>(random.one_of<std::int64_t>({1, 1, 2}));
  layout.heads = static_cast<std::int32_t>(c.kv_heads * group);
  // Many heads go with few blocks, so that no case is large.
  const std::int64_t most_blocks = layout.batch * layout.heads > 4 ? 4 : 8;
  const auto blocks = [&] {
    return static_cast<std::int32_t>(random.chance(0.02) ? 0 : random.between(1, most_blocks));
  };
  layout.q_blocks = blocks();
  layout.q_scope = random_scope(random);
  layout.shared_partition = random.chance(0.35);
  layout.kv_blocks = layout.shared_partition ? layout.q_blocks : blocks();
  layout.kv_scope = layout.shared_partition ? layout.q_scope : random_scope(random);
  c.q_rows = random_side(random, scope_count(layout.q_scope, layout.batch, layout.heads),
                         layout.q_blocks, layout.q_sizes, layout.q_offsets);
  c.kv_rows = c.q_rows;
  if (!layout.shared_partition) {
    c.kv_rows = random_side(random, scope_count(layout.kv_scope, layout.batch, layout.heads),
                            layout.kv_blocks, layout.kv_sizes, layout.kv_offsets);
  }
  c.q_rows += random.chance(0.5) ? random.between(0, 40) : 0;
  c.kv_rows += random.chance(0.5) ? random.between(0, 40) : 0;
  random_graph(random, layout);
  c.head_dim = random.one_of<std::int64_t>({64, 64, 128, 128, 128});
  if (random.chance(0.3)) {
    // Not much smaller than the default: probabilities that are all just above a power of two have
    // twice the rounding error of any that are spread, more than the contract's limits have room
    // for.
    const double magnitude =
        (0.7 + 0.6 * random.uniform()) / std::sqrt(static_cast<double>(c.head_dim));
    c.scale = random.chance(0.1) ? 0.0 : random.chance(0.3) ? -magnitude : magnitude;
  }
  c.has_d_lse = random.chance(0.6);
  return c;
}

Case many_owners_case() {
  Random random(5);
  Case c;
  Layout& layout = c.layout;
  layout.batch = 1;
  layout.heads = 1;
  layout.q_blocks = 32;
  layout.kv_blocks = 1200;
  layout.max_list = 160;
  layout.shared_partition = false;
  Ints all(static_cast<std::size_t>(layout.kv_blocks));
  std::iota(all.begin(), all.end(), 0);
  for (std::int32_t q = 0; q < layout.q_blocks; ++q) {
    layout.q_sizes.push_back(random_size(random));
    random.shuffle(all);
    layout.q2k_block_nums.push_back(layout.max_list);
    append(layout.q2k_block_index, Ints(all.begin(), all.begin() + layout.max_list));
  }
  for (std::int32_t block = 0; block < layout.kv_blocks; ++block) {
    const std::int64_t least = random.one_of<std::int64_t>({1, 65});  // or one to 64 more
    layout.kv_sizes.push_back(static_cast<std::int32_t>(random.between(least, least + 63)));
  }
  c.q_rows = std::int64_t{kBlockRows} * layout.q_blocks;
  c.kv_rows = std::int64_t{kBlockRows} * layout.kv_blocks;
  return c;
}

std::string Case::describe() const {
  std::ostringstream out;
  const auto list = [&](const char* name, const Ints& values) {
    out << ", " << name << " [";
    for (std::size_t i = 0; i < values.size() && i < 64; ++i) {
      out << (i > 0 ? " " : "") << values[i];
    }
    out << (values.size() > 64 ? " ...]" : "]");
  };
  out << "KPAGE_PROPERTY_SEED=" << seed << ": batch " << layout.batch << ", heads " << layout.heads
      << " over " << kv_heads << ", blocks " << layout.q_blocks << " and " << layout.kv_blocks
      << ", rows " << q_rows << " and " << kv_rows << ", head_dim " << head_dim << ", max_list "
      << layout.max_list << ", scopes " << static_cast<int>(layout.q_scope) << " and "
      << static_cast<int>(layout.kv_scope) << ", scale "
      << (scale ? std::to_string(*scale) : "default") << (has_d_lse ? ", d_lse" : "");
  list("q_sizes", layout.q_sizes);
  list("q_offsets", layout.q_offsets);
  list("kv_sizes", layout.kv_sizes);
  list("kv_offsets", layout.kv_offsets);
  list("nums", layout.q2k_block_nums);
  return std::move(out).str();
}

}  // namespace kpage::test
