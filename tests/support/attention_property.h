// The properties that every backend must have on every layout: one body for all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "support/backend.h"
#include "support/random_case.h"

namespace kpage::test {

// Checks a case, with GoogleTest's expectations:
// - its plan builds, is valid, and executes the pairs of the layout and no others, each once;
// - outputs and gradients are as near the oracle's as the contract asks;
// - padding is exactly zero in outputs (LSE: -inf), whatever NaN and infinities it holds in inputs,
//   and outputs do not depend on it by a bit, nor on the number of threads;
// - nothing is written but the outputs, and those up to their last element.
void check_case(const Case& c, const std::vector<Backend*>& backends);

// Checks the cases of shard `shard` of `shards` of `count` seeds, or of KPAGE_PROPERTY_COUNT where
// the environment sets it. Where it sets KPAGE_PROPERTY_SEED, that seed alone, in shard 0.
void check_shard(std::int64_t shard, std::int64_t shards, std::int64_t count,
                 const std::vector<Backend*>& backends);

}  // namespace kpage::test
