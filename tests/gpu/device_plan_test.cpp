// Plans built on the device against plans built on the host: byte for byte.
#include "kpage/device_plan.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kpage/geometry.h"
#include "kpage/plan.h"

#include "support/random_case.h"

namespace kpage {
namespace {

// Device memory that lives as long as a test needs it, poisoned.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    EXPECT_EQ(cudaMalloc(&data_, bytes_ + 1), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0xab, bytes_ + 1), cudaSuccess);
  }
  explicit DeviceBytes(const std::vector<std::int32_t>& values)
      : DeviceBytes(static_cast<std::int64_t>(values.size() * 4)) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes_, cudaMemcpyHostToDevice), cudaSuccess);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(data_); }

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] const std::int32_t* ints() const { return static_cast<const std::int32_t*>(data_); }
  [[nodiscard]] std::vector<std::byte> download() const {
    std::vector<std::byte> host(bytes_);
    EXPECT_EQ(cudaMemcpy(host.data(), data_, bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
    return host;
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

struct Blobs {
  std::vector<std::byte> forward;
  std::vector<std::byte> backward;
};

// A plan of host tensors, built on the device.
Blobs build_on_device(const LayoutView& host) {
  const auto copy = [](const std::int32_t* values, std::int64_t count) {
    return std::vector<std::int32_t>(values, values + (values != nullptr ? count : 0));
  };
  const std::int64_t walks = std::int64_t{host.batch} * host.heads * host.q.blocks;
  const std::int64_t q = scope_count(host.q.scope, host.batch, host.heads) * host.q.blocks;
  const std::int64_t kv = scope_count(host.kv.scope, host.batch, host.heads) * host.kv.blocks;
  const DeviceBytes q_sizes(copy(host.q.sizes, q));
  const DeviceBytes q_offsets(copy(host.q.offsets, q));
  const DeviceBytes kv_sizes(copy(host.kv.sizes, kv));
  const DeviceBytes kv_offsets(copy(host.kv.offsets, kv));
  const DeviceBytes index(copy(host.q2k_block_index, walks * host.max_list));
  const DeviceBytes nums(copy(host.q2k_block_nums, walks));
  LayoutView layout = host;
  layout.q.sizes = q_sizes.ints();
  layout.q.offsets = host.q.offsets != nullptr ? q_offsets.ints() : nullptr;
  layout.kv.sizes = kv_sizes.ints();
  layout.kv.offsets = host.kv.offsets != nullptr ? kv_offsets.ints() : nullptr;
  layout.q2k_block_index = index.ints();
  layout.q2k_block_nums = nums.ints();

  const PlanShape shape = plan_shape(layout);
  const DeviceBytes forward(forward_plan_bytes(shape));
  const DeviceBytes backward(backward_plan_bytes(shape));
  const std::int64_t scratch_bytes = backward_plan_scratch_bytes(shape);
  const DeviceBytes scratch(scratch_bytes);
  Status status = build_device_plan(layout, forward.data(), nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  const PlanRef ref{shape, {DeviceType::kCuda, 0}, forward.data(), nullptr};
  status = build_device_backward_plan(ref, backward.data(), scratch.data(), scratch_bytes, nullptr);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return {forward.download(), backward.download()};
}

void expect_same_bytes(const Layout& layout, const std::string& name) {
  Result<Plan> host = Plan::build(layout.view());
  ASSERT_TRUE(host.ok()) << name << ": " << host.status().message();
  ASSERT_TRUE(host.value().build_backward().ok());
  const Blobs device = build_on_device(layout.view());
  const Result<Plan> adopted = Plan::adopt(host.value().shape(), device.forward, device.backward);
  ASSERT_TRUE(adopted.ok()) << name << ": " << adopted.status().message();
  EXPECT_EQ(difference(host.value(), adopted.value()), "") << name;
}

std::uint64_t random_layouts() {
  const char* count = std::getenv("KPAGE_DEVICE_PLANS");
  return count != nullptr ? std::strtoull(count, nullptr, 10) : 1000;
}

TEST(DevicePlan, EqualsTheHostsOnRandomLayouts) {
  for (std::uint64_t seed = 1; seed <= random_layouts() && !HasFailure(); ++seed) {
    const test::Case random = test::random_case(seed);
    expect_same_bytes(random.layout, random.describe());
  }
}

TEST(DevicePlan, EqualsTheHostsOnBenchmarkLayouts) {
  for (const std::string_view name : layout_names()) {
    const Result<Layout> layout = named_layout(name);
    ASSERT_TRUE(layout.ok()) << layout.status().message();
    expect_same_bytes(layout.value(), std::string(name));
  }
}

TEST(DevicePlan, SplitsLongWalksAsTheHostDoes) {
  Layout layout;
  layout.shared_partition = false;
  layout.q_blocks = 2100;
  layout.kv_blocks = 40;
  for (std::int32_t b = 0; b < layout.q_blocks; ++b) {
    layout.q_sizes.push_back(b % 7 == 0 ? 128 : 113 + b % 15);
  }
  for (std::int32_t b = 0; b < layout.kv_blocks; ++b) {
    layout.kv_sizes.push_back(b % 3 == 0 ? 128 : 1 + b);
  }
  layout.max_list = layout.kv_blocks;
  for (std::int32_t q = 0; q < layout.q_blocks; ++q) {
    for (std::int32_t k = 0; k < layout.kv_blocks; ++k) {
      layout.q2k_block_index.push_back(k);
    }
    layout.q2k_block_nums.push_back(q % 5 == 0 ? 20 : 40);
  }
  expect_same_bytes(layout, "long walks");
}

// --- Malformed input: never a fault, always told --------------------------------------------

Layout small_layout() {
  Layout layout;
  layout.q_blocks = layout.kv_blocks = 4;
  layout.q_sizes = {128, 64, 0, 7};
  layout.q_offsets = {0, 128, 0, 300};
  layout.max_list = 3;
  layout.q2k_block_index = {0, 1, 2, 3, -1, -1, 0, 1, 3, 2, 1, 0};
  layout.q2k_block_nums = {3, 1, 3, 2};
  return layout;
}

std::string fault_of(const Layout& layout) {
  const Blobs blobs = build_on_device(layout.view());
  return plan_fault(plan_shape(layout.view()), blobs.forward).message();
}

// In the words of kpage::validate().
TEST(DevicePlan, TellsWhatIsWrong) {
  EXPECT_EQ(fault_of(small_layout()), "");
  const auto expect_same_words = [](const auto& spoil) {
    Layout bad = small_layout();
    spoil(bad);
    const Status host = validate(bad.view());
    EXPECT_FALSE(host.ok());
    EXPECT_EQ(fault_of(bad), host.message());
  };
  expect_same_words([](Layout& l) { l.q2k_block_index[10] = 4; });
  expect_same_words([](Layout& l) { l.q2k_block_index[0] = -1; });
  expect_same_words([](Layout& l) { l.q2k_block_index[1] = 0; });
  expect_same_words([](Layout& l) { l.q2k_block_nums[1] = 4; });
  expect_same_words([](Layout& l) { l.q2k_block_nums[1] = -2147483647; });
  expect_same_words([](Layout& l) { l.q_sizes[3] = 129; });
  expect_same_words([](Layout& l) { l.q_sizes[2] = -1; });
  expect_same_words([](Layout& l) { l.q_offsets[3] = 191; });
  expect_same_words([](Layout& l) { l.q_offsets[0] = 2147483600; });
  expect_same_words([](Layout& l) { l.q_offsets[0] = -1; });
  expect_same_words([](Layout& l) {
    l.q2k_block_index[10] = 4;
    l.q2k_block_nums[1] = 4;
    l.q_sizes[3] = 129;
  });
}

}  // namespace
}  // namespace kpage
