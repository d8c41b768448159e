#include "attention_run.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kpage/attention.h"

#include "cuda_memory.h"
#include "failure.h"
#include "progress.h"

namespace kpage::cli {
namespace {

// Backward has five matrix products for forward's two.
constexpr double kBackwardOverForward = 2.5;

RunOutputs outputs_for(const RunInputs& inputs) {
  const auto like = [](const TensorRef& t) {
    return Tensor(t.dtype, t.shape[0], t.shape[1], t.shape[2], t.shape[3]);
  };
  RunOutputs outputs;
  outputs.o = like(inputs.q);
  outputs.lse = RowValues(inputs.q.shape[0], inputs.q.shape[1], inputs.q.shape[2]);
  if (inputs.d_o) {
    outputs.dq = like(inputs.q);
    outputs.dk = like(inputs.k);
    outputs.dv = like(inputs.v);
  }
  return outputs;
}

double median_time(const RunOptions& options, const std::function<double()>& timed) {
  std::vector<double> times;
  for (std::int32_t i = 0; i < std::max(options.repeats, 1); ++i) {
    times.push_back(timed());
  }
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

void run_on_cpu(const PlanRef& plan, const RunInputs& inputs, const RunOptions& options,
                RunOutputs& outputs, const Console& console) {
  ForwardArgs forward;
  forward.q = inputs.q;
  forward.k = inputs.k;
  forward.v = inputs.v;
  forward.plan = plan;
  forward.o = outputs.o.ref();
  forward.lse = outputs.lse.ref();
  forward.cpu_policy = options.policy;
  forward.threads = options.threads;
  {
    const Progress progress(console, "forward");
    outputs.forward_ms =
        median_time(options, [&] { return time_of([&] { check(attention_forward(forward)); }); });
  }
  if (!inputs.d_o) {
    return;
  }
  BackwardArgs backward;
  backward.q = inputs.q;
  backward.k = inputs.k;
  backward.v = inputs.v;
  backward.o = outputs.o.ref();
  backward.lse = outputs.lse.ref();
  backward.d_o = *inputs.d_o;
  backward.plan = plan;
  backward.dq = outputs.dq.ref();
  backward.dk = outputs.dk.ref();
  backward.dv = outputs.dv.ref();
  backward.deterministic = options.deterministic;
  backward.cpu_policy = options.policy;
  backward.threads = options.threads;
  const Progress progress(console, "backward",
                          kBackwardOverForward * outputs.forward_ms * options.repeats);
  outputs.backward_ms =
      median_time(options, [&] { return time_of([&] { check(attention_backward(backward)); }); });
}

// A tensor's copy in device memory.
struct DeviceTensor {
  explicit DeviceTensor(const Tensor& host) : memory(host.bytes()) {
    ref = contiguous(memory.data(), host.type, host.shape);
    ref.device = {DeviceType::kCuda, 0};
  }
  DeviceMemory memory;
  TensorRef ref;
};

// The first run of a kernel loads it: it is run once before those that are timed.
double device_time(const RunOptions& options, const std::function<Status()>& call) {
  check(call());
  DeviceTimer timer;
  return median_time(options, [&] {
    timer.start();
    check(call());
    return timer.stop();
  });
}

void run_on_cuda(const Plan& plan, const RunInputs& inputs, const RunOptions& options,
                 RunOutputs& outputs) {
  const DeviceMemory forward_blob(plan.forward());
  const DeviceMemory backward_blob(plan.backward());
  const Device device{DeviceType::kCuda, 0};
  const PlanRef ref{plan.shape(), device, forward_blob.data(),
                    plan.has_backward() ? backward_blob.data() : nullptr};
  const auto on_device = [](const TensorRef& t) {
    std::vector<std::int32_t> rows(static_cast<std::size_t>(t.shape[2]));
    for (std::size_t row = 0; row < rows.size(); ++row) {
      rows[row] = static_cast<std::int32_t>(row);
    }
    return DeviceTensor(gather_rows(t, rows));
  };
  const DeviceTensor q = on_device(inputs.q);
  const DeviceTensor k = on_device(inputs.k);
  const DeviceTensor v = on_device(inputs.v);
  DeviceTensor o(outputs.o);
  DeviceMemory lse(std::as_bytes(std::span(outputs.lse.data)));
  RowsRef lse_ref = outputs.lse.ref();
  lse_ref.data = reinterpret_cast<float*>(lse.data());
  lse_ref.device = device;

  ForwardArgs forward;
  forward.q = q.ref;
  forward.k = k.ref;
  forward.v = v.ref;
  forward.plan = ref;
  forward.o = o.ref;
  forward.lse = lse_ref;
  forward.workspace_bytes = forward_workspace_bytes(forward);
  const DeviceMemory forward_workspace(forward.workspace_bytes);
  forward.workspace = forward_workspace.data();
  outputs.forward_ms = device_time(options, [&] { return attention_forward(forward); });
  o.memory.copy_to(outputs.o.data);
  lse.copy_to(std::as_writable_bytes(std::span(outputs.lse.data)));
  if (!inputs.d_o) {
    return;
  }
  const DeviceTensor d_o = on_device(*inputs.d_o);
  DeviceTensor dq(outputs.dq);
  DeviceTensor dk(outputs.dk);
  DeviceTensor dv(outputs.dv);
  BackwardArgs backward;
  backward.q = q.ref;
  backward.k = k.ref;
  backward.v = v.ref;
  backward.o = o.ref;
  backward.lse = lse_ref;
  backward.d_o = d_o.ref;
  backward.plan = ref;
  backward.dq = dq.ref;
  backward.dk = dk.ref;
  backward.dv = dv.ref;
  backward.deterministic = options.deterministic;
  backward.workspace_bytes = backward_workspace_bytes(backward);
  const DeviceMemory backward_workspace(backward.workspace_bytes);
  backward.workspace = backward_workspace.data();
  outputs.backward_ms = device_time(options, [&] { return attention_backward(backward); });
  dq.memory.copy_to(outputs.dq.data);
  dk.memory.copy_to(outputs.dk.data);
  dv.memory.copy_to(outputs.dv.data);
}

}  // namespace

DeviceType parse_device(const std::string& text) {
  if (text == "cpu") {
    return DeviceType::kCpu;
  }
  if (text != "cuda") {
    throw bad_input("--device: expected cpu or cuda, got " + text);
  }
  const std::string why_not = why_no_cuda();
  if (!why_not.empty()) {
    throw bad_input("--device cuda: " + why_not);
  }
  return DeviceType::kCuda;
}

void check_threads(std::int32_t threads) {
  if (threads < 0) {
    throw bad_input("--threads: expected a number from 0, got " + std::to_string(threads));
  }
}

RunOutputs run_attention(const Plan& plan, const RunInputs& inputs, const RunOptions& options,
                         const Console& console) {
  RunOutputs outputs = outputs_for(inputs);
  if (options.device == DeviceType::kCuda) {
    const Progress progress(console, "on the GPU");
    run_on_cuda(plan, inputs, options, outputs);
  } else {
    run_on_cpu(plan.ref(), inputs, options, outputs, console);
  }
  return outputs;
}

}  // namespace kpage::cli
