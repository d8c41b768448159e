#include "cpu/tile_ops.h"

namespace kpage::cpu {
namespace {

template <class Real>
const TileOps<Real>& choose(Isa isa, const TileOps<Real>& portable, const TileOps<Real>& avx2,
                            const TileOps<Real>& avx512) {
  return isa == Isa::kAvx512 ? avx512 : isa == Isa::kAvx2 ? avx2 : portable;
}

}  // namespace

bool has_isa(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    case Isa::kAvx512:
      return has_isa(Isa::kAvx2) && __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0;
  }
  return false;
}

Isa widest_isa() {
  return has_isa(Isa::kAvx512) ? Isa::kAvx512 : has_isa(Isa::kAvx2) ? Isa::kAvx2 : Isa::kPortable;
}

template <>
const TileOps<float>& tile_ops<float>(Isa isa) {
  return choose(isa, kPortableOpsF32, kAvx2OpsF32, kAvx512OpsF32);
}
template <>
const TileOps<double>& tile_ops<double>(Isa isa) {
  return choose(isa, kPortableOpsF64, kAvx2OpsF64, kAvx2OpsF64);
}

}  // namespace kpage::cpu
