// The CUDA backends for the property tests: on copies of whole storages, each ending where mapped
// memory ends.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kpage/attention.h"

#include "gpu/device_copy.h"
#include "support/backend.h"

namespace kpage::test {

class CudaBackend : public Backend {
 public:
  // Whether gradients are asked to be.
  explicit CudaBackend(bool deterministic) : deterministic_(deterministic) {}

  [[nodiscard]] std::string name() const override {
    return deterministic_ ? "CUDA, deterministic" : "CUDA, in any order";
  }
  [[nodiscard]] DType dtype(DType half) const override { return half; }
  [[nodiscard]] Alignment alignment() const override { return {8, 64}; }
  [[nodiscard]] bool deterministic() const override { return deterministic_; }

  [[nodiscard]] Status forward(const ForwardRun& run) override {
    Mirror mirror(run.plan);
    ForwardArgs args = host_args(run);
    args.q = mirror.in(run.q);
    args.k = mirror.in(run.k);
    args.v = mirror.in(run.v);
    args.o = mirror.out(run.o);
    args.lse = mirror.out(run.lse);
    args.plan = mirror.plan();
    args.workspace_bytes = forward_workspace_bytes(args);
    args.workspace = mirror.workspace(args.workspace_bytes);
    return mirror.finish(attention_forward(args));
  }

  [[nodiscard]] Status backward(const BackwardRun& run) override {
    Mirror mirror(run.plan);
    BackwardArgs args = host_args(run);
    args.q = mirror.in(run.q);
    args.k = mirror.in(run.k);
    args.v = mirror.in(run.v);
    args.o = mirror.in(run.o);
    args.lse = mirror.in(run.lse);
    args.d_o = mirror.in(run.d_o);
    if (run.d_lse != nullptr) {
      args.d_lse = mirror.in(*run.d_lse);
    }
    args.dq = mirror.out(run.dq);
    args.dk = mirror.out(run.dk);
    args.dv = mirror.out(run.dv);
    args.plan = mirror.plan();
    args.deterministic = deterministic_;
    args.workspace_bytes = backward_workspace_bytes(args);
    args.workspace = mirror.workspace(args.workspace_bytes);
    return mirror.finish(attention_backward(args));
  }

 private:
  // The device's side of one run.
  class Mirror {
   public:
    explicit Mirror(const Plan& plan)
        : shape_(plan.shape()),
          forward_(add({plan.forward().begin(), plan.forward().end()})),
          backward_(add({plan.backward().begin(), plan.backward().end()})) {}

    [[nodiscard]] PlanRef plan() const { return {shape_, device(), forward_, backward_}; }

    TensorRef in(const HostTensor& host) {
      TensorRef ref = place(host);
      inputs_.push_back({copies_.back().get(), &host.storage});
      return ref;
    }
    RowsRef in(const HostRows& host) {
      RowsRef ref = place(host);
      inputs_.push_back({copies_.back().get(), &host.storage});
      return ref;
    }
    // Outputs begin as the host has them and come back whole, guards included.
    TensorRef out(HostTensor& host) {
      TensorRef ref = place(host);
      outputs_.push_back({copies_.back().get(), &host.storage});
      return ref;
    }
    RowsRef out(HostRows& host) {
      RowsRef ref = place(host);
      outputs_.push_back({copies_.back().get(), &host.storage});
      return ref;
    }
    // Of any content before a run.
    std::byte* workspace(std::int64_t bytes) {
      return add(std::vector<std::byte>(static_cast<std::size_t>(bytes), std::byte{0xff}));
    }

    Status finish(Status status) {
      if (!status.ok()) {
        return status;
      }
      if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess) {
        return {ErrorCode::kCuda, cudaGetErrorString(error)};
      }
      for (const Copied<std::vector<std::byte>>& output : outputs_) {
        output.device->download(*output.host);
      }
      for (const Copied<const std::vector<std::byte>>& input : inputs_) {
        std::vector<std::byte> after(input.host->size());
        input.device->download(after);
        EXPECT_TRUE(after == *input.host) << "an input was written";
      }
      return status;
    }

   private:
    template <class Storage>
    struct Copied {
      const DeviceCopy* device;
      Storage* host;
    };

    static Device device() { return {DeviceType::kCuda, 0}; }
    std::byte* add(const std::vector<std::byte>& host) {
      copies_.push_back(std::make_unique<DeviceCopy>(host));
      return copies_.back()->data();
    }
    TensorRef place(const HostTensor& host) {
      TensorRef ref = host.ref;
      ref.data = add(host.storage) + host.offset;
      ref.device = device();
      return ref;
    }
    RowsRef place(const HostRows& host) {
      RowsRef ref = host.ref;
      ref.data = reinterpret_cast<float*>(add(host.storage) + host.offset);
      ref.device = device();
      return ref;
    }

    std::vector<std::unique_ptr<DeviceCopy>> copies_;
    std::vector<Copied<const std::vector<std::byte>>> inputs_;
    std::vector<Copied<std::vector<std::byte>>> outputs_;
    PlanShape shape_;
    const std::byte* forward_;
    const std::byte* backward_;
  };

  bool deterministic_;
};

}  // namespace kpage::test
