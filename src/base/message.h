// How the library words errors: the argument, what was expected, and what came.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>

#include "kpage/status.h"

namespace kpage {

// The parts one after the other, as a stream would write them.
template <class... Parts>
[[nodiscard]] std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

// "[1, 8, 640]"
[[nodiscard]] std::string shape_text(std::initializer_list<std::int64_t> shape);

// "name[0, 3, 17]": element number `flat` of a tensor of this shape, in C order. A shape without
// dimensions gives the bare name.
[[nodiscard]] std::string element(std::string_view name, std::int64_t flat,
                                  std::initializer_list<std::int64_t> shape);

// "name: expected ..., got ..."
template <class Got>
[[nodiscard]] Status invalid_argument(std::string_view name, std::string_view expected,
                                      const Got& got) {
  return {ErrorCode::kInvalidArgument, text(name, ": expected ", expected, ", got ", got)};
}

}  // namespace kpage
