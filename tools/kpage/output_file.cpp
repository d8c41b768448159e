#include "output_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <system_error>

#include <unistd.h>

#include "failure.h"

namespace kpage::cli {
namespace {

// Names of the files that are not finished, for a signal handler, which may only read atomics.
std::array<std::atomic<const char*>, 8> unfinished{};

extern "C" void remove_unfinished(int signal) {
  for (const std::atomic<const char*>& name : unfinished) {
    if (const char* path = name.load(); path != nullptr) {
      ::unlink(path);
    }
  }
  ::raise(signal);  // SA_RESETHAND: now it ends the process
}

// A signal that is ignored, as under nohup, stays so.
void remove_unfinished_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGXFSZ}) {
    struct sigaction action{};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) {
      action.sa_handler = remove_unfinished;
      action.sa_flags = static_cast<int>(SA_RESETHAND);
      ::sigaction(signal, &action, nullptr);
    }
  }
}

// Under whatever names, symlinks among them; neither file has to exist.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code missing;
  if (std::filesystem::equivalent(a, b, missing)) {
    return true;
  }
  const auto canonical = [](const std::string& path) {
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(path, error);
    const std::filesystem::path found = std::filesystem::weakly_canonical(absolute, error);
    return error ? absolute.lexically_normal() : found;
  };
  return canonical(a) == canonical(b);
}

void note_unfinished(const char* path) {
  for (std::atomic<const char*>& name : unfinished) {
    const char* free = nullptr;
    if (name.compare_exchange_strong(free, path)) {
      return;
    }
  }
}

void forget_unfinished(const char* path) {
  for (std::atomic<const char*>& name : unfinished) {
    const char* held = path;
    name.compare_exchange_strong(held, nullptr);
  }
}

}  // namespace

void OutputFile::write(const std::function<void(std::ostream&)>& put) const {
  std::ofstream file(temporary_, std::ios::binary | std::ios::trunc);
  put(file);
  file.close();
  if (!file) {
    throw run_failed(flag_ + ": cannot write " + path_ + ": " + std::strerror(errno));
  }
}

OutputFiles::~OutputFiles() {
  for (const OutputFile& file : files_) {
    std::error_code ignored;
    std::filesystem::remove(file.temporary_, ignored);
    forget_unfinished(file.temporary_.c_str());
  }
}

const OutputFile* OutputFiles::add(const std::string& flag, const std::string& path) {
  std::error_code ignored;
  if (path.empty()) {
    return nullptr;
  }
  if (std::filesystem::is_directory(path, ignored)) {
    throw bad_input(flag + ": expected a file name, got the folder " + path);
  }
  // Renaming would put a file in the place of a device such as /dev/null.
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    throw bad_input(flag + ": expected a regular file, got the device or pipe " + path);
  }
  const auto other = std::find_if(files_.begin(), files_.end(), [&](const OutputFile& file) {
    return same_file(file.path_, path);
  });
  if (other != files_.end()) {
    throw bad_input(flag + ": " + path + " is written by " + other->flag_ + " already");
  }
  const bool is_input = std::any_of(inputs_.begin(), inputs_.end(), [&](const std::string& input) {
    return !input.empty() && same_file(input, path);
  });
  if (is_input) {
    throw bad_input(flag + ": expected another file than the input, got " + path);
  }
  const std::string temporary =
      path + "." + std::to_string(::getpid()) + "-" + std::to_string(files_.size()) + ".part";
  remove_unfinished_on_signals();
  OutputFile& added = files_.emplace_back();
  added.flag_ = flag;
  added.path_ = path;
  added.temporary_ = temporary;
  note_unfinished(added.temporary_.c_str());
  if (!std::ofstream(temporary, std::ios::binary)) {
    throw bad_input(flag + ": cannot write " + path + ": " + std::strerror(errno));
  }
  return &added;
}

void OutputFiles::commit() {
  for (const OutputFile& file : files_) {
    std::error_code error;
    std::filesystem::rename(file.temporary_, file.path_, error);
    if (error) {
      throw run_failed(file.flag_ + ": cannot write " + file.path_ + ": " + error.message());
    }
  }
  for (const OutputFile& file : files_) {
    forget_unfinished(file.temporary_.c_str());
  }
  files_.clear();
}

}  // namespace kpage::cli
