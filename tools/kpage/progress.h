// A progress bar on a terminal, and lines elsewhere, for work that takes more than two seconds.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "console.h"

namespace kpage::cli {

// Draws from construction (after two seconds) to destruction, then wipes itself off. Where there is
// no terminal, writes a line after two seconds and every thirty from then on. Of work whose
// end cannot be seen from outside, such as one library call, say how long it should take, or
// nothing: then the bar runs to and fro beside the time that has passed.
class Progress {
 public:
  // `total` pieces of work, told by advance().
  Progress(const Console& console, std::string label, std::int64_t total);
  // One piece that should take about `expected_ms`; 0: unknown.
  static Progress of_call(const Console& console, std::string label, double expected_ms = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(std::int64_t pieces = 1) { done_ += pieces; }

 private:
  Progress(const Console& console, std::string label, std::int64_t total, double expected_ms);
  void write_line(std::chrono::steady_clock::duration passed) const;
  void draw(std::chrono::steady_clock::duration passed);

  const Console& console_;
  std::string label_;
  std::int64_t total_;
  double expected_ms_;
  std::atomic<std::int64_t> done_{0};
  bool drawn_ = false;
  std::jthread thread_;
};

// Milliseconds that `call` takes.
[[nodiscard]] double time_of(const std::function<void()>& call);

}  // namespace kpage::cli
