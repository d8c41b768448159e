#include "harness.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include <cuda_runtime_api.h>

#include "kpage/geometry.h"
#include "kpage/plan.h"

#include "base/elements.h"
#include "kernels/common/check.h"
#include "kernels/sm90/forward/launch.h"
#include "oracle/accuracy.h"
#include "oracle/blocks.h"
#include "oracle/oracle.h"
#include "random_fill.h"

namespace kpage::bench {
namespace {

constexpr std::int32_t kWarmUp = 3;

// Device memory, freed with its owner.
class DeviceMemory {
 public:
  [[nodiscard]] Status allocate(std::int64_t bytes) {
    void* data = nullptr;
    KPAGE_CUDA_TRY(cudaMalloc(&data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))));
    data_.reset(static_cast<std::byte*>(data));
    return {};
  }
  [[nodiscard]] std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const { cudaFree(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

TensorRef contiguous(void* data, DType dtype, Device device,
                     const std::array<std::int64_t, 4>& shape) {
  return {data,
          dtype,
          device,
          shape,
          {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}};
}

std::int64_t last_row(std::span<const std::int32_t> sizes, std::span<const std::int32_t> offsets) {
  std::int64_t end = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) {
      end = std::max<std::int64_t>(end, std::int64_t{offsets[i]} + sizes[i]);
    }
  }
  return end;
}

// Offsets of a partition; by default block b starts at row 128 * b.
std::vector<std::int32_t> offsets_or_default(const std::vector<std::int32_t>& sizes,
                                             const std::vector<std::int32_t>& offsets,
                                             std::int32_t blocks) {
  if (!offsets.empty()) {
    return offsets;
  }
  std::vector<std::int32_t> made(sizes.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(blocks)) * kBlockRows;
  }
  return made;
}

std::vector<std::byte> download(const void* data, std::int64_t bytes) {
  std::vector<std::byte> host(static_cast<std::size_t>(bytes));
  cudaMemcpy(host.data(), data, host.size(), cudaMemcpyDeviceToHost);
  return host;
}

Times summary(std::vector<float> ms) {
  std::ranges::sort(ms);
  return {ms[ms.size() / 2], ms.front(), ms.back()};
}

// Everything that a layout's runs need, on the device.
class Session {
 public:
  [[nodiscard]] Status open(const std::string& name, const Options& options) {
    Result<Layout> layout = named_layout(name, options.seed);
    if (!layout.ok()) {
      return layout.status();
    }
    layout_ = std::move(layout).value();
    Result<Plan> plan = Plan::build(layout_.view());
    if (!plan.ok()) {
      return plan.status();
    }
    stats_ = plan.value().stats();
    const std::int64_t q_rows = last_row(
        layout_.q_sizes, offsets_or_default(layout_.q_sizes, layout_.q_offsets, layout_.q_blocks));
    const std::int64_t kv_rows =
        layout_.shared_partition
            ? q_rows
            : last_row(layout_.kv_sizes,
                       offsets_or_default(layout_.kv_sizes, layout_.kv_offsets, layout_.kv_blocks));
    const Device device{DeviceType::kCuda, 0};
    const std::array<std::int64_t, 4> q_shape{layout_.batch, layout_.heads, q_rows,
                                              options.head_dim};
    const std::array<std::int64_t, 4> kv_shape{layout_.batch, layout_.heads, kv_rows,
                                               options.head_dim};
    std::uint64_t seed = options.seed;
    const auto make = [&](DeviceMemory& memory, TensorRef& tensor,
                          const std::array<std::int64_t, 4>& shape) -> Status {
      const std::int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
      if (Status status = memory.allocate(count * size_of(options.dtype)); !status.ok()) {
        return status;
      }
      tensor = contiguous(memory.data(), options.dtype, device, shape);
      KPAGE_CUDA_TRY(fill_normal(memory.data(), count, options.dtype, ++seed, nullptr));
      return {};
    };
    for (Status status : {make(q_, args_.q, q_shape), make(k_, args_.k, kv_shape),
                          make(v_, args_.v, kv_shape), make(o_, args_.o, q_shape)}) {
      if (!status.ok()) {
        return status;
      }
    }
    const std::int64_t lse_count = q_shape[0] * q_shape[1] * q_rows;
    for (Status status : {lse_.allocate(lse_count * static_cast<std::int64_t>(sizeof(float))),
                          plan_.allocate(static_cast<std::int64_t>(plan.value().forward().size())),
                          workspace_.allocate(kernels::sm90::forward_workspace_bytes(args_))}) {
      if (!status.ok()) {
        return status;
      }
    }
    KPAGE_CUDA_TRY(cudaMemcpy(plan_.data(), plan.value().forward().data(),
                              plan.value().forward().size(), cudaMemcpyHostToDevice));
    args_.lse = {reinterpret_cast<float*>(lse_.data()),
                 device,
                 {q_shape[0], q_shape[1], q_rows},
                 {q_shape[1] * q_rows, q_rows, 1}};
    args_.plan = {plan.value().shape(), device, plan_.data(), nullptr};
    args_.workspace = workspace_.data();
    args_.workspace_bytes = kernels::sm90::forward_workspace_bytes(args_);
    return kernels::sm90::can_forward(args_);
  }

  [[nodiscard]] Status run() const { return kernels::sm90::forward(args_); }

  // The time of each of `count` calls. `pause_ms` before each lets the clock recover.
  [[nodiscard]] Result<Times> time(std::int32_t count, std::int32_t pause_ms) const {
    std::vector<std::pair<cudaEvent_t, cudaEvent_t>> events(static_cast<std::size_t>(count));
    for (auto& [begin, end] : events) {
      KPAGE_CUDA_TRY(cudaEventCreate(&begin));
      KPAGE_CUDA_TRY(cudaEventCreate(&end));
    }
    for (const auto& [begin, end] : events) {
      if (pause_ms > 0) {
        KPAGE_CUDA_TRY(cudaDeviceSynchronize());
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
      }
      KPAGE_CUDA_TRY(cudaEventRecord(begin));
      if (Status status = run(); !status.ok()) {
        return status;
      }
      KPAGE_CUDA_TRY(cudaEventRecord(end));
    }
    KPAGE_CUDA_TRY(cudaDeviceSynchronize());
    std::vector<float> ms(events.size());
    for (std::size_t i = 0; i < events.size(); ++i) {
      KPAGE_CUDA_TRY(cudaEventElapsedTime(&ms[i], events[i].first, events[i].second));
      cudaEventDestroy(events[i].first);
      cudaEventDestroy(events[i].second);
    }
    return summary(std::move(ms));
  }

  // Errors of O and LSE over `count` valid rows spread over heads and blocks.
  [[nodiscard]] Status check(std::int32_t count, double& error, double& lse_error) const {
    const LayoutView view = layout_.view();
    std::vector<oracle::Row> rows;
    const std::int64_t walks = std::int64_t{layout_.batch} * layout_.heads * layout_.q_blocks;
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int64_t walk = walks * i / count;
      const std::int64_t batch_head = walk / layout_.q_blocks;
      const std::int64_t batch = batch_head / layout_.heads;
      const std::int64_t head = batch_head % layout_.heads;
      const oracle::RowRange range =
          oracle::q_block_rows(view, batch, head, walk % layout_.q_blocks);
      if (range.count > 0) {
        rows.push_back({batch, head, range.first + i * 37 % range.count});
      }
    }
    const auto host_tensor = [](const TensorRef& tensor, std::vector<std::byte>& bytes) {
      const std::int64_t count_of =
          tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
      bytes = download(tensor.data, count_of * size_of(tensor.dtype));
      return contiguous(bytes.data(), tensor.dtype, {}, tensor.shape);
    };
    std::array<std::vector<std::byte>, 4> bytes;
    const oracle::Problem problem{view,
                                  host_tensor(args_.q, bytes[0]),
                                  host_tensor(args_.k, bytes[1]),
                                  host_tensor(args_.v, bytes[2]),
                                  args_.scale,
                                  0};
    const TensorRef o = host_tensor(args_.o, bytes[3]);
    const std::int64_t q_rows = args_.q.shape[2];
    const std::vector<std::byte> lse_bytes =
        download(args_.lse.data, args_.q.shape[0] * args_.q.shape[1] * q_rows *
                                     static_cast<std::int64_t>(sizeof(float)));
    const auto* lse = reinterpret_cast<const float*>(lse_bytes.data());
    KPAGE_CUDA_TRY(cudaGetLastError());
    const Result<oracle::QueryRows> want = oracle::query_rows(problem, rows);
    if (!want.ok()) {
      return want.status();
    }
    oracle::Error o_error;
    lse_error = 0;
    const std::int64_t head_dim = o.shape[3];
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t at = (rows[i].batch * layout_.heads + rows[i].head) * q_rows + rows[i].row;
      lse_error =
          std::max(lse_error, oracle::lse_error(static_cast<double>(lse[at]), want.value().lse[i]));
      for (std::int64_t d = 0; d < head_dim; ++d) {
        o_error.add(
            read_element(o.data, o.dtype, at * head_dim + d),
            want.value().o[i * static_cast<std::size_t>(head_dim) + static_cast<std::size_t>(d)]);
      }
    }
    error = o_error.relative_l2();
    return {};
  }

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const PlanStats& stats() const { return stats_; }

 private:
  Layout layout_;
  PlanStats stats_;
  DeviceMemory q_, k_, v_, o_, lse_, plan_, workspace_;
  ForwardArgs args_;
};

}  // namespace

Result<Row> bench_forward(const std::string& layout, const Options& options) {
  Session session;
  if (Status status = session.open(layout, options); !status.ok()) {
    return status;
  }
  Row row;
  row.layout = layout;
  row.heads = session.layout().heads;
  row.useful_pairs = session.stats().useful_pairs;
  row.executed_pairs = session.stats().routed_tail_pairs;
  row.head_dim = options.head_dim;
  if (Status status = session.run(); !status.ok()) {
    return status;
  }
  KPAGE_CUDA_TRY(cudaDeviceSynchronize());
  if (options.samples > 0) {
    if (Status status = session.check(options.samples, row.error, row.lse_error); !status.ok()) {
      return status;
    }
  }
  for (std::int32_t i = 0; i < kWarmUp; ++i) {
    if (Status status = session.run(); !status.ok()) {
      return status;
    }
  }
  for (const auto& [times, pause_ms] :
       {std::pair{&row.rested, options.pause_ms}, std::pair{&row.sustained, 0}}) {
    Result<Times> measured = session.time(options.iterations, pause_ms);
    if (!measured.ok()) {
      return measured.status();
    }
    *times = measured.value();
  }
  return row;
}

}  // namespace kpage::bench
