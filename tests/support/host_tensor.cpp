#include "support/host_tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/elements.h"
#include "base/hd.h"

namespace kpage::test {
namespace {

// Strides of [batch, heads, rows] around rows of `row` elements, and the room that they take.
struct Strides {
  std::array<std::int64_t, 3> stride{};
  std::int64_t first = 0;  // element
  std::int64_t elements = 0;
};

Strides random_strides(Random& random, const std::array<std::int64_t, 3>& shape, std::int64_t row,
                       const Alignment& alignment) {
  using Order = std::array<std::size_t, 3>;  // innermost first
  const Order order = random.one_of<Order>({{2, 1, 0}, {1, 2, 0}, {2, 1, 0}, {1, 2, 0}, {0, 2, 1}});
  const bool slice = random.chance(0.5);
  const auto slack = [&](std::int64_t most) {
    return slice && random.chance(0.5) ? random.between(0, most) : 0;
  };
  const std::array<std::int64_t, 3> multiples{alignment.heads, alignment.heads, alignment.rows};
  Strides out;
  std::int64_t room = row + alignment.rows * slack(3);
  for (const std::size_t axis : order) {
    room = round_up(room, multiples[axis]);
    out.stride[axis] = room;
    room *= std::max<std::int64_t>(shape[axis] + slack(2), 1);
  }
  out.first = alignment.rows * slack(16);
  std::int64_t last = out.first + row;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    last += std::max<std::int64_t>(shape[axis] - 1, 0) * out.stride[axis];
  }
  out.elements = std::max(last, row) + slack(64);
  return out;
}

template <class Ref>
std::int64_t row_bytes(const Ref& ref) {
  if constexpr (std::is_same_v<Ref, TensorRef>) {
    return ref.shape[3] * size_of(ref.dtype);
  } else {
    return std::int64_t{sizeof(float)};
  }
}
std::int64_t element_bytes(const TensorRef& ref) { return size_of(ref.dtype); }
std::int64_t element_bytes(const RowsRef&) { return std::int64_t{sizeof(float)}; }

template <class Ref, class Fn>
void for_each_row(const Ref& ref, const Fn& fn) {
  for (std::int64_t batch = 0; batch < ref.shape[0]; ++batch) {
    for (std::int64_t head = 0; head < ref.shape[1]; ++head) {
      for (std::int64_t row = 0; row < ref.shape[2]; ++row) {
        fn(row_start(ref, batch, head, row));
      }
    }
  }
}

template <class Host>
bool same_around(const Host& host, const std::vector<std::byte>& before) {
  std::vector<std::byte> expected = before;
  const auto bytes = static_cast<std::size_t>(row_bytes(host.ref));
  for_each_row(host.ref, [&](std::int64_t start) {
    const auto at = static_cast<std::size_t>(host.offset + start * element_bytes(host.ref));
    std::memcpy(expected.data() + at, host.storage.data() + at, bytes);
  });
  return expected == host.storage;
}

}  // namespace

HostTensor random_tensor(Random& random, const std::array<std::int64_t, 4>& shape, DType dtype,
                         const Alignment& alignment) {
  const Strides s = random_strides(random, {shape[0], shape[1], shape[2]}, shape[3], alignment);
  HostTensor out;
  out.storage.resize(static_cast<std::size_t>(s.elements * size_of(dtype)));
  out.offset = s.first * size_of(dtype);
  out.ref = {out.storage.data() + out.offset,
             dtype,
             {},
             shape,
             {s.stride[0], s.stride[1], s.stride[2], 1}};
  poison(out);
  return out;
}

HostRows random_rows(Random& random, const std::array<std::int64_t, 3>& shape) {
  const Strides s = random_strides(random, shape, 1, {});
  HostRows out;
  out.storage.resize(static_cast<std::size_t>(s.elements) * sizeof(float));
  out.offset = s.first * std::int64_t{sizeof(float)};
  out.ref = {reinterpret_cast<float*>(out.storage.data() + out.offset), {}, shape, s.stride};
  poison(out);
  return out;
}

void poison(HostTensor& tensor) {
  const auto count = static_cast<std::int64_t>(tensor.storage.size()) / size_of(tensor.ref.dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    write_element(tensor.storage.data(), tensor.ref.dtype, i,
                  std::numeric_limits<double>::quiet_NaN());
  }
}

void poison(HostRows& rows) {
  const auto count = static_cast<std::int64_t>(rows.storage.size() / sizeof(float));
  std::fill_n(reinterpret_cast<float*>(rows.storage.data()), count,
              std::numeric_limits<float>::quiet_NaN());
}

void write_values(HostTensor& tensor, const std::vector<double>& values) {
  const double* next = values.data();
  for_each_row(tensor.ref, [&](std::int64_t start) {
    for (std::int64_t d = 0; d < tensor.ref.shape[3]; ++d) {
      write_element(tensor.ref.data, tensor.ref.dtype, start + d, *next++);
    }
  });
}

void write_values(HostRows& rows, const std::vector<double>& values) {
  const double* next = values.data();
  for_each_row(rows.ref,
               [&](std::int64_t start) { rows.ref.data[start] = static_cast<float>(*next++); });
}

std::vector<double> read_values(const HostTensor& tensor) {
  std::vector<double> values;
  for_each_row(tensor.ref, [&](std::int64_t start) {
    for (std::int64_t d = 0; d < tensor.ref.shape[3]; ++d) {
      values.push_back(read_element(tensor.ref.data, tensor.ref.dtype, start + d));
    }
  });
  return values;
}

std::vector<double> read_values(const HostRows& rows) {
  std::vector<double> values;
  for_each_row(rows.ref, [&](std::int64_t start) {
    values.push_back(static_cast<double>(rows.ref.data[start]));
  });
  return values;
}

bool guards_untouched(const HostTensor& tensor, const std::vector<std::byte>& before) {
  return same_around(tensor, before);
}
bool guards_untouched(const HostRows& rows, const std::vector<std::byte>& before) {
  return same_around(rows, before);
}

}  // namespace kpage::test
