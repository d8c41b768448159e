// The backends of this build, as data. A run goes to the first one of its device that can take it.
#pragma once

#include <cstdint>
#include <span>

#include "kpage/attention_args.h"
#include "kpage/backends.h"
#include "kpage/status.h"

namespace kpage::api {

// One pass, forward or backward, of a backend.
template <class Args>
struct Pass {
  Status (*supports)(const Args&);  // ok, or what is missing
  std::int64_t (*workspace_bytes)(const Args&);
  Status (*run)(const Args&);
};

struct Backend {
  BackendInfo info;
  Pass<ForwardArgs> forward;
  Pass<BackwardArgs> backward;

  [[nodiscard]] const Pass<ForwardArgs>& pass(const ForwardArgs& /*args*/) const { return forward; }
  [[nodiscard]] const Pass<BackwardArgs>& pass(const BackwardArgs& /*args*/) const {
    return backward;
  }
};

[[nodiscard]] std::span<const Backend> all_backends();

// The backend that takes these arguments; or why each one that this build has does not.
[[nodiscard]] Result<const Backend*> choose(const ForwardArgs& args);
[[nodiscard]] Result<const Backend*> choose(const BackwardArgs& args);

}  // namespace kpage::api
