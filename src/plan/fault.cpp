// What a device builder found wrong with its input, in words.
#include <cstring>
#include <string>

#include "kpage/plan.h"

#include "plan/format.h"

namespace kpage {
namespace {

using namespace plan;

const char* name_of(Argument argument) {
  switch (argument) {
    case Argument::kNone:
      break;
    case Argument::kQBlockSizes:
      return "q_block_sizes";
    case Argument::kQBlockOffsets:
      return "q_block_offsets";
    case Argument::kKvBlockSizes:
      return "kv_block_sizes";
    case Argument::kKvBlockOffsets:
      return "kv_block_offsets";
    case Argument::kBlockNums:
      return "q2k_block_nums";
    case Argument::kBlockIndex:
      return "q2k_block_index";
  }
  return "plan";
}

std::string expected(const PlanShape& shape, Argument argument, Fault fault) {
  if (fault == Fault::kDuplicate) {
    return "an id that stands once in its list";
  }
  if (fault == Fault::kOverlap) {
    return "blocks that do not overlap";
  }
  switch (argument) {
    case Argument::kQBlockSizes:
    case Argument::kKvBlockSizes:
      return "a size in [0, " + std::to_string(kBlockRows) + "]";
    case Argument::kBlockNums:
      return "a count in [0, " + std::to_string(shape.max_list) + "]";
    case Argument::kBlockIndex:
      return "an id in [0, " + std::to_string(shape.kv_blocks) + ")";
    default:
      return "an offset in [0, " + std::to_string(kMaxRows) + " - size]";
  }
}

}  // namespace

Status plan_fault(const PlanShape& shape, std::span<const std::byte> forward) {
  ForwardHeader header{};
  if (forward.size() < sizeof header) {
    return {ErrorCode::kInvalidArgument, "plan: expected a header of " +
                                             std::to_string(sizeof header) + " bytes, got " +
                                             std::to_string(forward.size())};
  }
  std::memcpy(&header, forward.data(), sizeof header);
  if (header.magic != kForwardMagic || header.version != kPlanVersion || header.shape != shape) {
    return {ErrorCode::kInvalidArgument, "plan: expected the header of this plan's shape"};
  }
  if (header.argument == Argument::kNone) {
    return {};
  }
  return {ErrorCode::kInvalidArgument, std::string(name_of(header.argument)) + " at flat index " +
                                           std::to_string(header.position) + ": expected " +
                                           expected(shape, header.argument, header.fault) +
                                           ", got " + std::to_string(header.value)};
}

}  // namespace kpage
