// What the property tests ask of a way to compute attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kpage/attention_args.h"
#include "kpage/plan.h"
#include "kpage/status.h"

#include "support/host_tensor.h"

namespace kpage::test {

// Tensors in host memory, guards around them included: a backend that runs elsewhere copies whole
// storages there and back.
struct ForwardRun {
  const Plan& plan;
  std::optional<double> scale;
  const HostTensor& q;
  const HostTensor& k;
  const HostTensor& v;
  HostTensor& o;
  HostRows& lse;
  std::int32_t threads;  // where the backend has any
};

struct BackwardRun {
  const Plan& plan;
  std::optional<double> scale;
  const HostTensor& q;
  const HostTensor& k;
  const HostTensor& v;
  const HostTensor& o;
  const HostRows& lse;
  const HostTensor& d_o;
  const HostRows* d_lse;  // null: no gradient comes through LSE
  HostTensor& dq;
  HostTensor& dk;
  HostTensor& dv;
  std::int32_t threads;
};

class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  // Of the tensors, for a case whose numbers have the precision of `half`.
  [[nodiscard]] virtual DType dtype(DType half) const = 0;
  [[nodiscard]] virtual Alignment alignment() const = 0;
  // Whether gradients of two runs are the same bits. Outputs are, of every backend.
  [[nodiscard]] virtual bool deterministic() const = 0;
  [[nodiscard]] virtual Status forward(const ForwardRun& run) = 0;
  [[nodiscard]] virtual Status backward(const BackwardRun& run) = 0;
};

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(CpuPolicy policy) : policy_(policy) {}

  [[nodiscard]] std::string name() const override;
  [[nodiscard]] DType dtype(DType half) const override;
  [[nodiscard]] Alignment alignment() const override { return {}; }
  [[nodiscard]] bool deterministic() const override { return true; }
  [[nodiscard]] Status forward(const ForwardRun& run) override;
  [[nodiscard]] Status backward(const BackwardRun& run) override;

 private:
  CpuPolicy policy_;
};

// The arguments of a run on the tensors where they are.
[[nodiscard]] ForwardArgs host_args(const ForwardRun& run);
[[nodiscard]] BackwardArgs host_args(const BackwardRun& run);

}  // namespace kpage::test
