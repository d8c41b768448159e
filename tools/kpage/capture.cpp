#include "capture.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "failure.h"
#include "tensor.h"

namespace kpage::cli {
namespace {

std::string shape_of(const TensorRef& tensor) { return shape_text(tensor.shape); }

void check_values(const std::string& subject, const TensorRef& x) {
  const unsigned exponent = x.dtype == DType::kBFloat16 ? 0x7f80u : 0x7c00u;
  const std::int64_t elements = x.shape[2] * x.shape[3];
  std::vector<std::int64_t> first(static_cast<std::size_t>(x.shape[0] * x.shape[1]));
  parallel_for(std::ssize(first), 0, [&](std::int64_t slice, std::int32_t) {
    const auto* begin = static_cast<const std::uint16_t*>(x.data) + slice * elements;
    const auto* bad = std::find_if(begin, begin + elements, [exponent](std::uint16_t bits) {
      return (bits & exponent) == exponent;
    });
    first[static_cast<std::size_t>(slice)] = bad - begin;
  });
  const auto found = std::find_if(first.begin(), first.end(),
                                  [elements](std::int64_t at) { return at < elements; });
  if (found != first.end()) {
    const std::int64_t slice = found - first.begin();
    throw bad_input(subject + ": head " + std::to_string(slice % x.shape[1]) +
                    " of batch element " + std::to_string(slice / x.shape[1]) +
                    " has values that are not finite, the first in row " +
                    std::to_string(*found / x.shape[3]));
  }
}

}  // namespace

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return "BF16";
    case DType::kFloat16:
      return "F16";
    case DType::kFloat32:
      return "F32";
    case DType::kFloat64:
      return "F64";
  }
  return "";
}

TensorRef Capture::tensor(const std::string& name) const {
  const FileTensor& tensor = file_.at(name);
  const std::string subject = path() + ": tensor " + name;
  if (tensor.dtype != "BF16" && tensor.dtype != "F16") {
    throw bad_input(subject + ": expected dtype BF16 or F16, got " + tensor.dtype);
  }
  if (tensor.shape.size() != 4) {
    throw bad_input(subject + ": expected shape [batch, heads, tokens, head_dim], got " +
                    shape_text(tensor.shape));
  }
  if (tensor.elements() == 0) {
    throw bad_input(subject + ": expected elements, got the empty shape " +
                    shape_text(tensor.shape));
  }
  if (tensor.shape[0] > std::numeric_limits<std::int32_t>::max() ||
      tensor.shape[1] > std::numeric_limits<std::int32_t>::max()) {
    throw bad_input(subject + ": batch and heads do not fit, got " + shape_text(tensor.shape));
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.data.data()) % 2 != 0) {
    throw bad_input(subject + ": its data begins at an odd byte of the file");
  }
  return contiguous(tensor.data.data(), tensor.dtype == "BF16" ? DType::kBFloat16 : DType::kFloat16,
                    tensor.shape);
}

Capture::Capture(const std::string& path) : file_(path) {
  q_ = tensor("q");
  k_ = tensor("k");
  v_ = tensor("v");
  const auto fail = [&](const char* name, const std::string& what, const std::string& got) {
    return bad_input(path + ": tensor " + name + ": expected " + what + ", got " + got);
  };
  for (const auto& [name, other] : {std::pair("k", k_), std::pair("v", v_)}) {
    if (other.dtype != q_.dtype) {
      throw fail(name, std::string("the dtype of q, ") + dtype_name(q_.dtype),
                 dtype_name(other.dtype));
    }
    if (other.shape[0] != q_.shape[0] || other.shape[2] != q_.shape[2] ||
        other.shape[3] != q_.shape[3]) {
      throw fail(name, "batch, tokens and head_dim of q " + shape_of(q_), shape_of(other));
    }
  }
  if (v_.shape != k_.shape) {
    throw fail("v", "the shape of k, " + shape_of(k_), shape_of(v_));
  }
  if (q_.shape[1] % k_.shape[1] != 0) {
    throw fail("k", "heads that divide the " + std::to_string(q_.shape[1]) + " of q",
               std::to_string(k_.shape[1]));
  }
  if (file_.find("d_o") != nullptr) {
    d_o_ = tensor("d_o");
    if (d_o_->shape != q_.shape || d_o_->dtype != q_.dtype) {
      throw fail("d_o", "shape and dtype of q, " + shape_of(q_), shape_of(*d_o_));
    }
  }
}

void Capture::check_finite(bool backward) const {
  for (const auto& [name, values] : {std::pair("q", q_), std::pair("k", k_), std::pair("v", v_)}) {
    check_values(path() + ": tensor " + name, values);
  }
  if (backward && d_o_) {
    check_values(path() + ": tensor d_o", *d_o_);
  }
}

}  // namespace kpage::cli
