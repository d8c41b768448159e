#include "progress.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <ostream>
#include <utility>

#include "page.h"

namespace kpage::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kQuiet = std::chrono::seconds(2);
constexpr Clock::duration kInterval = std::chrono::milliseconds(200);
constexpr Clock::duration kIntervalOfLines = std::chrono::seconds(30);
constexpr int kCells = 28;

}  // namespace

Progress::Progress(const Console& console, std::string label, double expected_ms)
    : console_(console), label_(std::move(label)), expected_ms_(expected_ms) {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    const auto start = Clock::now();
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    const Clock::duration interval = console_.interactive ? kInterval : kIntervalOfLines;
    for (auto pause = Clock::duration(kQuiet);; pause = interval) {
      if (wake.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
        return;
      }
      if (console_.interactive) {
        draw(Clock::now() - start);
      } else {
        write_line(Clock::now() - start);
      }
    }
  });
}

Progress::~Progress() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
    if (drawn_) {
      console_.err << "\r\033[K" << std::flush;
    }
  }
}

void Progress::write_line(Clock::duration passed) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(passed).count();
  console_.err << label_ << ": " << seconds << " s\n" << std::flush;
}

void Progress::draw(Clock::duration passed) {
  drawn_ = true;
  const double ms = std::chrono::duration<double, std::milli>(passed).count();
  std::string picture;
  std::string note = fixed(ms / 1000, 0) + " s";
  if (expected_ms_ > 0) {
    const double fraction = std::min(ms / expected_ms_, 0.99);
    const auto filled = static_cast<int>(std::ceil(fraction * kCells));
    picture = bar(fraction, kCells) + std::string(static_cast<std::size_t>(kCells - filled), ' ');
    note = fixed(100 * fraction, 0) + " %, " + note;
  } else {
    constexpr int kBlock = 6;
    const int span = 2 * (kCells - kBlock);
    const int at = static_cast<int>(ms / 100) % span;
    const int offset = at < kCells - kBlock ? at : span - at;
    picture = std::string(static_cast<std::size_t>(offset), ' ') + bar(1.0, kBlock) +
              std::string(static_cast<std::size_t>(kCells - kBlock - offset), ' ');
  }
  console_.err << "\r\033[K" << label_ << " [" << picture << "] " << note << std::flush;
}

double time_of(const std::function<void()>& call) {
  const auto start = Clock::now();
  call();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace kpage::cli
