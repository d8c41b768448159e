// Files that a command writes: made under a temporary name beside the final one and renamed when
// everything has succeeded, so that an error or an interrupt leaves nothing behind.
#pragma once

#include <functional>
#include <iosfwd>
#include <list>
#include <string>
#include <vector>

namespace kpage::cli {

// One file in the making.
class OutputFile {
 public:
  // Puts what `put` sends to the stream into the file.
  void write(const std::function<void(std::ostream&)>& put) const;

 private:
  friend class OutputFiles;
  std::string flag_;
  std::string path_;
  std::string temporary_;
};

class OutputFiles {
 public:
  // `inputs`: files that the command reads, which no output may replace; empty names are none.
  explicit OutputFiles(std::vector<std::string> inputs) : inputs_(std::move(inputs)) {}
  ~OutputFiles();  // removes what was not committed
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;

  // Begins the file that `flag` asks for; fails at once where none can be made there. Null where
  // `path` is empty: the flag was not given. The file lives as long as this.
  const OutputFile* add(const std::string& flag, const std::string& path);
  void commit();

 private:
  std::vector<std::string> inputs_;
  std::list<OutputFile> files_;  // a signal handler reads their names: they never move
};

}  // namespace kpage::cli
