// Files that a command writes: made under a temporary name beside the final one and renamed when
// everything has succeeded, so that an error leaves nothing behind.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace kpage::cli {

class OutputFiles {
 public:
  OutputFiles() = default;
  ~OutputFiles();  // removes what was not committed
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // The name to write under. Fails at once where no file can be made there; `flag` is named then.
  [[nodiscard]] std::string add(const std::string& flag, const std::string& path);
  void commit();

 private:
  struct File {
    std::string flag;
    std::string path;
    std::string temporary;
  };
  std::vector<File> files_;
};

}  // namespace kpage::cli
