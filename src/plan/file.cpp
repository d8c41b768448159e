// Plans in files: a header, the shape, then the two blobs as they are in memory.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kpage/plan.h"

#include "base/input_file.h"
#include "plan/format.h"

namespace kpage {
namespace {

constexpr std::array<char, 8> kFileMagic = {'K', 'P', 'A', 'G', 'E', 'P', 'L', 'N'};

struct FileHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  PlanShape shape;
  std::int64_t forward_bytes;
  std::int64_t backward_bytes;  // 0: not built
};

Status io_error(const std::string& path, const std::string& what) {
  return {ErrorCode::kIo, path + ": " + what};
}

}  // namespace

void Plan::save(std::ostream& file) const {
  FileHeader header{};
  header.magic = kFileMagic;
  header.version = plan::kPlanVersion;
  header.shape = shape_;
  header.forward_bytes = static_cast<std::int64_t>(forward_.size());
  header.backward_bytes = static_cast<std::int64_t>(backward_.size());
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.write(reinterpret_cast<const char*>(forward_.data()),
             static_cast<std::streamsize>(forward_.size()));
  file.write(reinterpret_cast<const char*>(backward_.data()),
             static_cast<std::streamsize>(backward_.size()));
}

Status Plan::save(const std::string& path) const {
  std::error_code failed;
  // Renaming would put a file in the place of a device such as /dev/null.
  if (std::filesystem::exists(path, failed) && !std::filesystem::is_directory(path, failed) &&
      !std::filesystem::is_regular_file(path, failed)) {
    return io_error(path, "expected a regular file, got a device or pipe");
  }
  const std::string unfinished = path + ".part";
  {
    std::ofstream out(unfinished, std::ios::binary);
    save(out);
    out.close();
    if (!out) {
      const std::string reason = std::strerror(errno);
      std::remove(unfinished.c_str());
      return io_error(path, "expected a file that can be written, got: " + reason);
    }
  }
  std::filesystem::rename(unfinished, path, failed);
  if (failed) {
    std::remove(unfinished.c_str());
    return io_error(path, "expected a file that can be replaced, got: " + failed.message());
  }
  return {};
}

Result<Plan> Plan::load(const std::string& path) {
  std::ifstream in = open_input(path);
  if (!in.is_open()) {
    return io_error(path, "expected a plan file that can be read");
  }
  FileHeader header{};
  in.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!in || header.magic != kFileMagic) {
    return io_error(path, "expected a plan file, got something else");
  }
  if (header.version != plan::kPlanVersion) {
    return io_error(path, "expected plan version " + std::to_string(plan::kPlanVersion) + ", got " +
                              std::to_string(header.version));
  }
  std::error_code failed;
  const auto file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path, failed));
  const auto rest = file_bytes - static_cast<std::int64_t>(sizeof header);
  const bool sizes_fit = !failed && header.forward_bytes >= 0 && header.backward_bytes >= 0 &&
                         header.forward_bytes <= rest &&
                         header.backward_bytes == rest - header.forward_bytes;
  if (!sizes_fit) {
    return io_error(path, "expected " + std::to_string(header.forward_bytes) + " + " +
                              std::to_string(header.backward_bytes) +
                              " bytes after the header, got " + std::to_string(rest));
  }
  std::vector<std::byte> forward(static_cast<std::size_t>(header.forward_bytes));
  std::vector<std::byte> backward(static_cast<std::size_t>(header.backward_bytes));
  in.read(reinterpret_cast<char*>(forward.data()), header.forward_bytes);
  in.read(reinterpret_cast<char*>(backward.data()), header.backward_bytes);
  if (!in) {
    return io_error(path, "expected a whole plan, got a file that ends early");
  }
  Result<Plan> plan = adopt(header.shape, forward, backward);
  return plan.ok() ? std::move(plan) : Result<Plan>(io_error(path, plan.status().message()));
}

}  // namespace kpage
