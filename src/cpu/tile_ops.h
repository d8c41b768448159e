// The arithmetic of the backend on dense tiles, in fp32 or fp64, once for each instruction set.
//
// No inline functions here: files compiled for a wider instruction set include this header, and the
// linker could keep their copy of a shared inline function for code that must run on any CPU.
#pragma once

#include <cstdint>

#include "kpage/types.h"

namespace kpage::cpu {

// One tile of a query block's walk, with its online softmax.
template <class Real>
struct ForwardTile {
  std::int32_t rows = 0;     // query rows, whole pages; rows that are not valid hold zeros
  std::int32_t columns = 0;  // keys, whole pages; rows of k and v that are not valid hold zeros
  std::int32_t head_dim = 0;
  Real scale = 0;                        // of the scores
  DType round_to = DType::kFloat32;      // of the probabilities before they meet v
  const std::uint32_t* masks = nullptr;  // [columns / 32]: which keys count; null: all
  const Real* q = nullptr;               // [rows, head_dim]
  const Real* k = nullptr;               // [columns, head_dim]
  const Real* v = nullptr;               // [columns, head_dim]
  Real* p = nullptr;                     // [columns, rows], scratch
  Real* rescale = nullptr;               // [rows], scratch
  Real* row_max = nullptr;               // [rows], in and out; -inf before the first tile
  Real* row_sum = nullptr;               // [rows], in and out
  Real* o = nullptr;                     // [rows, head_dim], in and out: not yet divided by row_sum
};

// One step of an owner's reverse walk: query pages against the owner's keys.
template <class Real>
struct BackwardStep {
  std::int32_t rows = 0;     // query rows, whole pages; rows that are not valid hold zeros
  std::int32_t columns = 0;  // keys, whole pages; rows of k and v that are not valid hold zeros
  std::int32_t head_dim = 0;
  Real scale = 0;
  DType round_to = DType::kFloat32;      // of P and dS before they are multiplied
  const std::uint32_t* masks = nullptr;  // [columns / 32]: which keys count; null: all
  std::uint64_t adjacency = 0;           // bit (query page * slots + key page): not masked
  std::int32_t slots = 0;
  bool masked_pairs = false;    // whether any page pair of the step is masked
  const Real* q = nullptr;      // [rows, head_dim]
  const Real* d_o = nullptr;    // [rows, head_dim]
  const Real* lse = nullptr;    // [rows]; +inf in rows that are not valid
  const Real* delta = nullptr;  // [rows]; 0 there
  const Real* k = nullptr;      // [columns, head_dim]
  const Real* v = nullptr;      // [columns, head_dim]
  Real* p = nullptr;            // [columns, rows], scratch
  Real* ds = nullptr;           // [columns, rows], scratch
  Real* dq = nullptr;           // [rows, head_dim], out; to be multiplied by scale, as is dk
  Real* dk = nullptr;           // [columns, head_dim], in and out
  Real* dv = nullptr;           // [columns, head_dim], in and out
};

template <class Real>
struct TileOps {
  // Rows of a tensor, `stride` elements apart, to rows of Real end to end.
  void (*widen)(const void* from, DType dtype, std::int64_t stride, std::int64_t rows,
                std::int32_t head_dim, Real* to);
  // And back, rounded to nearest even.
  void (*narrow)(const Real* from, std::int64_t rows, std::int32_t head_dim, void* to, DType dtype,
                 std::int64_t stride);
  void (*add)(const Real* from, std::int64_t count, Real* to);
  void (*forward)(const ForwardTile<Real>& tile);
  void (*backward)(const BackwardStep<Real>& step);
};

enum class Isa : std::int32_t { kPortable, kAvx2, kAvx512 };

[[nodiscard]] bool has_isa(Isa isa);  // whether this CPU does
[[nodiscard]] Isa widest_isa();       // that this CPU has

template <class Real>
[[nodiscard]] const TileOps<Real>& tile_ops(Isa isa);
template <>
const TileOps<float>& tile_ops<float>(Isa isa);
template <>
const TileOps<double>& tile_ops<double>(Isa isa);

// Each defined in a file compiled for that instruction set. fp64 serves exactness, not speed:
// AVX-512 has no copy of it.
extern const TileOps<float> kPortableOpsF32;
extern const TileOps<double> kPortableOpsF64;
extern const TileOps<float> kAvx2OpsF32;
extern const TileOps<double> kAvx2OpsF64;
extern const TileOps<float> kAvx512OpsF32;

}  // namespace kpage::cpu
