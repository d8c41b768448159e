#include "checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "base/elements.h"
#include "base/parallel.h"
#include "failure.h"
#include "oracle/accuracy.h"
#include "oracle/oracle.h"
#include "progress.h"

namespace kpage::cli {
namespace {

// A key row costs more: it needs every query block that attends to it.
constexpr std::int64_t kQueryRowsPerKeyRow = 4;
constexpr double kRealGradients = 2;

// Valid rows of the heads of one side, drawn evenly over heads and then over rows.
std::vector<oracle::Row> draw_rows(const PartitionView& side, const LayoutView& layout,
                                   std::int64_t group, std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(bound));
  };
  const std::int64_t scopes = side.scope == PartitionScope::kShared ? 1
                              : side.scope == PartitionScope::kPerHead
                                  ? layout.heads
                                  : layout.batch * layout.heads;
  const std::int64_t valid_rows =
      std::accumulate(side.sizes, side.sizes + scopes * side.blocks, std::int64_t{0}) *
      (layout.batch * layout.heads / scopes) / group;
  count = std::min(count, valid_rows);
  std::vector<oracle::Row> rows;
  std::set<std::array<std::int64_t, 3>> drawn;
  for (std::int64_t tries = 0; tries < 16 * count && std::ssize(rows) < count; ++tries) {
    const std::int64_t batch = below(layout.batch);
    const std::int64_t head = below(layout.heads);
    const std::int64_t scope = side.scope == PartitionScope::kShared ? 0
                               : side.scope == PartitionScope::kPerHead
                                   ? head
                                   : batch * layout.heads + head;
    const std::int64_t block = below(side.blocks);
    const std::int64_t at = scope * side.blocks + block;
    if (side.sizes[at] == 0) {
      continue;
    }
    const std::int64_t offset = side.offsets != nullptr ? side.offsets[at] : kBlockRows * block;
    const oracle::Row row{batch, head / group, offset + below(side.sizes[at])};
    if (drawn.insert({row.batch, row.head, row.row}).second) {
      rows.push_back(row);
    }
  }
  return rows;
}

oracle::Error compare(const TensorRef& got, const std::vector<oracle::Row>& rows,
                      const std::vector<double>& want) {
  const std::int64_t head_dim = got.shape[3];
  oracle::Error error;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t start = row_start(got, rows[i].batch, rows[i].head, rows[i].row);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      error.add(read_element(got.data, got.dtype, start + d),
                want[i * static_cast<std::size_t>(head_dim) + static_cast<std::size_t>(d)]);
    }
  }
  return error;
}

double norm_of_row(const TensorRef& t, std::int64_t start) {
  double squares = 0;
  for (std::int64_t d = 0; d < t.shape[3]; ++d) {
    const double value = read_element(t.data, t.dtype, start + d);
    squares += value * value;
  }
  return std::sqrt(squares);
}

CheckedError judged(const std::string& name, const oracle::Error& error, double limit,
                    double least_cosine) {
  CheckedError checked{name, error.relative_l2(), limit, error.cosine(), false};
  checked.passed = checked.error <= limit && checked.cosine >= least_cosine;
  return checked;
}

// The largest Euclidean norm of a key row of any head.
double largest_key(const TensorRef& k) {
  std::vector<double> norms(static_cast<std::size_t>(k.shape[0] * k.shape[1]));
  parallel_for(std::ssize(norms), 0, [&](std::int64_t slice, std::int32_t) {
    double& largest = norms[static_cast<std::size_t>(slice)];
    for (std::int64_t row = 0; row < k.shape[2]; ++row) {
      const std::int64_t start = row_start(k, slice / k.shape[1], slice % k.shape[1], row);
      largest = std::max(largest, norm_of_row(k, start));
    }
  });
  return *std::max_element(norms.begin(), norms.end());
}

CheckedError judged_lse(RowValues& lse, const RunInputs& inputs,
                        const std::vector<oracle::Row>& rows, const std::vector<double>& want,
                        InputKind kind) {
  const RowsRef got = lse.ref();
  const double scale = 1 / std::sqrt(static_cast<double>(inputs.q.shape[3]));
  const double key = kind == InputKind::kReal ? largest_key(inputs.k) : 0;
  CheckedError checked{"lse", 0, oracle::lse_limit(0), 1, true};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const oracle::Row& row = rows[i];
    const auto value = static_cast<double>(got.data[row_start(got, row.batch, row.head, row.row)]);
    const double difference = value == want[i] ? 0.0 : std::abs(value - want[i]);
    // No score of the row is larger than this, nor are the sums on the way to it.
    const double score =
        scale * key * norm_of_row(inputs.q, row_start(inputs.q, row.batch, row.head, row.row));
    const double limit = std::max(std::isfinite(want[i]) ? oracle::lse_limit(want[i]) : 0,
                                  oracle::lse_limit(0) * score);
    if (!(difference <= checked.error)) {  // NaN too
      checked.error = difference;
    }
    checked.limit = std::max(checked.limit, limit);
    checked.passed = checked.passed && difference <= limit;
  }
  return checked;
}

}  // namespace

bool CheckResult::passed() const {
  return std::all_of(errors.begin(), errors.end(),
                     [](const CheckedError& error) { return error.passed; });
}

CheckResult check_against_oracle(const LayoutView& layout, const RunInputs& inputs,
                                 RunOutputs& outputs, std::int64_t rows, std::uint64_t seed,
                                 InputKind kind, const Console& console) {
  oracle::Problem problem;
  problem.layout = layout;
  problem.q = inputs.q;
  problem.k = inputs.k;
  problem.v = inputs.v;
  CheckResult result;
  result.kind = kind;
  const Progress progress(console, "oracle");
  result.time_ms = time_of([&] {
    std::optional<oracle::OutputGradients> gradients;
    if (inputs.d_o) {
      gradients.emplace();
      gradients->d_o = *inputs.d_o;
    }
    std::optional<oracle::ForwardOutputs> given;
    if (kind == InputKind::kReal) {
      given = oracle::ForwardOutputs{outputs.o.ref(), outputs.lse.ref()};
    }
    const std::vector<oracle::Row> queries = draw_rows(layout.q, layout, 1, rows, seed);
    const oracle::QueryRows query =
        value_of(oracle::query_rows(problem, queries, gradients, given));
    result.query_rows = std::ssize(queries);
    // Outputs are rounded to the dtype even where the arithmetic before was exact.
    const DType dtype = inputs.q.dtype;
    result.errors.push_back(
        judged("o", compare(outputs.o.ref(), queries, query.o), oracle::forward_limit(dtype), 0));
    result.errors.push_back(judged_lse(outputs.lse, inputs, queries, query.lse, kind));
    if (!gradients) {
      return;
    }
    const double limit = oracle::gradient_limit(dtype, oracle::shortest_list(layout)) *
                         (kind == InputKind::kReal ? kRealGradients : 1);
    const double cosine = oracle::gradient_cosine(limit);
    result.errors.push_back(
        judged("dq", compare(outputs.dq.ref(), queries, query.dq), limit, cosine));
    const std::int64_t group = inputs.q.shape[1] / inputs.k.shape[1];
    const std::vector<oracle::Row> keys = draw_rows(
        layout.kv, layout, group, std::max<std::int64_t>(1, rows / kQueryRowsPerKeyRow), seed + 1);
    const oracle::KeyRows key = value_of(oracle::key_rows(problem, keys, *gradients, given));
    result.key_rows = std::ssize(keys);
    result.errors.push_back(judged("dk", compare(outputs.dk.ref(), keys, key.dk), limit, cosine));
    result.errors.push_back(judged("dv", compare(outputs.dv.ref(), keys, key.dv), limit, cosine));
  });
  return result;
}

std::string limit_note(const CheckedError& error) {
  std::string note = "limit " + scientific(error.limit);
  if (error.name.starts_with("d")) {
    note += ", cosine " + fixed(error.cosine, 7);
  }
  return note + (error.passed ? "" : "  EXCEEDED");
}

void add_errors(Page& page, const CheckResult& result) {
  page.json["error"] = result.errors.empty() ? Json(nullptr) : Json(result.errors.front().error);
  page.json["errors"] = Json::object();
  page.section("Error against the fp64 oracle");
  for (const CheckedError& error : result.errors) {
    const bool is_lse = error.name == "lse";
    page.row(error.name + (is_lse ? ", absolute" : ", relative l2"), scientific(error.error),
             limit_note(error));
    page.json["errors"][error.name] = {
        {"error", error.error}, {"limit", error.limit}, {"passed", error.passed}};
  }
  if (result.key_rows > 0) {
    page.row("gradients compared with",
             result.kind == InputKind::kRandom ? "exact ones" : "those of the run's o and lse");
  }
  page.row("rows compared",
           grouped(result.query_rows) + " query" +
               (result.key_rows > 0 ? ", " + grouped(result.key_rows) + " key" : ""),
           "in " + duration(result.time_ms));
}

}  // namespace kpage::cli
