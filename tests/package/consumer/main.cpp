// Plans a layout of two blocks, one of them ragged, and runs attention over it on the CPU. Queries
// are zero, so each valid row's output is the mean of V and its LSE the log of the key count.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <kpage/attention.h>
#include <kpage/layout.h>
#include <kpage/plan.h>

namespace {

constexpr std::int64_t kRows = 256;
constexpr std::int64_t kHeadDim = 64;
constexpr std::uint16_t kOne = 0x3f80;  // 1.0 in bf16

kpage::TensorRef tensor(std::vector<std::uint16_t>& data) {
  kpage::TensorRef ref;
  ref.data = data.data();
  ref.dtype = kpage::DType::kBFloat16;
  ref.shape = {1, 1, kRows, kHeadDim};
  ref.stride = {kRows * kHeadDim, kRows * kHeadDim, kHeadDim, 1};
  return ref;
}

int fail(const char* what, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", what, why.c_str());
  return 1;
}

}  // namespace

int main() {
  kpage::Layout layout;
  layout.q_blocks = 2;
  layout.kv_blocks = 2;
  layout.q_sizes = {128, 100};
  layout.max_list = 2;
  layout.q2k_block_index = {0, 1, 1, 0};
  layout.q2k_block_nums = {2, 2};

  kpage::Result<kpage::Plan> plan = kpage::Plan::build(layout.view());
  if (!plan.ok()) {
    return fail("plan", plan.status().message());
  }

  std::vector<std::uint16_t> q(kRows * kHeadDim, 0);
  std::vector<std::uint16_t> k(kRows * kHeadDim, kOne);
  std::vector<std::uint16_t> v(kRows * kHeadDim, kOne);
  std::vector<std::uint16_t> o(kRows * kHeadDim, 0xffff);
  std::vector<float> lse(kRows, 0.0F);

  kpage::ForwardArgs args;
  args.q = tensor(q);
  args.k = tensor(k);
  args.v = tensor(v);
  args.o = tensor(o);
  args.plan = plan.value().ref();
  args.lse.data = lse.data();
  args.lse.shape = {1, 1, kRows};
  args.lse.stride = {kRows, kRows, 1};
  if (const kpage::Status status = kpage::attention_forward(args); !status.ok()) {
    return fail("attention_forward", status.message());
  }

  const float expected_lse = std::log(228.0F);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const bool valid = row < 228;
    const float row_lse = lse[static_cast<std::size_t>(row)];
    const bool lse_right =
        valid ? std::abs(row_lse - expected_lse) < 1e-5F : std::isinf(row_lse) && row_lse < 0;
    const std::uint16_t first = o[static_cast<std::size_t>(row * kHeadDim)];
    if (!lse_right || first != (valid ? kOne : 0)) {
      return fail("wrong result in row", std::to_string(row));
    }
  }

  // Errors are values with a message that names the argument.
  layout.q2k_block_index[0] = 7;
  const kpage::Result<kpage::Plan> broken = kpage::Plan::build(layout.view());
  if (broken.ok() || broken.status().message().find("q2k_block_index") == std::string::npos) {
    return fail("a block that does not exist", "no error that names q2k_block_index");
  }
  std::printf("consumer: ok\n");
  return 0;
}
