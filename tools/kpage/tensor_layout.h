// A layout from tensors in a file, under the names of kpage.plan() and NVIDIA's block-sparse
// attention.
#pragma once

#include <iosfwd>

#include "kpage/layout.h"

#include "safetensors.h"

namespace kpage::cli {

// Reads q2k_block_index [B, H, NQ, Kmax], q2k_block_nums [B, H, NQ] and q_block_sizes, and where
// present kv_block_sizes, q_block_offsets, kv_block_offsets; each [N], [H, N] or [B, H, N]. Checks
// dtypes and shapes; the values are checked by whoever compiles the layout.
[[nodiscard]] Layout read_layout(const SafetensorsFile& file);

// Writes a layout under the same names.
void write_layout(std::ostream& file, const Layout& layout);

}  // namespace kpage::cli
