// Files to read.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace kpage {

// Open where there is a regular file that can be read: to open anything else, such as a named pipe,
// could wait for ever.
[[nodiscard]] inline std::ifstream open_input(const std::string& path) {
  std::error_code failed;
  std::ifstream file;
  if (std::filesystem::is_regular_file(path, failed)) {
    file.open(path, std::ios::binary);
  }
  return file;
}

}  // namespace kpage
