// Memory for tiles: aligned to cache lines, not initialised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace kpage::cpu {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t count)
      : data_(static_cast<T*>(
            ::operator new(static_cast<std::size_t>(count) * sizeof(T), kAlignment))) {}

  [[nodiscard]] T* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<T, Free> data_;
};

}  // namespace kpage::cpu
