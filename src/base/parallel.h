// Threads that share out numbered pieces of work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace kpage {

// `threads`, or as many as there are cores where it is not positive.
[[nodiscard]] inline std::int32_t thread_count(std::int32_t threads) {
  return threads > 0 ? threads
                     : std::max(1, static_cast<std::int32_t>(std::thread::hardware_concurrency()));
}

// Calls fn(i, worker) once for each i in [0, count), on up to `threads` threads (0: as many as
// there are cores), this one included; `worker` in [0, thread_count(threads)) names the thread, so
// that each may have scratch memory of its own. Lower numbers start first. `fn` must not throw.
template <class Fn>
void parallel_for(std::int64_t count, std::int32_t threads, const Fn& fn) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&](std::int32_t worker) {
    for (std::int64_t i = next++; i < count; i = next++) {
      fn(i, worker);
    }
  };
  const auto workers =
      static_cast<std::int32_t>(std::min<std::int64_t>(thread_count(threads), count));
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
