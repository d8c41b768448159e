// What a device builder found wrong with its input, in the words of host validation.
#include <cstring>

#include "kpage/plan.h"

#include "base/message.h"
#include "layout/faults.h"
#include "plan/format.h"

namespace kpage {
namespace {

using namespace plan;

Status in_words(const PlanShape& s, const ForwardHeader& found) {
  const layout::SideShape q{layout::Side::kQ, s.q_scope, s.batch, s.heads, s.q_blocks};
  const layout::SideShape kv{layout::Side::kKv, s.kv_scope, s.batch, s.heads, s.kv_blocks};
  const layout::GraphShape graph{s.batch, s.heads, s.q_blocks, s.kv_blocks, s.max_list};
  const layout::SideShape& side =
      found.argument == Argument::kQBlockSizes || found.argument == Argument::kQBlockOffsets ? q
                                                                                             : kv;
  switch (found.argument) {
    case Argument::kNone:
      break;
    case Argument::kQBlockSizes:
    case Argument::kKvBlockSizes:
      return layout::size_out_of_range(side, found.position, found.value);
    case Argument::kQBlockOffsets:
    case Argument::kKvBlockOffsets:
      return found.fault == Fault::kOverlap
                 ? layout::blocks_overlap(side, found.position, found.value)
                 : layout::offset_out_of_range(side, found.position, found.value);
    case Argument::kBlockNums:
      return layout::count_out_of_range(graph, found.position, found.value);
    case Argument::kBlockIndex:
      return found.fault == Fault::kDuplicate
                 ? layout::id_repeated(graph, found.position, found.value)
                 : layout::id_out_of_range(graph, found.position, found.value);
  }
  return {};
}

}  // namespace

Status plan_fault(const PlanShape& shape, std::span<const std::byte> forward) {
  ForwardHeader header{};
  if (forward.size() < sizeof header) {
    return invalid_argument("plan", text("a header of ", sizeof header, " bytes"), forward.size());
  }
  std::memcpy(&header, forward.data(), sizeof header);
  if (header.magic != kForwardMagic || header.version != kPlanVersion || header.shape != shape) {
    return {ErrorCode::kInvalidArgument, "plan: expected the header of this plan's shape"};
  }
  return in_words(shape, header);
}

}  // namespace kpage
