// validate(): what it accepts, and one clear message for each malformed layout.
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kpage/layout.h"

namespace kpage {
namespace {

using testing::HasSubstr;

// Two batch elements, two heads, three query blocks of 128, 17 and 0 rows; four K/V blocks, per
// head; lists of up to two blocks in three places.
Layout good_layout() {
  Layout layout;
  layout.batch = 2;
  layout.heads = 2;
  layout.q_blocks = 3;
  layout.kv_blocks = 4;
  layout.shared_partition = false;
  layout.kv_scope = PartitionScope::kPerHead;
  layout.q_sizes = {128, 17, 0};
  layout.kv_sizes = {1, 15, 16, 127, 0, 64, 65, 63};
  layout.kv_offsets = {0, 1, 16, 32, -7, 300, 100, 37};
  layout.max_list = 3;
  layout.q2k_block_nums = {2, 0, 1, 2, 3, 0, 1, 1, 1, 0, 0, 3};
  layout.q2k_block_index.assign(36, -99);
  for (std::size_t list = 0; list < 12; ++list) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(layout.q2k_block_nums[list]); ++i) {
      layout.q2k_block_index[3 * list + i] = static_cast<std::int32_t>((list + 3 * i) % 4);
    }
  }
  return layout;
}

TEST(LayoutValidate, AcceptsARaggedLayout) {
  const Layout layout = good_layout();
  const Status status = validate(layout.view());
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST(LayoutValidate, AcceptsEverySize) {
  for (const std::int32_t size : {0, 1, 15, 16, 17, 63, 64, 65, 127, 128}) {
    Layout layout = good_layout();
    layout.q_sizes = {size, size, size};
    EXPECT_TRUE(validate(layout.view()).ok()) << size;
  }
}

TEST(LayoutValidate, AcceptsNoBlocksAndNoLists) {
  EXPECT_TRUE(validate(LayoutView{}).ok());
  Layout layout = good_layout();
  layout.max_list = 0;
  layout.q2k_block_index.clear();
  layout.q2k_block_nums.assign(12, 0);
  EXPECT_TRUE(validate(layout.view()).ok());
}

TEST(LayoutValidate, IgnoresWhatMayHoldAnything) {
  Layout layout = good_layout();
  layout.kv_offsets[4] = 0x7fffffff;    // of an empty block
  layout.q2k_block_index[3] = 1 << 30;  // past the prefix of a list
  EXPECT_TRUE(validate(layout.view()).ok());
}

TEST(LayoutValidate, AcceptsBlocksThatTouchInAnyOrder) {
  Layout layout = good_layout();
  layout.kv_offsets = {127, 128, 143, 0, 0, 64, 128, 1};
  layout.kv_sizes = {1, 15, 16, 127, 0, 64, 65, 63};
  EXPECT_TRUE(validate(layout.view()).ok());
}

TEST(LayoutValidate, AcceptsTheLastRowThereIs) {
  Layout layout = good_layout();
  layout.kv_offsets[3] = kMaxRows - 127;
  EXPECT_TRUE(validate(layout.view()).ok());
}

// --- The table of malformed layouts ---------------------------------------------------------

struct Malformed {
  const char* what;
  void (*spoil)(Layout&);
  const char* message;
  void (*spoil_view)(LayoutView&) = nullptr;  // pointers, which no owning layout has wrong
};

void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.what; }

const std::vector<Malformed>& malformed_layouts() {
  static const std::vector<Malformed> kTable = {
      {"batch_zero", [](Layout& l) { l.batch = 0; }, "batch: expected at least 1, got 0"},
      {"batch_negative", [](Layout& l) { l.batch = -2; }, "batch: expected at least 1, got -2"},
      {"heads_zero", [](Layout& l) { l.heads = 0; }, "heads: expected 1 to 1073741823, got 0"},
      {"pairs_overflow", [](Layout& l) { l.heads = 0x7fffffff; },
       "heads: expected 1 to 1073741823, got 2147483647"},
      {"max_list_negative", [](Layout& l) { l.max_list = -1; },
       "q2k_block_index: expected a last dimension of at least 0, got -1"},
      {"q_blocks_negative", [](Layout& l) { l.q_blocks = -1; },
       "q_block_sizes: expected 0 to 16777216 blocks, got -1"},
      {"kv_blocks_too_many", [](Layout& l) { l.kv_blocks = kMaxBlocks + 1; },
       "kv_block_sizes: expected 0 to 16777216 blocks, got 16777217"},
      {"graph_overflow",
       [](Layout& l) {
         l.batch = 1 << 15;
         l.heads = 1 << 15;
         l.q_blocks = kMaxBlocks;
         l.max_list = 0x7fffffff;
       },
       "q2k_block_index: expected at most 1152921504606846976 elements, got [32768, 32768, "
       "16777216, 2147483647]"},
      {"q_sizes_null", [](Layout&) {}, "q_block_sizes: expected a tensor of 3 elements, got null",
       [](LayoutView& v) { v.q.sizes = nullptr; }},
      {"kv_sizes_null", [](Layout&) {}, "kv_block_sizes: expected a tensor of 8 elements, got null",
       [](LayoutView& v) { v.kv.sizes = nullptr; }},
      {"nums_null", [](Layout&) {}, "q2k_block_nums: expected a tensor of 12 elements, got null",
       [](LayoutView& v) { v.q2k_block_nums = nullptr; }},
      {"index_null", [](Layout&) {}, "q2k_block_index: expected a tensor of 36 elements, got null",
       [](LayoutView& v) { v.q2k_block_index = nullptr; }},
      {"q_scope_unknown", [](Layout& l) { l.q_scope = static_cast<PartitionScope>(3); },
       "q_block_sizes: expected a scope of 0 (shared), 1 (per head) or 2 (per batch element and "
       "head), got 3"},
      {"q_size_negative", [](Layout& l) { l.q_sizes[1] = -1; },
       "q_block_sizes[1]: expected valid rows in [0, 128], got -1"},
      {"q_size_too_large", [](Layout& l) { l.q_sizes[2] = 129; },
       "q_block_sizes[2]: expected valid rows in [0, 128], got 129"},
      {"kv_size_too_large", [](Layout& l) { l.kv_sizes[6] = 0x7fffffff; },
       "kv_block_sizes[1, 2]: expected valid rows in [0, 128], got 2147483647"},
      {"kv_size_of_batch_and_head",
       [](Layout& l) {
         l.kv_scope = PartitionScope::kPerBatchHead;
         l.kv_sizes.resize(16, 0);
         l.kv_offsets.clear();
         l.kv_sizes[13] = -128;
       },
       "kv_block_sizes[1, 1, 1]: expected valid rows in [0, 128], got -128"},
      {"offset_negative", [](Layout& l) { l.kv_offsets[0] = -1; },
       "kv_block_offsets[0, 0]: expected a first row of at least 0, and rows that end by "
       "2147483392, got -1"},
      {"offset_too_large", [](Layout& l) { l.kv_offsets[3] = kMaxRows - 126; },
       "kv_block_offsets[0, 3]: expected a first row of at least 0, and rows that end by "
       "2147483392, got 2147483266"},
      {"q_offset_too_large", [](Layout& l) { l.q_offsets = {0, 0x7fffffff, 0}; },
       "q_block_offsets[1]: expected a first row of at least 0, and rows that end by 2147483392, "
       "got 2147483647"},
      {"overlap_ascending", [](Layout& l) { l.kv_offsets[2] = 15; },
       "kv_block_offsets[0, 2]: expected rows that no other block of the head holds, got first row "
       "15"},
      {"overlap_unordered", [](Layout& l) { l.kv_offsets[7] = 38; },
       "kv_block_offsets[1, 2]: expected rows that no other block of the head holds, got first row "
       "100"},
      {"overlap_inside_a_larger_one",
       [](Layout& l) { l.kv_offsets = {100, 90, 200, 32, 0, 300, 100, 0}; },
       "kv_block_offsets[0, 0]: expected rows that no other block of the head holds, got first row "
       "100"},
      {"overlap_same_row", [](Layout& l) { l.q_offsets = {50, 50, 0}; },
       "q_block_offsets[1]: expected rows that no other block of the head holds, got first row 50"},
      {"num_negative", [](Layout& l) { l.q2k_block_nums[5] = -1; },
       "q2k_block_nums[0, 1, 2]: expected a list length in [0, 3], got -1"},
      {"num_past_max_list", [](Layout& l) { l.q2k_block_nums[11] = 4; },
       "q2k_block_nums[1, 1, 2]: expected a list length in [0, 3], got 4"},
      {"id_negative", [](Layout& l) { l.q2k_block_index[12] = -1; },
       "q2k_block_index[0, 1, 1, 0]: expected an id in [0, 4), got -1"},
      {"id_of_no_block", [](Layout& l) { l.q2k_block_index[35] = 4; },
       "q2k_block_index[1, 1, 2, 2]: expected an id in [0, 4), got 4"},
      {"id_twice", [](Layout& l) { l.q2k_block_index[14] = l.q2k_block_index[12]; },
       "q2k_block_index[0, 1, 1, 2]: expected an id that the list does not have yet, got 0"},
      {"id_where_there_are_no_blocks",
       [](Layout& l) {
         l.kv_blocks = 0;
         l.kv_sizes.clear();
         l.kv_offsets.clear();
       },
       "q2k_block_index[0, 0, 0, 0]: expected an id in [0, 0), got 0"},
  };
  return kTable;
}

class MalformedLayout : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedLayout, GivesItsOwnMessage) {
  Layout layout = good_layout();
  GetParam().spoil(layout);
  LayoutView view = layout.view();
  if (GetParam().spoil_view != nullptr) {
    GetParam().spoil_view(view);
  }
  const Status status = validate(view);
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.message(), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(Table, MalformedLayout, testing::ValuesIn(malformed_layouts()),
                         [](const auto& test) { return std::string(test.param.what); });

TEST(LayoutValidate, MessagesOfTheTableDiffer) {
  std::vector<std::string> messages;
  for (const Malformed& malformed : malformed_layouts()) {
    messages.emplace_back(malformed.message);
  }
  EXPECT_THAT(messages, testing::Each(HasSubstr(": expected ")));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(messages[i], messages[j]);
    }
  }
}

TEST(LayoutValidate, ReportsTheFirstFaultInTheOrderOfArguments) {
  Layout layout = good_layout();
  layout.q2k_block_index[0] = 77;
  layout.q2k_block_nums[11] = 9;
  EXPECT_THAT(validate(layout.view()).message(), HasSubstr("q2k_block_nums[1, 1, 2]"));
  layout.kv_offsets[1] = -5;
  EXPECT_THAT(validate(layout.view()).message(), HasSubstr("kv_block_offsets[0, 1]"));
  layout.kv_sizes[7] = 200;
  EXPECT_THAT(validate(layout.view()).message(), HasSubstr("kv_block_sizes[1, 3]"));
  layout.q_sizes[0] = -3;
  EXPECT_THAT(validate(layout.view()).message(), HasSubstr("q_block_sizes[0]"));
}

TEST(LayoutValidate, NamesTheQSideWherePartitionsAreShared) {
  Layout layout = good_layout();
  layout.shared_partition = true;
  layout.kv_blocks = 3;
  layout.q_sizes[1] = 500;
  EXPECT_THAT(validate(layout.view()).message(), HasSubstr("q_block_sizes[1]"));
}

// Blocks 128 rows apart reach past the last row only at the far end.
TEST(LayoutValidate, ImpliedOffsetsEndByTheLastRow) {
  std::vector<std::int32_t> sizes(kMaxBlocks, 0);
  LayoutView view;
  view.q = view.kv = {sizes.data(), nullptr, kMaxBlocks, PartitionScope::kShared};
  sizes[0] = sizes[kMaxBlocks - 3] = 128;
  std::vector<std::int32_t> nums(kMaxBlocks, 0);
  view.q2k_block_nums = nums.data();
  EXPECT_TRUE(validate(view).ok());
  sizes[kMaxBlocks - 2] = 1;
  EXPECT_THAT(validate(view).message(), HasSubstr("q_block_offsets[16777214]"));
}

}  // namespace
}  // namespace kpage
