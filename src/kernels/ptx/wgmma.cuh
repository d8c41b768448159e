// Matrix products of a warpgroup: D[64, N] += A[64, 16] * B[16, N], fp32 accumulators.
//
// Thread t of the warpgroup holds of D rows 16 * (t / 32) + (t % 32) / 4 and that plus 8; element i
// is at row half (i / 2) % 2, column 8 * (i / 4) + 2 * (t % 4) + i % 2.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace kpage::kernels::ptx {

// How an operand lies in shared memory: kKMajor has its k index contiguous, kMnMajor its row (A)
// or column (B) index.
enum class Major : int { kKMajor = 0, kMnMajor = 1 };

// An operand in shared memory with 128-byte swizzle: 8-row groups of 1,024 bytes. `low` holds the
// address and the leading offset, `high` the stride offset and the swizzle. An operand moves by
// adding bytes to its address: `desc + bytes`.
struct Descriptor {
  std::uint32_t low;
  std::uint32_t high;

  // `leading` is the distance of 64-column slabs of an operand that is not k-major (else unused),
  // `stride` that of 8-row groups, all in bytes. `shared` must be aligned to 1,024.
  static __device__ __forceinline__ Descriptor of(const void* shared, std::uint32_t leading,
                                                  std::uint32_t stride) {
    return at(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)), leading, stride);
  }
  // The same from an address in the shared window, which may be a constant.
  static __device__ __forceinline__ constexpr Descriptor at(std::uint32_t address,
                                                            std::uint32_t leading,
                                                            std::uint32_t stride) {
    return {((address & 0x3ffff) >> 4) | ((leading >> 4) << 16),
            (stride >> 4) | (1u << 30)};  // swizzle mode 1: 128 bytes
  }
  __device__ __forceinline__ Descriptor operator+(std::uint32_t bytes) const {
    return {low + (bytes >> 4), high};
  }
  __device__ __forceinline__ std::uint64_t bits() const {
    return (static_cast<std::uint64_t>(high) << 32) | low;
  }
};

// Orders register accesses before the products that follow: once before the first product of a
// batch that reads or writes registers which ordinary code wrote.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kGroups of the committed batches are unfinished.
template <int kGroups>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// The instruction is one string and its operands are numbered, so its text is put together here:
// accumulators, then A and B, then whether to accumulate.
#define KPAGE_D8(i)                                                                           \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define KPAGE_D16 KPAGE_D8(0), KPAGE_D8(8)
#define KPAGE_D32(i) KPAGE_D8(i), KPAGE_D8(i + 8), KPAGE_D8(i + 16), KPAGE_D8(i + 24)
#define KPAGE_D52 \
  KPAGE_D32(0), KPAGE_D8(32), KPAGE_D8(40), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define KPAGE_D64 KPAGE_D32(0), KPAGE_D32(32)
#define KPAGE_TEXT16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define KPAGE_TEXT32                                                                           \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24," \
  "%25,%26,%27,%28,%29,%30,%31"
#define KPAGE_TEXT52 \
  KPAGE_TEXT32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51"
#define KPAGE_TEXT64                                                                              \
  KPAGE_TEXT32                                                                                    \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54," \
  "%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define KPAGE_WGMMA_SS(columns, type, text, outputs, a, b, accumulate_at, a_major_at, b_major_at) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_at                                  \
               ", 0;\n"                                                                           \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" text     \
               "}, " a ", " b ", p, 1, 1, " a_major_at ", " b_major_at ";\n}\n"                   \
               : outputs                                                                          \
               : "l"(a_desc.bits()), "l"(b_desc.bits()), "r"(static_cast<int>(accumulate)),       \
                 "n"(static_cast<int>(kA)), "n"(static_cast<int>(kB)))
#define KPAGE_WGMMA_RS(columns, type, text, outputs, a, b, accumulate_at, b_major_at)         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_at                              \
               ", 0;\n"                                                                       \
               "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" text \
               "}, {" a "}, " b ", p, 1, 1, " b_major_at ";\n}\n"                             \
               : outputs                                                                      \
               : "r"(a_regs[0]), "r"(a_regs[1]), "r"(a_regs[2]), "r"(a_regs[3]),              \
                 "l"(b_desc.bits()), "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(kB)))

// A and B from shared memory.
template <class Element, Major kA = Major::kKMajor, Major kB = Major::kKMajor, int kAccumulators>
__device__ __forceinline__ void wgmma(float (&d)[kAccumulators], Descriptor a_desc,
                                      Descriptor b_desc, bool accumulate) {
  static_assert(kAccumulators == 64 || kAccumulators == 32 || kAccumulators == 16,
                "N is 128, 64 or 32");
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    if constexpr (kAccumulators == 64) {
      KPAGE_WGMMA_SS("128", "bf16", KPAGE_TEXT64, KPAGE_D64, "%64", "%65", "%66", "%67", "%68");
    } else if constexpr (kAccumulators == 32) {
      KPAGE_WGMMA_SS("64", "bf16", KPAGE_TEXT32, KPAGE_D32(0), "%32", "%33", "%34", "%35", "%36");
    } else {
      KPAGE_WGMMA_SS("32", "bf16", KPAGE_TEXT16, KPAGE_D16, "%16", "%17", "%18", "%19", "%20");
    }
  } else {
    static_assert(std::is_same_v<Element, __half>);
    if constexpr (kAccumulators == 64) {
      KPAGE_WGMMA_SS("128", "f16", KPAGE_TEXT64, KPAGE_D64, "%64", "%65", "%66", "%67", "%68");
    } else if constexpr (kAccumulators == 32) {
      KPAGE_WGMMA_SS("64", "f16", KPAGE_TEXT32, KPAGE_D32(0), "%32", "%33", "%34", "%35", "%36");
    } else {
      KPAGE_WGMMA_SS("32", "f16", KPAGE_TEXT16, KPAGE_D16, "%16", "%17", "%18", "%19", "%20");
    }
  }
}

// A from registers: rows as in D, columns 2 * (t % 4) + {0, 1} (registers 0, 1: the two row halves)
// and 8 more (registers 2, 3).
template <class Element, Major kB = Major::kKMajor, int kAccumulators>
__device__ __forceinline__ void wgmma(float (&d)[kAccumulators], const std::uint32_t* a_regs,
                                      Descriptor b_desc, bool accumulate) {
  static_assert(kAccumulators == 64 || kAccumulators == 52 || kAccumulators == 32,
                "N is 128, 104 or 64");
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    if constexpr (kAccumulators == 64) {
      KPAGE_WGMMA_RS("128", "bf16", KPAGE_TEXT64, KPAGE_D64, "%64,%65,%66,%67", "%68", "%69",
                     "%70");
    } else if constexpr (kAccumulators == 52) {
      KPAGE_WGMMA_RS("104", "bf16", KPAGE_TEXT52, KPAGE_D52, "%52,%53,%54,%55", "%56", "%57",
                     "%58");
    } else {
      KPAGE_WGMMA_RS("64", "bf16", KPAGE_TEXT32, KPAGE_D32(0), "%32,%33,%34,%35", "%36", "%37",
                     "%38");
    }
  } else {
    static_assert(std::is_same_v<Element, __half>);
    if constexpr (kAccumulators == 64) {
      KPAGE_WGMMA_RS("128", "f16", KPAGE_TEXT64, KPAGE_D64, "%64,%65,%66,%67", "%68", "%69", "%70");
    } else if constexpr (kAccumulators == 52) {
      KPAGE_WGMMA_RS("104", "f16", KPAGE_TEXT52, KPAGE_D52, "%52,%53,%54,%55", "%56", "%57", "%58");
    } else {
      KPAGE_WGMMA_RS("64", "f16", KPAGE_TEXT32, KPAGE_D32(0), "%32,%33,%34,%35", "%36", "%37",
                     "%38");
    }
  }
}

#undef KPAGE_D8
#undef KPAGE_D16
#undef KPAGE_D32
#undef KPAGE_D52
#undef KPAGE_D64
#undef KPAGE_TEXT16
#undef KPAGE_TEXT32
#undef KPAGE_TEXT52
#undef KPAGE_TEXT64
#undef KPAGE_WGMMA_SS
#undef KPAGE_WGMMA_RS

}  // namespace kpage::kernels::ptx
