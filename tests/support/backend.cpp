#include "support/backend.h"

#include "kpage/attention.h"

namespace kpage::test {

std::string CpuBackend::name() const {
  return policy_ == CpuPolicy::kExact ? "CPU, exact" : "CPU, as the kernels";
}

DType CpuBackend::dtype(DType half) const {
  return policy_ == CpuPolicy::kExact ? DType::kFloat64 : half;
}

Status CpuBackend::forward(const ForwardRun& run) {
  ForwardArgs args = host_args(run);
  args.cpu_policy = policy_;
  return attention_forward(args);
}

Status CpuBackend::backward(const BackwardRun& run) {
  BackwardArgs args = host_args(run);
  args.deterministic = true;
  args.cpu_policy = policy_;
  return attention_backward(args);
}

ForwardArgs host_args(const ForwardRun& run) {
  ForwardArgs args;
  args.q = run.q.ref;
  args.k = run.k.ref;
  args.v = run.v.ref;
  args.plan = run.plan.ref();
  args.scale = run.scale;
  args.o = run.o.ref;
  args.lse = run.lse.ref;
  args.threads = run.threads;
  return args;
}

BackwardArgs host_args(const BackwardRun& run) {
  BackwardArgs args;
  args.q = run.q.ref;
  args.k = run.k.ref;
  args.v = run.v.ref;
  args.o = run.o.ref;
  args.lse = run.lse.ref;
  args.d_o = run.d_o.ref;
  if (run.d_lse != nullptr) {
    args.d_lse = run.d_lse->ref;
  }
  args.plan = run.plan.ref();
  args.scale = run.scale;
  args.dq = run.dq.ref;
  args.dk = run.dk.ref;
  args.dv = run.dv.ref;
  args.threads = run.threads;
  return args;
}

}  // namespace kpage::test
