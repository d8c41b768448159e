#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string_view>

#include "base/message.h"
#include "base/parallel.h"
#include "oracle/oracle.h"
#include "oracle/problem.h"
#include "oracle/query_rows.h"

namespace kpage::oracle {
namespace {

Status check_rows(std::span<const Row> rows, const TensorRef& tensor, std::string_view name) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (row.batch < 0 || row.batch >= tensor.shape[0] || row.head < 0 ||
        row.head >= tensor.shape[1] || row.row < 0 || row.row >= tensor.shape[2]) {
      return invalid_argument(text("rows[", i, "]"),
                              text("a (batch, head, row) of ", name, " below ",
                                   shape_text({tensor.shape[0], tensor.shape[1], tensor.shape[2]})),
                              shape_text({row.batch, row.head, row.row}));
    }
  }
  return {};
}

Status check_all(const Problem& problem, std::span<const Row> rows, const TensorRef& tensor,
                 std::string_view name, const std::optional<OutputGradients>& gradients,
                 const std::optional<ForwardOutputs>& outputs) {
  if (Status status = check(problem); !status.ok()) {
    return status;
  }
  if (Status status = check_rows(rows, tensor, name); !status.ok()) {
    return status;
  }
  if (Status status = gradients ? check(problem, *gradients) : Status(); !status.ok()) {
    return status;
  }
  return outputs ? check(problem, *outputs) : Status();
}

// Samples of one block, or of one head where blocks are not yet known: positions in `rows`.
struct Group {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t block = 0;
  std::vector<std::size_t> samples;
};

// Groups samples of equal batch, head and block_of(row); those with a negative block are left out.
template <class BlockOf>
std::vector<Group> group_by_block(std::span<const Row> rows, const BlockOf& block_of) {
  std::vector<std::int64_t> blocks(rows.size());
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::transform(rows.begin(), rows.end(), blocks.begin(), block_of);
  const auto key = [&](std::size_t i) {
    return std::array<std::int64_t, 3>{rows[i].batch, rows[i].head, blocks[i]};
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  std::vector<Group> groups;
  for (const std::size_t i : order) {
    if (blocks[i] < 0) {
      continue;
    }
    if (groups.empty() || key(groups.back().samples.back()) != key(i)) {
      groups.push_back({rows[i].batch, rows[i].head, blocks[i], {}});
    }
    groups.back().samples.push_back(i);
  }
  return groups;
}

std::vector<std::int64_t> rows_at(std::span<const Row> rows,
                                  const std::vector<std::size_t>& samples) {
  std::vector<std::int64_t> out;
  out.reserve(samples.size());
  for (const std::size_t i : samples) {
    out.push_back(rows[i].row);
  }
  return out;
}

// Adds the rows of `values`, one a sample, to [samples, D].
void add_rows(const Matrix& values, const std::vector<std::size_t>& samples,
              std::vector<double>& to) {
  for (Eigen::Index i = 0; i < values.rows(); ++i) {
    double* row =
        to.data() + samples[static_cast<std::size_t>(i)] * static_cast<std::size_t>(values.cols());
    for (Eigen::Index d = 0; d < values.cols(); ++d) {
      row[d] += values(i, d);
    }
  }
}

// What the query blocks of one head add to the gradients of the sampled rows of its keys.
void add_key_gradients(const Problem& problem, std::span<const Row> rows, std::int64_t head,
                       const Group& samples, const OutputGradients& gradients,
                       const std::optional<ForwardOutputs>& outputs, KeyRows& out) {
  const LayoutView& layout = problem.layout;
  const double scale = scale_of(problem);
  std::vector<std::vector<std::size_t>> by_block(static_cast<std::size_t>(layout.kv.blocks));
  for (const std::size_t i : samples.samples) {
    const std::int64_t block = kv_block_at(layout, samples.batch, head, rows[i].row);
    if (block >= 0) {
      by_block[static_cast<std::size_t>(block)].push_back(i);
    }
  }
  for (std::int64_t block = 0; block < layout.q.blocks; ++block) {
    const RowRange q_rows = q_block_rows(layout, samples.batch, head, block);
    if (q_rows.count == 0) {
      continue;
    }
    std::optional<Queries> queries;
    for (const std::int32_t kv_block : list_of(layout, samples.batch, head, block)) {
      const std::vector<std::size_t>& in_block = by_block[static_cast<std::size_t>(kv_block)];
      if (in_block.empty()) {
        continue;
      }
      if (!queries) {
        queries =
            load_queries(problem, samples.batch, head, block, rows_of(q_rows), gradients, outputs);
      }
      const std::vector<std::int64_t> keys = rows_at(rows, in_block);
      const PairGradients pairs =
          pair_gradients(*queries, scale, read_rows(problem.k, samples.batch, samples.head, keys),
                         read_rows(problem.v, samples.batch, samples.head, keys));
      add_rows(scale * (pairs.ds.transpose() * queries->q), in_block, out.dk);
      add_rows(pairs.p.transpose() * queries->d_o, in_block, out.dv);
    }
  }
}

}  // namespace

Result<QueryRows> query_rows(const Problem& problem, std::span<const Row> rows,
                             const std::optional<OutputGradients>& gradients,
                             const std::optional<ForwardOutputs>& outputs) {
  if (Status status = check_all(problem, rows, problem.q, "q", gradients, outputs); !status.ok()) {
    return status;
  }
  const LayoutView& layout = problem.layout;
  const double scale = scale_of(problem);
  const auto head_dim = static_cast<std::size_t>(problem.q.shape[3]);
  QueryRows out;
  out.o.assign(rows.size() * head_dim, 0.0);
  out.lse.assign(rows.size(), -std::numeric_limits<double>::infinity());
  out.dq.assign(gradients ? rows.size() * head_dim : 0, 0.0);
  const std::vector<Group> groups = group_by_block(
      rows, [&](const Row& row) { return q_block_at(layout, row.batch, row.head, row.row); });
  parallel_for(
      static_cast<std::int64_t>(groups.size()), problem.threads, [&](std::int64_t i, std::int32_t) {
        const Group& group = groups[static_cast<std::size_t>(i)];
        const std::vector<std::int64_t> group_rows = rows_at(rows, group.samples);
        const Queries exact = load_queries(problem, group.batch, group.head, group.block,
                                           group_rows, gradients, std::nullopt);
        add_rows(exact.o, group.samples, out.o);
        for (std::size_t j = 0; j < group.samples.size(); ++j) {
          out.lse[group.samples[j]] = exact.lse[static_cast<Eigen::Index>(j)];
        }
        if (!gradients) {
          return;
        }
        const Queries queries = outputs ? load_queries(problem, group.batch, group.head,
                                                       group.block, group_rows, gradients, outputs)
                                        : exact;
        const std::int64_t kv_head = kv_head_of(problem, group.head);
        for (const std::int32_t block : list_of(layout, group.batch, group.head, group.block)) {
          const auto keys = rows_of(kv_block_rows(layout, group.batch, group.head, block));
          const Matrix k = read_rows(problem.k, group.batch, kv_head, keys);
          const Matrix v = read_rows(problem.v, group.batch, kv_head, keys);
          add_rows(scale * (pair_gradients(queries, scale, k, v).ds * k), group.samples, out.dq);
        }
      });
  return out;
}

Result<KeyRows> key_rows(const Problem& problem, std::span<const Row> rows,
                         const OutputGradients& gradients,
                         const std::optional<ForwardOutputs>& outputs) {
  if (Status status = check_all(problem, rows, problem.k, "k", gradients, outputs); !status.ok()) {
    return status;
  }
  const auto head_dim = static_cast<std::size_t>(problem.k.shape[3]);
  KeyRows out;
  out.dk.assign(rows.size() * head_dim, 0.0);
  out.dv.assign(rows.size() * head_dim, 0.0);
  const std::int64_t heads_of_group = problem.layout.heads / problem.k.shape[1];
  // One group a key/value head: each query head has blocks of its own.
  const std::vector<Group> groups =
      group_by_block(rows, [](const Row&) { return std::int64_t{0}; });
  parallel_for(static_cast<std::int64_t>(groups.size()), problem.threads,
               [&](std::int64_t i, std::int32_t) {
                 const Group& group = groups[static_cast<std::size_t>(i)];
                 for (std::int64_t j = 0; j < heads_of_group; ++j) {
                   add_key_gradients(problem, rows, group.head * heads_of_group + j, group,
                                     gradients, outputs, out);
                 }
               });
  return out;
}

}  // namespace kpage::oracle
