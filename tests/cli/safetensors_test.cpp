#include "safetensors.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli_fixture.h"
#include "failure.h"
#include "output_file.h"

namespace kpage::cli {
namespace {

using ::testing::HasSubstr;

class SafetensorsTest : public CliTest {};

TEST_F(SafetensorsTest, ReadsBackWhatItWrote) {
  const std::vector<float> numbers = {1.5f, -2.0f, 3.25f};
  write("a.safetensors",
        {int_tensor("ids", {2, 2}, {1, 2, 3, -4}), test_tensor("numbers", "F32", {3}, numbers),
         test_tensor<float>("nothing", "F32", {0, 7}, {}),
         test_tensor<float>("scalar", "F32", {}, {2.5f})});
  const SafetensorsFile file("a.safetensors");
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(int32_values(file, file.at("ids")), (std::vector<std::int32_t>{1, 2, 3, -4}));
  EXPECT_EQ(file.at("ids").shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(file.at("numbers").data.size(), 12u);
  EXPECT_EQ(file.at("nothing").elements(), 0);
  EXPECT_EQ(file.at("scalar").elements(), 1);
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST_F(SafetensorsTest, DataBeginsAligned) {
  for (const char* name : {"a", "ab", "a name of some length"}) {
    write("a.safetensors", {int_tensor(name, {1}, {7})});
    const std::string bytes = contents("a.safetensors");
    EXPECT_EQ((bytes.size() - 4) % 64, 0u) << name;
  }
}

TEST_F(SafetensorsTest, Int64IsTakenWhereItFits) {
  const std::vector<std::int64_t> fits = {0, std::numeric_limits<std::int32_t>::max()};
  const std::vector<std::int64_t> too_large = {0, std::int64_t{1} << 31};
  write("a.safetensors",
        {test_tensor("fits", "I64", {2}, fits), test_tensor("large", "I64", {2}, too_large)});
  const SafetensorsFile file("a.safetensors");
  EXPECT_EQ(int32_values(file, file.at("fits")).back(), std::numeric_limits<std::int32_t>::max());
  EXPECT_THROW((void)int32_values(file, file.at("large")), Failure);
  const auto first_counts = [](std::size_t position) { return position == 0; };
  EXPECT_EQ(int32_values(file, file.at("large"), first_counts), (std::vector<std::int32_t>{0, 0}));
}

TEST_F(SafetensorsTest, DtypesThatNobodyReadsAreTaken) {
  write("a.safetensors", {test_tensor<double>("x", "C128", {1}, {1.0, 0.0}),
                          test_tensor<std::uint8_t>("y", "F4", {4}, {0, 0})});
  const SafetensorsFile file("a.safetensors");
  EXPECT_EQ(file.at("x").data.size(), 16u);
  EXPECT_EQ(file.at("y").data.size(), 2u);
  EXPECT_THROW((void)int32_values(file, file.at("y")), Failure);
}

TEST_F(SafetensorsTest, FileThatCannotBeWrittenIsAnErrorThatNamesIt) {
  OutputFiles outputs({});
  const OutputFile* output = outputs.add("--output", "a.bin");
  EXPECT_EQ(outputs.add("--report", ""), nullptr);
  try {
    output->write([](std::ostream& file) { file.setstate(std::ios::badbit); });
    FAIL() << "no error";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit_code(), kFailed);
    EXPECT_THAT(failure.what(), HasSubstr("--output: cannot write a.bin: "));
  }
}

TEST_F(SafetensorsTest, FoldersAndFilesByOtherNamesAreTheSame) {
  std::filesystem::create_directory("folder");
  std::filesystem::create_directory_symlink("folder", "link");
  std::ofstream("folder/input") << "kept";
  std::filesystem::create_symlink("folder/input", "input");
  std::filesystem::create_symlink("folder/absent", "dangling");
  const auto message_of = [](OutputFiles& files, const std::string& path) -> std::string {
    try {
      files.add("--b", path);
    } catch (const Failure& failure) {
      return failure.what();
    }
    return "";
  };
  OutputFiles files({"", "link/input"});
  for (const char* path : {"link/input", "folder/input", "input", "folder/../link/./input"}) {
    EXPECT_THAT(message_of(files, path), HasSubstr("--b: expected another file than the input"));
  }
  files.add("--a", "link/new")->write([](std::ostream& file) { file << "new"; });
  for (const char* path : {"folder/new", "link/../folder/new", "./link/new"}) {
    EXPECT_THAT(message_of(files, path), HasSubstr("is written by --a already"));
  }
  EXPECT_EQ(message_of(files, "dangling"), "");
  EXPECT_EQ(message_of(files, "other"), "");
  files.commit();
  EXPECT_EQ(contents("folder/new"), "new");
  EXPECT_EQ(contents("folder/input"), "kept");
}

// A file of this header and so many bytes of data.
struct Malformed {
  const char* name;
  std::string header;
  std::size_t data;
  const char* message;
};

class MalformedSafetensors : public CliTest, public ::testing::WithParamInterface<Malformed> {};

TEST_P(MalformedSafetensors, IsAnErrorThatSaysWhy) {
  const Malformed& bad = GetParam();
  {
    std::ofstream file("bad.safetensors", std::ios::binary);
    char length[8];
    for (std::size_t i = 0; i < 8; ++i) {
      length[i] = static_cast<char>((bad.header.size() >> (8 * i)) & 0xff);
    }
    file.write(length, 8);
    file << bad.header << std::string(bad.data, '\0');
  }
  try {
    const SafetensorsFile file("bad.safetensors");
    FAIL() << "opened";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit_code(), kBadInput);
    EXPECT_THAT(failure.what(), HasSubstr("bad.safetensors"));
    EXPECT_THAT(failure.what(), HasSubstr(bad.message));
  }
}

std::string one(const std::string& tensor) { return R"({"a":)" + tensor + "}"; }

INSTANTIATE_TEST_SUITE_P(
    Headers, MalformedSafetensors,
    ::testing::Values(
        Malformed{"NotJson", "{\"a\":", 0, "header is not JSON"},
        Malformed{"NotUtf8", "{\"\xff\":1}", 0, "header is not JSON"},
        Malformed{"Array", "[]", 0, "expected a JSON object as header, got array"},
        Malformed{"NameTwice",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                  R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                  1, "the name a twice"},
        Malformed{"TensorIsNumber", one("3"), 0, "tensor a: expected an object"},
        Malformed{"NoDtype", one(R"({"shape":[1],"data_offsets":[0,1]})"), 1, "dtype is missing"},
        Malformed{"NoShape", one(R"({"dtype":"U8","data_offsets":[0,1]})"), 1, "shape is missing"},
        Malformed{"NegativeShape", one(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})"), 1,
                  "shape holds -1"},
        Malformed{"FractionInShape", one(R"({"dtype":"U8","shape":[1.5],"data_offsets":[0,1]})"), 1,
                  "shape holds 1.5"},
        Malformed{"HugeShape",
                  one(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,1]})"), 1,
                  "is too large"},
        Malformed{"NoOffsets", one(R"({"dtype":"U8","shape":[1]})"), 1, "data_offsets is missing"},
        Malformed{"OffsetsBackwards", one(R"({"dtype":"U8","shape":[1],"data_offsets":[1,0]})"), 1,
                  "are not a range"},
        Malformed{"Truncated", one(R"({"dtype":"U8","shape":[9],"data_offsets":[0,9]})"), 4,
                  "it is truncated"},
        Malformed{"WrongLength", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), 4,
                  "expected 8 bytes for F32 [2], got 4"},
        Malformed{"Overlap",
                  R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                  R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                  6, "overlap"},
        Malformed{"Hole",
                  R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                  R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})",
                  6, "tensor b: bytes before it belong to no tensor"},
        Malformed{"BytesLeftOver", one(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})"), 5,
                  "the last 3 bytes belong to no tensor"},
        Malformed{"MetadataIsList", R"({"__metadata__":[]})", 0, "__metadata__ is not an object"},
        Malformed{"MetadataOfNumbers", R"({"__metadata__":{"a":1}})", 0,
                  "__metadata__ a is not a string"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(SafetensorsTest, HeaderLengthBeyondTheFileIsAnError) {
  std::ofstream("bad.safetensors", std::ios::binary) << std::string(8, '\xff') << "{}";
  EXPECT_THROW(SafetensorsFile file("bad.safetensors"), Failure);
  std::ofstream("short.safetensors", std::ios::binary) << "abc";
  EXPECT_THROW(SafetensorsFile file("short.safetensors"), Failure);
  EXPECT_THROW(SafetensorsFile file("."), Failure);
  EXPECT_THROW(SafetensorsFile file("absent.safetensors"), Failure);
}

}  // namespace
}  // namespace kpage::cli
