// Registers KPage's ops with torch, through its stable ABI.
#include "ops.h"

#include <torch/csrc/stable/library.h>

#include "kpage/export.h"
#include "kpage/plan.h"
#include "kpage/version.h"

#include "tensors.h"

namespace kpage::bindings {

STABLE_TORCH_LIBRARY(kpage, m) {
  m.def(
      "plan_forward(Tensor q2k_block_index, Tensor q2k_block_nums, Tensor q_block_sizes, "
      "Tensor? kv_block_sizes, Tensor? q_block_offsets, Tensor? kv_block_offsets) -> Tensor");
  m.def("plan_backward(Tensor forward, int[] shape) -> Tensor");
  m.def("plan_check(Tensor forward, int[] shape) -> ()");
  m.def("plan_figures(Tensor forward, Tensor? backward, int[] shape) -> int[]");
  m.def("plan_figure_names() -> str[]");
  m.def("plan_dump(Tensor forward, Tensor? backward, int[] shape, int batch_head) -> str");
  m.def("plan_save(Tensor forward, Tensor? backward, int[] shape, str path) -> ()");
  m.def("plan_load(str path) -> (Tensor, Tensor, int[])");
  m.def("layout_names() -> str[]");
  m.def("named_layout(str name, int seed) -> Tensor[]");
  m.def("gather_rows(Tensor x, Tensor index, Tensor? inverse, bool bshd) -> Tensor");
  m.def("invert_index(Tensor index, int rows) -> Tensor");
  m.def(
      "attention_forward(Tensor q, Tensor k, Tensor v, Tensor plan, Tensor? plan_backward, "
      "int[] plan_shape, float? scale, bool bshd, bool deterministic) -> (Tensor, Tensor)");
  m.def(
      "attention_backward(Tensor d_o, Tensor? d_lse, Tensor q, Tensor k, Tensor v, Tensor o, "
      "Tensor lse, Tensor plan, Tensor plan_backward, int[] plan_shape, float? scale, bool bshd, "
      "bool deterministic) -> (Tensor, Tensor, Tensor)");
}

// One implementation serves both devices: it looks at the tensors.
template <class Library>
void implement(Library& m) {
  m.impl("plan_forward", TORCH_BOX(&plan_forward));
  m.impl("plan_backward", TORCH_BOX(&plan_backward));
  m.impl("plan_check", TORCH_BOX(&plan_check));
  m.impl("plan_figures", TORCH_BOX(&plan_figures));
  m.impl("plan_dump", TORCH_BOX(&plan_dump));
  m.impl("plan_save", TORCH_BOX(&plan_save));
  m.impl("gather_rows", TORCH_BOX(&gather_rows));
  m.impl("invert_index", TORCH_BOX(&invert_index));
  m.impl("attention_forward", TORCH_BOX(&attention_forward));
  m.impl("attention_backward", TORCH_BOX(&attention_backward));
}

STABLE_TORCH_LIBRARY_IMPL(kpage, CPU, m) { implement(m); }
STABLE_TORCH_LIBRARY_IMPL(kpage, CUDA, m) { implement(m); }
STABLE_TORCH_LIBRARY_IMPL(kpage, CompositeExplicitAutograd, m) {
  m.impl("plan_figure_names", TORCH_BOX(&plan_figure_names));
  m.impl("plan_load", TORCH_BOX(&plan_load));
  m.impl("layout_names", TORCH_BOX(&layout_names));
  m.impl("named_layout", TORCH_BOX(&named_layout));
}

}  // namespace kpage::bindings

// For fake kernels, which must know the sizes of plans and may not call ops. `shape` is the list of
// integers that ops take; false where it is no plan's.
extern "C" KPAGE_EXPORT bool kpage_plan_bytes(const std::int64_t* shape, std::int64_t* forward,
                                              std::int64_t* backward) noexcept {
  const kpage::Result<kpage::PlanShape> plan =
      kpage::bindings::checked_shape({shape, kpage::bindings::kShapeValues});
  if (!plan.ok()) {
    return false;
  }
  *forward = kpage::forward_plan_bytes(plan.value());
  *backward = kpage::backward_plan_bytes(plan.value());
  return true;
}

extern "C" KPAGE_EXPORT const char* kpage_version() noexcept { return kpage::version(); }
