// Every malformed argument of a run gives an error of its own, before anything is written.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kpage/attention.h"
#include "kpage/layout.h"
#include "kpage/plan.h"

namespace kpage {
namespace {

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kRows = 240;  // blocks of 128 and 100 rows, and padding
constexpr std::int64_t kHeadDim = 64;
constexpr std::uint16_t kPoison = 0x7fc1;

// A correct run of both passes, which owns its memory.
struct Scenario {
  std::vector<std::vector<std::uint16_t>> memory;
  std::vector<float> lse = std::vector<float>(kBatch * kHeads * kRows, 0.5F);
  std::vector<float> d_lse = std::vector<float>(kBatch * kHeads * kRows, 0.25F);
  Plan plan = make_plan();
  ForwardArgs forward;
  BackwardArgs backward;

  static Plan make_plan() {
    Layout layout;
    layout.batch = kBatch;
    layout.heads = kHeads;
    layout.q_blocks = 2;
    layout.kv_blocks = 2;
    layout.q_sizes = {128, 100};
    layout.max_list = 2;
    for (std::int64_t list = 0; list < kBatch * kHeads * 2; ++list) {
      layout.q2k_block_index.insert(layout.q2k_block_index.end(), {1, 0});
      layout.q2k_block_nums.push_back(2);
    }
    Result<Plan> made = Plan::build(layout.view());
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(made).value();
  }

  TensorRef tensor(std::int64_t heads, std::uint16_t fill) {
    memory.emplace_back(static_cast<std::size_t>(kBatch * heads * kRows * kHeadDim), fill);
    TensorRef ref;
    ref.data = memory.back().data();
    ref.shape = {kBatch, heads, kRows, kHeadDim};
    ref.stride = {heads * kRows * kHeadDim, kRows * kHeadDim, kHeadDim, 1};
    return ref;
  }

  static RowsRef rows(std::vector<float>& data) {
    RowsRef ref;
    ref.data = data.data();
    ref.shape = {kBatch, kHeads, kRows};
    ref.stride = {kHeads * kRows, kRows, 1};
    return ref;
  }

  Scenario() {
    EXPECT_TRUE(plan.build_backward().ok());
    forward.q = backward.q = tensor(kHeads, 0x3f80);
    forward.k = backward.k = tensor(kKvHeads, 0x3f80);
    forward.v = backward.v = tensor(kKvHeads, 0x3f80);
    forward.o = tensor(kHeads, kPoison);
    forward.lse = rows(lse);
    forward.plan = backward.plan = plan.ref();
    backward.o = tensor(kHeads, 0x3f80);
    backward.lse = rows(lse);
    backward.d_o = tensor(kHeads, 0x3f80);
    backward.d_lse = rows(d_lse);
    backward.dq = tensor(kHeads, kPoison);
    backward.dk = tensor(kKvHeads, kPoison);
    backward.dv = tensor(kKvHeads, kPoison);
  }
  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;

  [[nodiscard]] std::int64_t poisoned() const {
    std::int64_t count = 0;
    for (const auto& data : memory) {
      count += std::count(data.begin(), data.end(), kPoison);
    }
    return count;
  }
};

template <class Args>
struct Case {
  const char* name;
  std::function<void(Scenario&, Args&)> spoil;
  const char* message;  // all of it, or how it begins
};

template <class Args>
void PrintTo(const Case<Args>& c, std::ostream* out) {
  *out << c.name;
}

class ForwardErrors : public testing::TestWithParam<Case<ForwardArgs>> {};
class BackwardErrors : public testing::TestWithParam<Case<BackwardArgs>> {};

TEST_P(ForwardErrors, SayWhatIsWrongAndWriteNothing) {
  Scenario run;
  GetParam().spoil(run, run.forward);
  const std::int64_t before = run.poisoned();
  const Status status = attention_forward(run.forward);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), testing::StartsWith(GetParam().message));
  EXPECT_EQ(run.poisoned(), before);
  EXPECT_EQ(run.lse, std::vector<float>(run.lse.size(), 0.5F));
}

TEST_P(BackwardErrors, SayWhatIsWrongAndWriteNothing) {
  Scenario run;
  GetParam().spoil(run, run.backward);
  const std::int64_t before = run.poisoned();
  const Status status = attention_backward(run.backward);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), testing::StartsWith(GetParam().message));
  EXPECT_EQ(run.poisoned(), before);
}

const std::vector<Case<ForwardArgs>> kForwardCases = {
    {"QFloat32", [](Scenario&, ForwardArgs& a) { a.q.dtype = DType::kFloat32; },
     "q: expected bfloat16 or float16 (attention multiplies in 16 bits: convert first), got "
     "float32"},
    {"KFloat32", [](Scenario&, ForwardArgs& a) { a.k.dtype = DType::kFloat32; },
     "k: expected bfloat16 or float16 (attention multiplies in 16 bits: convert first), got "
     "float32"},
    {"VFloat64", [](Scenario&, ForwardArgs& a) { a.v.dtype = DType::kFloat64; },
     "v: expected bfloat16 or float16 (attention multiplies in 16 bits: convert first), got "
     "float64"},
    {"KOtherDtype", [](Scenario&, ForwardArgs& a) { a.k.dtype = DType::kFloat16; },
     "k: expected bfloat16 as q, got float16"},
    {"OOtherDtype", [](Scenario&, ForwardArgs& a) { a.o.dtype = DType::kFloat16; },
     "o: expected bfloat16 as q, got float16"},
    {"NoPlan", [](Scenario&, ForwardArgs& a) { a.plan = PlanRef{}; },
     "plan: expected a forward part, got a null pointer"},
    {"PlanShapeUnset", [](Scenario&, ForwardArgs& a) { a.plan.shape.batch = 0; },
     "plan: expected at least one batch element and head, in each head at most 16777216 blocks"},
    {"PlanOnCuda", [](Scenario&, ForwardArgs& a) { a.plan.device = {DeviceType::kCuda, 1}; },
     "plan: expected a plan on cpu as q, got cuda:1"},
    {"PlanMisaligned", [](Scenario&, ForwardArgs& a) { a.plan.forward += 4; },
     "plan: expected blobs at addresses that are multiples of 16, got "},
    {"PlanOfOtherMemory",
     [](Scenario& r, ForwardArgs& a) { a.plan.forward = r.plan.ref().backward; },
     "plan: expected a blob of plan format 2, got something else"},
    {"PlanShapeOfAnother", [](Scenario&, ForwardArgs& a) { a.plan.shape.max_list = 1; },
     "plan: expected batch, heads, q blocks, kv blocks, list length [2, 4, 2, 2, 1], got [2, 4, "
     "2, 2, 2]"},
    {"QBatch", [](Scenario&, ForwardArgs& a) { a.q.shape[0] = 1; },
     "q: expected batch 2 as in the plan, got 1"},
    {"QHeads", [](Scenario&, ForwardArgs& a) { a.q.shape[1] = 2; },
     "q: expected 4 heads as in the plan, got 2"},
    {"QNegativeSize", [](Scenario&, ForwardArgs& a) { a.q.shape[2] = -1; },
     "q: expected sizes of at least 0, got [2, 4, -1, 64]"},
    {"QTooManyRows", [](Scenario&, ForwardArgs& a) { a.q.shape[2] = std::int64_t{1} << 31; },
     "q: expected at most 2147483392 rows, got 2147483648"},
    {"QTooFewRows",
     [](Scenario&, ForwardArgs& a) { a.q.shape[2] = a.o.shape[2] = a.lse.shape[2] = 227; },
     "q: expected at least 228 rows, the end of the plan's last block, got 227"},
    {"KTooFewRows", [](Scenario&, ForwardArgs& a) { a.k.shape[2] = a.v.shape[2] = 128; },
     "k: expected at least 228 rows, the end of the plan's last block, got 128"},
    {"KBatch", [](Scenario&, ForwardArgs& a) { a.k.shape[0] = 1; },
     "k: expected batch 2 and head dimension 64 as in q, got [1, 2, 240, 64]"},
    {"KHeadDim", [](Scenario&, ForwardArgs& a) { a.k.shape[3] = 32; },
     "k: expected batch 2 and head dimension 64 as in q, got [2, 2, 240, 32]"},
    {"KHeads", [](Scenario&, ForwardArgs& a) { a.k.shape[1] = a.v.shape[1] = 3; },
     "k: expected a number of heads that divides the 4 of q, got 3"},
    {"KNoHeads", [](Scenario&, ForwardArgs& a) { a.k.shape[1] = a.v.shape[1] = 0; },
     "k: expected a number of heads that divides the 4 of q, got 0"},
    {"VShape", [](Scenario&, ForwardArgs& a) { a.v.shape[2] = 228; },
     "v: expected shape [2, 2, 240, 64], got [2, 2, 228, 64]"},
    {"OShape", [](Scenario&, ForwardArgs& a) { a.o.shape[2] = 228; },
     "o: expected shape [2, 4, 240, 64], got [2, 4, 228, 64]"},
    {"LseShape", [](Scenario&, ForwardArgs& a) { a.lse.shape[1] = 2; },
     "lse: expected shape [2, 4, 240], got [2, 2, 240]"},
    {"HeadDimZero", [](Scenario&, ForwardArgs& a) { a.q.shape[3] = 0; },
     "q: expected a head dimension of at least 1, got 0"},
    {"HeadDimUnsupported",
     [](Scenario&, ForwardArgs& a) {
       a.q.shape[3] = a.k.shape[3] = a.v.shape[3] = a.o.shape[3] = 60;
     },
     "no backend runs bfloat16, head dimension 60 on cpu; cpu supports head dimensions that are "
     "multiples of 8 up to 256, not 60"},
    {"KOnCuda", [](Scenario&, ForwardArgs& a) { a.k.device = {DeviceType::kCuda, 0}; },
     "k: expected a tensor on cpu as q, got cuda:0"},
    {"LseOnCuda", [](Scenario&, ForwardArgs& a) { a.lse.device = {DeviceType::kCuda, 0}; },
     "lse: expected a tensor on cpu as q, got cuda:0"},
    {"QLastStride", [](Scenario&, ForwardArgs& a) { a.q.stride[3] = 2; },
     "q: expected stride 1 in the last dimension, got 2"},
    {"VNegativeStride", [](Scenario&, ForwardArgs& a) { a.v.stride[2] = -64; },
     "v: expected strides of at least 0, got [30720, 15360, -64, 1]"},
    {"KStrideOverflow",
     [](Scenario&, ForwardArgs& a) { a.k.stride[0] = std::numeric_limits<std::int64_t>::max(); },
     "k: expected strides that stay within the address space, got "},
    {"QNull", [](Scenario&, ForwardArgs& a) { a.q.data = nullptr; },
     "q: expected memory for [2, 4, 240, 64], got a null pointer"},
    {"LseNull", [](Scenario&, ForwardArgs& a) { a.lse.data = nullptr; },
     "lse: expected memory for [2, 4, 240], got a null pointer"},
    {"QMisaligned",
     [](Scenario&, ForwardArgs& a) { a.q.data = static_cast<std::byte*>(a.q.data) + 1; },
     "q: expected an address that is a multiple of 2, got "},
    {"ORowsShared", [](Scenario&, ForwardArgs& a) { a.o.stride[1] = 0; },
     "o: expected strides that give each element memory of its own, got [61440, 0, 64, 1]"},
    {"LseRowsShared", [](Scenario&, ForwardArgs& a) { a.lse.stride[2] = 0; },
     "lse: expected strides that give each element memory of its own, got [960, 240, 0]"},
    {"OInPlace", [](Scenario&, ForwardArgs& a) { a.o.data = a.q.data; },
     "o: expected memory that no other argument uses, got memory shared with q"},
    {"OIntoV",
     [](Scenario& r, ForwardArgs& a) {
       a.v.data = r.memory[3].data() + r.memory[3].size() - 64;  // memory[3] is o
     },
     "o: expected memory that no other argument uses, got memory shared with v"},
    {"ScaleNan", [](Scenario&, ForwardArgs& a) { a.scale = std::nan(""); },
     "scale: expected a finite number, got nan"},
    {"ScaleInfinite", [](Scenario&, ForwardArgs& a) { a.scale = HUGE_VAL; },
     "scale: expected a finite number, got inf"},
    {"NegativeThreads", [](Scenario&, ForwardArgs& a) { a.threads = -1; },
     "threads: expected at least 0, got -1"},
};

const std::vector<Case<BackwardArgs>> kBackwardCases = {
    {"NoBackwardPart", [](Scenario&, BackwardArgs& a) { a.plan.backward = nullptr; },
     "plan: expected a backward part (build it first), got a forward part only"},
    {"BackwardPartOfOtherMemory",
     [](Scenario&, BackwardArgs& a) { a.plan.backward = a.plan.forward; },
     "plan's backward part: expected a blob of plan format 2, got something else"},
    {"DOutputDtype", [](Scenario&, BackwardArgs& a) { a.d_o.dtype = DType::kFloat32; },
     "d_o: expected bfloat16 or float16 (attention multiplies in 16 bits: convert first), got "
     "float32"},
    {"DqDtype", [](Scenario&, BackwardArgs& a) { a.dq.dtype = DType::kFloat16; },
     "dq: expected bfloat16 as q, got float16"},
    {"OShape", [](Scenario&, BackwardArgs& a) { a.o.shape[3] = 32; },
     "o: expected shape [2, 4, 240, 64], got [2, 4, 240, 32]"},
    {"DOutputShape", [](Scenario&, BackwardArgs& a) { a.d_o.shape[1] = 2; },
     "d_o: expected shape [2, 4, 240, 64], got [2, 2, 240, 64]"},
    {"DkShape", [](Scenario&, BackwardArgs& a) { a.dk.shape[1] = 4; },
     "dk: expected shape [2, 2, 240, 64], got [2, 4, 240, 64]"},
    {"DLseShape", [](Scenario&, BackwardArgs& a) { a.d_lse.shape[2] = 1; },
     "d_lse: expected shape [2, 4, 240], got [2, 4, 1]"},
    {"LseNull", [](Scenario&, BackwardArgs& a) { a.lse.data = nullptr; },
     "lse: expected memory for [2, 4, 240], got a null pointer"},
    {"DOutputLastStride", [](Scenario&, BackwardArgs& a) { a.d_o.stride[3] = 0; },
     "d_o: expected stride 1 in the last dimension, got 0"},
    {"DvHeadsShared", [](Scenario&, BackwardArgs& a) { a.dv.stride[1] = 0; },
     "dv: expected strides that give each element memory of its own, got [30720, 0, 64, 1]"},
    {"DkIntoDv", [](Scenario&, BackwardArgs& a) { a.dk.data = a.dv.data; },
     "dk: expected memory that no other argument uses, got memory shared with dv"},
    {"DqOnCuda", [](Scenario&, BackwardArgs& a) { a.dq.device = {DeviceType::kCuda, 2}; },
     "dq: expected a tensor on cpu as q, got cuda:2"},
    {"ScaleInfinite", [](Scenario&, BackwardArgs& a) { a.scale = -HUGE_VAL; },
     "scale: expected a finite number, got -inf"},
};

template <class Args>
std::string case_name(const testing::TestParamInfo<Case<Args>>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Api, ForwardErrors, testing::ValuesIn(kForwardCases),
                         case_name<ForwardArgs>);
INSTANTIATE_TEST_SUITE_P(Api, BackwardErrors, testing::ValuesIn(kBackwardCases),
                         case_name<BackwardArgs>);

TEST(ApiTest, TheRunThatTheCasesSpoilIsCorrect) {
  Scenario run;
  const Status forward = attention_forward(run.forward);
  ASSERT_TRUE(forward.ok()) << forward.message();
  EXPECT_FLOAT_EQ(run.lse[0], 8.0F + std::log(228.0F));  // scores are 64 / sqrt(64)
  EXPECT_EQ(run.lse[kRows - 1], -std::numeric_limits<float>::infinity());
  run.backward.o = run.forward.o;
  const Status backward = attention_backward(run.backward);
  ASSERT_TRUE(backward.ok()) << backward.message();
  EXPECT_EQ(run.poisoned(), 0);
}

// Q, K and V, and their gradients, as parts of one packed buffer each: ranges cross, bytes do not.
TEST(ApiTest, PackedTensorsDoNotOverlap) {
  Scenario run;
  constexpr std::int64_t kPitch = (kHeads + 2 * kKvHeads) * kHeadDim;
  std::vector<std::uint16_t> inputs(static_cast<std::size_t>(kBatch * kRows * kPitch), 0x3f80);
  std::vector<std::uint16_t> gradients(inputs.size(), kPoison);
  const auto part = [](std::vector<std::uint16_t>& buffer, TensorRef& t, std::int64_t first_head) {
    t.data = buffer.data() + first_head * kHeadDim;
    t.stride = {kRows * kPitch, kHeadDim, kPitch, 1};
  };
  BackwardArgs& args = run.backward;
  part(inputs, args.q, 0);
  part(inputs, args.k, kHeads);
  part(inputs, args.v, kHeads + kKvHeads);
  part(gradients, args.dq, 0);
  part(gradients, args.dk, kHeads);
  part(gradients, args.dv, kHeads + kKvHeads);
  const Status status = attention_backward(args);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(std::count(gradients.begin(), gradients.end(), kPoison), 0);
}

TEST(ApiTest, NoRowsAtAllIsNoError) {
  Scenario run;
  Layout layout;
  layout.batch = static_cast<std::int32_t>(kBatch);
  layout.heads = static_cast<std::int32_t>(kHeads);
  layout.q_blocks = layout.kv_blocks = 1;
  layout.q_sizes = {0};
  layout.max_list = 1;
  layout.q2k_block_index.assign(kBatch * kHeads, 0);
  layout.q2k_block_nums.assign(kBatch * kHeads, 1);
  Result<Plan> plan = Plan::build(layout.view());
  ASSERT_TRUE(plan.ok());
  ForwardArgs& args = run.forward;
  args.plan = plan.value().ref();
  for (TensorRef* t : {&args.q, &args.k, &args.v, &args.o}) {
    t->shape[2] = 0;
    t->data = nullptr;
  }
  args.lse.shape[2] = 0;
  args.lse.data = nullptr;
  const Status status = attention_forward(args);
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(ApiTest, CpuNeedsNoWorkspace) {
  Scenario run;
  EXPECT_EQ(forward_workspace_bytes(run.forward), 0);
  EXPECT_EQ(backward_workspace_bytes(run.backward), 0);
}

}  // namespace
}  // namespace kpage
