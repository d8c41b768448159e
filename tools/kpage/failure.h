// How a command ends early: an exception that carries the exit code and one plain sentence.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "kpage/status.h"

namespace kpage::cli {

inline constexpr int kSuccess = 0;
inline constexpr int kFailed = 1;    // a run or a check failed
inline constexpr int kBadInput = 2;  // bad usage, or a file or tensor that is not what it should be

class Failure : public std::runtime_error {
 public:
  Failure(int exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

[[nodiscard]] inline Failure bad_input(const std::string& message) { return {kBadInput, message}; }
[[nodiscard]] inline Failure run_failed(const std::string& message) { return {kFailed, message}; }

// Turns the library's errors into failures; `subject` (a file or a flag) goes in front.
inline void check(const Status& status, const std::string& subject = "") {
  if (status.ok()) {
    return;
  }
  const bool input = status.code() == ErrorCode::kInvalidArgument ||
                     status.code() == ErrorCode::kUnsupported || status.code() == ErrorCode::kIo;
  throw Failure(input ? kBadInput : kFailed,
                subject.empty() ? status.message() : subject + ": " + status.message());
}
template <class T>
[[nodiscard]] T value_of(Result<T> result, const std::string& subject = "") {
  check(result.status(), subject);
  return std::move(result).value();
}

}  // namespace kpage::cli
