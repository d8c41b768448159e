#include "output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <unistd.h>

#include "failure.h"

namespace kpage::cli {

OutputFiles::~OutputFiles() {
  for (const File& file : files_) {
    std::error_code ignored;
    std::filesystem::remove(file.temporary, ignored);
  }
}

std::string OutputFiles::add(const std::string& flag, const std::string& path) {
  std::error_code ignored;
  if (path.empty()) {
    throw bad_input(flag + ": expected a file name, got an empty one");
  }
  if (std::filesystem::is_directory(path, ignored)) {
    throw bad_input(flag + ": expected a file name, got the folder " + path);
  }
  for (const File& other : files_) {
    if (std::filesystem::absolute(other.path) == std::filesystem::absolute(path)) {
      throw bad_input(flag + ": " + path + " is written by " + other.flag + " already");
    }
  }
  const std::string temporary =
      path + "." + std::to_string(::getpid()) + "-" + std::to_string(files_.size()) + ".part";
  if (!std::ofstream(temporary, std::ios::binary)) {
    throw bad_input(flag + ": cannot write " + path + ": " + std::strerror(errno));
  }
  files_.push_back({flag, path, temporary});
  return temporary;
}

void OutputFiles::commit() {
  for (const File& file : files_) {
    std::error_code error;
    std::filesystem::rename(file.temporary, file.path, error);
    if (error) {
      throw run_failed(file.flag + ": cannot write " + file.path + ": " + error.message());
    }
  }
  files_.clear();
}

}  // namespace kpage::cli
