// Errors as values. The library never prints, aborts or exits.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "kpage/export.h"

namespace KPAGE_EXPORT kpage {

enum class ErrorCode : std::int32_t {
  kOk = 0,
  kInvalidArgument,  // the caller's input; the message names the argument, what was expected, what
                     // came
  kUnsupported,      // right input, but no backend takes it; the message says what is missing
  kIo,               // a file that cannot be read, written or understood
  kCuda,             // an error that the CUDA runtime or driver returned
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == ErrorCode::kOk; }
  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  ErrorCode code_ = ErrorCode::kOk;
  std::string message_;
};

// A value, or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  [[nodiscard]] Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  [[nodiscard]] T& value() & { return std::get<T>(state_); }
  [[nodiscard]] const T& value() const& { return std::get<T>(state_); }
  [[nodiscard]] T&& value() && { return std::get<T>(std::move(state_)); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace kpage
