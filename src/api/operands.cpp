#include "api/operands.h"

#include <algorithm>

#include "api/checks.h"
#include "api/footprint.h"
#include "base/message.h"

namespace kpage::api {
namespace {

// Memory: device, strides, address.
Status check_memory(const Operand& t, const Device& device, std::string_view device_of,
                    Footprint& covered) {
  if (t.device != device) {
    return invalid_argument(t.name, text("a tensor on ", device_text(device), " as ", device_of),
                            device_text(t.device));
  }
  for (const std::int64_t stride : t.stride) {
    if (stride < 0) {
      return invalid_argument(t.name, "strides of at least 0", list_text(t.stride));
    }
  }
  const bool has_head_dim = t.shape.size() == 4;
  const bool has_elements = std::find(t.shape.begin(), t.shape.end(), 0) == t.shape.end();
  if (has_head_dim && has_elements && t.stride[3] != 1 && t.shape[3] > 1) {
    return invalid_argument(t.name, "stride 1 in the last dimension", t.stride[3]);
  }
  const auto found = footprint(t.data, t.element_bytes, t.shape, t.stride);
  if (!found) {
    return invalid_argument(t.name, "strides that stay within the address space",
                            list_text(t.stride));
  }
  covered = *found;
  if (t.data == nullptr && covered.begin != covered.end) {
    return invalid_argument(t.name, text("memory for ", list_text(t.shape)), "a null pointer");
  }
  if (covered.begin % static_cast<std::uintptr_t>(t.element_bytes) != 0) {
    return invalid_argument(t.name, text("an address that is a multiple of ", t.element_bytes),
                            covered.begin);
  }
  if (t.use == Use::kOut && covered.repeats) {
    return invalid_argument(t.name, "strides that give each element memory of its own",
                            list_text(t.stride));
  }
  return {};
}

}  // namespace

Operand operand(std::string_view name, const TensorRef& t, Use use) {
  return {name, t.data, t.device, size_of(t.dtype), t.shape, t.stride, use};
}
Operand operand(std::string_view name, const RowsRef& t, Use use) {
  return {name, t.data, t.device, std::int64_t{sizeof(float)}, t.shape, t.stride, use};
}

std::string list_text(std::span<const std::int64_t> values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    out += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  }
  return out + "]";
}

Status check_dtype(std::string_view name, DType dtype) {
  return size_of(dtype) == 0
             ? invalid_argument(name, "a dtype of this library", static_cast<std::int32_t>(dtype))
             : Status();
}

Status check_shape(std::string_view name, std::span<const std::int64_t> got,
                   const std::vector<std::int64_t>& expected) {
  if (!std::equal(got.begin(), got.end(), expected.begin(), expected.end())) {
    return invalid_argument(name, text("shape ", list_text(expected)), list_text(got));
  }
  return {};
}

Status check_operands(std::span<const Operand> operands, const Device& device,
                      std::string_view device_of) {
  std::vector<Footprint> covered(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (Status status = check_memory(operands[i], device, device_of, covered[i]); !status.ok()) {
      return status;
    }
  }
  for (std::size_t out = 0; out < operands.size(); ++out) {
    if (operands[out].use != Use::kOut) {
      continue;
    }
    for (std::size_t other = 0; other < operands.size(); ++other) {
      if (other != out && overlap(covered[out], covered[other])) {
        return invalid_argument(operands[out].name, "memory that no other argument uses",
                                text("memory shared with ", operands[other].name));
      }
    }
  }
  return {};
}

}  // namespace kpage::api
