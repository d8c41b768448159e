#include "kpage/attention.h"

#include "api/backends.h"
#include "api/checks.h"

namespace kpage {
namespace {

template <class Args>
Status run(const Args& args) {
  if (Status status = api::check(args); !status.ok()) {
    return status;
  }
  const Result<const api::Backend*> backend = api::choose(args);
  if (!backend.ok()) {
    return backend.status();
  }
  const api::Pass pass = backend.value()->pass(args);
  if (Status status =
          api::check_workspace(args.workspace, args.workspace_bytes, pass.workspace_bytes(args));
      !status.ok()) {
    return status;
  }
  return pass.run(args);
}

// Asked before outputs and workspace exist, so of the arguments nothing but sizes, dtype, device
// and plan shape may be set, and nothing is checked but what the backend checks.
template <class Args>
std::int64_t workspace_bytes(const Args& args) {
  const Result<const api::Backend*> backend = api::choose(args);
  return backend.ok() ? backend.value()->pass(args).workspace_bytes(args) : 0;
}

}  // namespace

Status attention_forward(const ForwardArgs& args) { return run(args); }
Status attention_backward(const BackwardArgs& args) { return run(args); }
std::int64_t forward_workspace_bytes(const ForwardArgs& args) { return workspace_bytes(args); }
std::int64_t backward_workspace_bytes(const BackwardArgs& args) { return workspace_bytes(args); }

}  // namespace kpage
