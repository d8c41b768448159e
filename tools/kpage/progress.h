// A progress bar on a terminal, and lines elsewhere, for work that takes more than two seconds.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "console.h"

namespace kpage::cli {

// Draws from construction (after two seconds) to destruction, then wipes itself off. Where there is
// no terminal, writes a line after two seconds and every thirty from then on.
class Progress {
 public:
  // Of work that should take about `expected_ms`; 0: unknown, and the bar runs to and fro beside
  // the time that has passed.
  Progress(const Console& console, std::string label, double expected_ms = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void write_line(std::chrono::steady_clock::duration passed) const;
  void draw(std::chrono::steady_clock::duration passed);

  const Console& console_;
  std::string label_;
  double expected_ms_;
  bool drawn_ = false;
  std::jthread thread_;
};

// Milliseconds that `call` takes.
[[nodiscard]] double time_of(const std::function<void()>& call);

}  // namespace kpage::cli
