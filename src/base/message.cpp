#include "base/message.h"

namespace kpage {
namespace {

template <class Range>
std::string bracketed(const Range& numbers) {
  std::string out = "[";
  for (const std::int64_t number : numbers) {
    out += out.size() > 1 ? ", " : "";
    out += std::to_string(number);
  }
  return out + "]";
}

}  // namespace

std::string shape_text(std::initializer_list<std::int64_t> shape) { return bracketed(shape); }

std::string element(std::string_view name, std::int64_t flat,
                    std::initializer_list<std::int64_t> shape) {
  if (shape.size() == 0) {
    return std::string(name);
  }
  std::string position;
  for (const std::int64_t* extent = shape.end(); extent != shape.begin();) {
    --extent;
    const std::int64_t index = *extent > 0 ? flat % *extent : flat;
    flat = *extent > 0 ? flat / *extent : 0;
    position.insert(0, text(index, position.empty() ? "" : ", "));
  }
  return std::string(name) + "[" + position + "]";
}

}  // namespace kpage
