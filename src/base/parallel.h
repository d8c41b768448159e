// Threads that share out numbered pieces of work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace kpage {

// More than the cores of any machine would only take memory.
inline constexpr std::int32_t kMostThreads = 1024;

// The threads that share `count` pieces of work: `threads`, or as many as there are cores where it
// is not positive; at least one, and no more than there are pieces.
[[nodiscard]] inline std::int32_t thread_count(std::int32_t threads, std::int64_t count) {
  const std::int32_t wanted =
      threads > 0 ? threads : static_cast<std::int32_t>(std::thread::hardware_concurrency());
  const std::int64_t useful = std::min<std::int64_t>(count, std::min(wanted, kMostThreads));
  return static_cast<std::int32_t>(std::max<std::int64_t>(useful, 1));
}

// Calls fn(i, worker) once for each i in [0, count), on up to `threads` threads (0: as many as
// there are cores), this one included; `worker` in [0, thread_count(threads, count)) names the
// thread, so that each may have scratch memory of its own. Lower numbers start first. `fn` must not
// throw.
template <class Fn>
void parallel_for(std::int64_t count, std::int32_t threads, const Fn& fn) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&](std::int32_t worker) {
    for (std::int64_t i = next++; i < count; i = next++) {
      fn(i, worker);
    }
  };
  const std::int32_t workers = thread_count(threads, count);
  std::vector<std::jthread> others;
  try {
    for (std::int32_t worker = 1; worker < workers; ++worker) {
      others.emplace_back(work, worker);
    }
  } catch (const std::system_error&) {
    // The system gives no more threads: those that run share the work.
  }
  work(0);
}

}  // namespace kpage
