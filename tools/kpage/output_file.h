// Files that a command writes: made under a temporary name beside the final one and renamed when
// everything has succeeded, so that an error or an interrupt leaves nothing behind.
#pragma once

#include <list>
#include <string>

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
  std::list<File> files_;  // a signal handler reads their names: they never move
};

}  // namespace kpage::cli
