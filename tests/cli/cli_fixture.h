// Runs command lines in this process, in a folder of their own.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "safetensors.h"

namespace kpage::cli {

struct Outcome {
  int code = 0;
  std::string out;
  std::string err;

  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(out); }
};

inline Outcome run_cli(const std::vector<std::string>& words) {
  std::vector<const char*> argv = {"kpage"};
  for (const std::string& word : words) {
    argv.push_back(word.c_str());
  }
  std::ostringstream out;
  std::ostringstream err;
  const int code = run(static_cast<int>(argv.size()), argv.data(), {out, err});
  return {code, out.str(), err.str()};
}

// A tensor to write, with bytes of its own.
struct TestTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;
};

template <class T>
TestTensor test_tensor(const std::string& name, const std::string& dtype,
                       std::vector<std::int64_t> shape, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {name, dtype, std::move(shape), {bytes.begin(), bytes.end()}};
}
inline TestTensor int_tensor(const std::string& name, std::vector<std::int64_t> shape,
                             const std::vector<std::int32_t>& values) {
  return test_tensor(name, "I32", std::move(shape), values);
}

// Changes into a fresh folder for the length of a test.
class CliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(info->test_suite_name()) + "." + info->name();
    for (char& c : name) {
      c = c == '/' ? '-' : c;
    }
    before_ = std::filesystem::current_path();
    folder_ = std::filesystem::temp_directory_path() / ("kpage-cli-" + name);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }

  static void write(const std::string& path, const std::vector<TestTensor>& tensors) {
    std::vector<FileTensor> views;
    for (const TestTensor& tensor : tensors) {
      views.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data});
    }
    std::ofstream file(path, std::ios::binary);
    write_safetensors(file, views, {});
  }

  // Two blocks of 100 and 28 rows, one head: block 0 attends to both, block 1 to itself.
  static std::vector<TestTensor> small_layout() {
    return {int_tensor("q2k_block_index", {1, 1, 2, 2}, {0, 1, 1, 0}),
            int_tensor("q2k_block_nums", {1, 1, 2}, {2, 1}),
            int_tensor("q_block_sizes", {2}, {100, 28})};
  }

  // bf16 tensors [1, heads, tokens, 64] whose values depend on their place.
  static TestTensor bf16_tensor(const std::string& name, std::int64_t heads, std::int64_t tokens,
                                std::int64_t head_dim = 64) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(heads * tokens * head_dim));
    std::uint32_t state = static_cast<std::uint32_t>(name[0]) * 2654435761u;
    for (std::uint16_t& value : values) {
      state = state * 1664525u + 1013904223u;
      // Sign and mantissa at random, exponents of 0.25 to 1: bits of a bf16.
      const std::uint32_t exponent = 125 + (state >> 20) % 2;
      value =
          static_cast<std::uint16_t>((state >> 31) << 15 | exponent << 7 | ((state >> 12) & 0x7fu));
    }
    return test_tensor(name, "BF16", {1, heads, tokens, head_dim}, values);
  }
  static std::vector<TestTensor> small_capture(std::int64_t heads = 2, std::int64_t tokens = 480) {
    return {bf16_tensor("q", heads, tokens), bf16_tensor("k", heads, tokens),
            bf16_tensor("v", heads, tokens)};
  }

  static std::set<std::string> files() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(".")) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  static std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path before_;
  std::filesystem::path folder_;
};

}  // namespace kpage::cli
