#include "cpu/tokens.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "base/hd.h"
#include "base/message.h"
#include "base/parallel.h"

namespace kpage::cpu {
namespace {

// A head's positions.
struct Positions {
  std::int32_t* first;
  std::int64_t stride;
  std::int64_t count;

  [[nodiscard]] std::int32_t& operator[](std::int64_t row) const { return first[row * stride]; }
};

Positions positions(const IndexRef& index, std::int64_t slice) {
  const std::int64_t b = slice / index.shape[1];
  const std::int64_t h = slice % index.shape[1];
  return {index.data + b * index.stride[0] + h * index.stride[1], index.stride[2], index.shape[2]};
}

std::byte* head_of(const TensorRef& t, std::int64_t slice) {
  const std::int64_t offset = slice / t.shape[1] * t.stride[0] + slice % t.shape[1] * t.stride[1];
  return static_cast<std::byte*>(t.data) + offset * size_of(t.dtype);
}

bool names_row(std::int32_t position, std::int64_t rows) {
  return position >= 0 && position < rows;
}

// The first place whose row an earlier place has too.
std::optional<std::int64_t> first_repeated(const Positions& index, std::int64_t rows) {
  std::vector<bool> seen(static_cast<std::size_t>(rows));
  for (std::int64_t place = 0; place < index.count; ++place) {
    if (names_row(index[place], rows)) {
      auto at = seen[static_cast<std::size_t>(index[place])];
      if (at) {
        return place;
      }
      at = true;
    }
  }
  return std::nullopt;
}

}  // namespace

void gather_rows(const GatherArgs& args) {
  constexpr std::int64_t kRows = 256;  // of a piece of work
  const std::int64_t bytes = size_of(args.x.dtype);
  const auto row_bytes = static_cast<std::size_t>(args.x.shape[3] * bytes);
  const std::int64_t rows = args.out.shape[2];
  const std::int64_t pieces = ceil_div(rows, kRows);
  const std::int64_t slices = args.out.shape[0] * args.out.shape[1];
  parallel_for(slices * pieces, args.threads, [&](std::int64_t piece, std::int32_t) {
    const std::int64_t slice = piece / pieces;
    const Positions index = positions(args.index, slice);
    const std::byte* x = head_of(args.x, slice);
    std::byte* out = head_of(args.out, slice);
    const std::int64_t begin = piece % pieces * kRows;
    for (std::int64_t row = begin; row < std::min(begin + kRows, rows); ++row) {
      std::byte* to = out + row * args.out.stride[2] * bytes;
      if (names_row(index[row], args.x.shape[2])) {
        std::memcpy(to, x + index[row] * args.x.stride[2] * bytes, row_bytes);
      } else {
        std::memset(to, 0, row_bytes);
      }
    }
  });
}

Status invert_index(const InvertArgs& args) {
  const auto& [batch, heads, places] = args.index.shape;
  const std::int64_t slices = batch * heads;
  const std::int64_t rows = args.inverse.shape[2];
  std::vector<std::optional<std::int64_t>> repeated(static_cast<std::size_t>(slices));
  parallel_for(slices, args.threads, [&](std::int64_t slice, std::int32_t) {
    repeated[static_cast<std::size_t>(slice)] = first_repeated(positions(args.index, slice), rows);
  });
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    if (const auto place = repeated[static_cast<std::size_t>(slice)]) {
      return invalid_argument(element("index", slice * places + *place, {batch, heads, places}),
                              "rows that appear at most once in a head",
                              text(positions(args.index, slice)[*place], " again"));
    }
  }
  parallel_for(slices, args.threads, [&](std::int64_t slice, std::int32_t) {
    const Positions index = positions(args.index, slice);
    const Positions inverse = positions(args.inverse, slice);
    for (std::int64_t row = 0; row < rows; ++row) {
      inverse[row] = -1;
    }
    for (std::int64_t place = 0; place < index.count; ++place) {
      if (names_row(index[place], rows)) {
        inverse[index[place]] = static_cast<std::int32_t>(place);
      }
    }
  });
  return {};
}

}  // namespace kpage::cpu
