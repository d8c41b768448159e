#include "support/token_case.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include <gtest/gtest.h>

#include "support/random.h"

namespace kpage::test {
namespace {

std::int64_t random_rows(Random& random) {
  return random.chance(0.5) ? random.one_of<std::int64_t>({0, 1, 15, 16, 17, 63, 64, 65, 127, 128})
                            : random.between(0, 400);
}

HostIndex make_index(std::vector<std::int32_t> values, const std::array<std::int64_t, 3>& shape,
                     const std::array<std::int64_t, 3>& stride) {
  HostIndex index;
  const auto bytes = std::as_bytes(std::span(values));
  index.storage.assign(bytes.begin(), bytes.end());
  index.ref.data = reinterpret_cast<std::int32_t*>(index.storage.data());
  index.ref.shape = shape;
  index.ref.stride = stride;
  return index;
}

// Rows of [0, rows) at most once in a head, some of them nowhere, among numbers that are no row.
HostIndex random_index(Random& random, std::int64_t batch, std::int64_t heads, std::int64_t rows) {
  const std::int64_t step = random.one_of<std::int64_t>({1, 1, 2});
  const bool by_head = random.chance(0.6);
  const bool by_batch = by_head && random.chance(0.5);
  const std::int64_t kept = random.chance(0.5) ? rows : random.between(0, rows);
  const std::int64_t padding = random.chance(0.5) ? 0 : random.between(0, 40);
  const std::int64_t places = kept + padding;
  const std::int64_t slices = (by_batch ? batch : 1) * (by_head ? heads : 1);
  std::vector<std::int32_t> values;
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    std::vector<std::int32_t> row(static_cast<std::size_t>(rows));
    std::iota(row.begin(), row.end(), 0);
    random.shuffle(row);
    row.resize(static_cast<std::size_t>(kept));
    for (std::int64_t i = 0; i < padding; ++i) {
      row.push_back(random.one_of<std::int32_t>({-1, -1, -1, -2, static_cast<std::int32_t>(rows),
                                                 std::numeric_limits<std::int32_t>::min(),
                                                 std::numeric_limits<std::int32_t>::max()}));
    }
    random.shuffle(row);
    for (const std::int32_t value : row) {
      values.insert(values.end(), static_cast<std::size_t>(step), value);
    }
  }
  return make_index(std::move(values), {batch, heads, places},
                    {by_batch ? heads * places * step : 0, by_head ? places * step : 0, step});
}

std::int32_t position(const IndexRef& index, std::int64_t b, std::int64_t h, std::int64_t r) {
  return index.data[b * index.stride[0] + h * index.stride[1] + r * index.stride[2]];
}

const std::byte* row_of(const TensorRef& t, std::int64_t b, std::int64_t h, std::int64_t r) {
  return static_cast<const std::byte*>(t.data) +
         (b * t.stride[0] + h * t.stride[1] + r * t.stride[2]) * size_of(t.dtype);
}

GatherCase random_gather(std::uint64_t seed) {
  Random random(seed);
  const std::int64_t batch = random.between(0, 3);
  const std::int64_t heads = random.one_of<std::int64_t>({1, 2, 3, 5});
  const std::int64_t rows = random_rows(random);
  const std::int64_t head_dim =
      random.chance(0.6) ? random.one_of<std::int64_t>({64, 128, 96, 256})
                         : random.one_of<std::int64_t>({1, 2, 3, 4, 8, 12, 20, 33, 72, 320});
  const DType dtype =
      random.one_of({DType::kBFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat64});
  const std::int64_t alignment = random.one_of<std::int64_t>({1, 2, 4, 8});
  GatherCase c;
  c.index = random_index(random, batch, heads, rows);
  c.x = random_tensor(random, {batch, heads, rows, head_dim}, dtype, {alignment, alignment});
  for (std::byte& value : c.x.storage) {
    value = static_cast<std::byte>(random.bits());
  }
  c.out = random_tensor(random, {batch, heads, c.index.ref.shape[2], head_dim}, dtype,
                        {alignment, alignment});
  return c;
}

InvertCase random_inversion(std::uint64_t seed) {
  Random random(seed);
  const std::int64_t batch = random.between(0, 3);
  const std::int64_t heads = random.one_of<std::int64_t>({1, 2, 3, 5});
  const std::int64_t rows = random_rows(random);
  InvertCase c;
  c.index = random_index(random, batch, heads, rows);
  c.inverse =
      make_index(std::vector<std::int32_t>(static_cast<std::size_t>(batch * heads * rows), 0x7777),
                 {batch, heads, rows}, {heads * rows, rows, 1});
  return c;
}

void expect_gather(GatherCase& c, const std::function<Status(GatherCase&, std::uint64_t)>& run,
                   std::uint64_t seed) {
  const std::vector<std::byte> before = c.out.storage;
  const Status status = run(c, seed);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(guards_untouched(c.out, before));
  const auto row_bytes = static_cast<std::size_t>(c.x.ref.shape[3] * size_of(c.x.ref.dtype));
  const std::vector<std::byte> zeros(row_bytes);
  const auto& [batch, heads, places, head_dim] = c.out.ref.shape;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t r = 0; r < places; ++r) {
        const std::int32_t from = position(c.index.ref, b, h, r);
        const bool is_row = from >= 0 && from < c.x.ref.shape[2];
        const std::byte* expected = is_row ? row_of(c.x.ref, b, h, from) : zeros.data();
        ASSERT_EQ(std::memcmp(row_of(c.out.ref, b, h, r), expected, row_bytes), 0)
            << "out[" << b << ", " << h << ", " << r << "] of row " << from << ", " << head_dim
            << " columns";
      }
    }
  }
}

void expect_inversion(InvertCase& c, const std::function<Status(InvertCase&, std::uint64_t)>& run,
                      std::uint64_t seed) {
  const Status status = run(c, seed);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto& [batch, heads, rows] = c.inverse.ref.shape;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      std::vector<std::int32_t> expected(static_cast<std::size_t>(rows), -1);
      for (std::int64_t place = 0; place < c.index.ref.shape[2]; ++place) {
        const std::int32_t row = position(c.index.ref, b, h, place);
        if (row >= 0 && row < rows) {
          expected[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(place);
        }
      }
      const std::int32_t* got = c.inverse.ref.data + (b * heads + h) * rows;
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), got)) << "head " << h << " of " << b;
    }
  }
}

}  // namespace

void expect_gathers(const std::function<Status(GatherCase&, std::uint64_t)>& run) {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    GatherCase c = random_gather(seed);
    expect_gather(c, run, seed);
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

void expect_inverts(const std::function<Status(InvertCase&, std::uint64_t)>& run) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    InvertCase c = random_inversion(seed);
    expect_inversion(c, run, seed);
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

}  // namespace kpage::test
