// Random gathers of rows and inversions of indices, and what any backend must make of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kpage/status.h"
#include "kpage/token_args.h"

#include "support/host_tensor.h"

namespace kpage::test {

// An index that is a slice of a larger tensor, shared by batch elements or heads by chance.
struct HostIndex {
  std::vector<std::byte> storage;
  IndexRef ref;

  HostIndex() = default;
  HostIndex(HostIndex&&) = default;
  HostIndex& operator=(HostIndex&&) = default;
};

struct GatherCase {
  HostTensor x;  // [B, H, S, D], random bits
  HostIndex index;
  HostTensor out;  // [B, H, R, D]
};
struct InvertCase {
  HostIndex index;    // [B, H, R]
  HostIndex inverse;  // [B, H, S], contiguous
};

// Run random cases, where the memory of tensors is the host's, and compare every bit with rows
// copied one by one. Nothing around `out` may have changed. Cases have sizes from 0 on, every
// dtype, head dimensions of any width, strides of any order; positions of rows, -1, and numbers
// that are no row.
void expect_gathers(const std::function<Status(GatherCase&, std::uint64_t seed)>& run);
void expect_inverts(const std::function<Status(InvertCase&, std::uint64_t seed)>& run);

}  // namespace kpage::test
