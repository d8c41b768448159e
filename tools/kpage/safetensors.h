// The safetensors file format: eight bytes of header length, a JSON header, then the tensors'
// bytes. https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kpage::cli {

// A tensor of a file, or one to be written. `data` is not aligned in files of other writers.
struct FileTensor {
  std::string name;
  std::string dtype;  // "BF16", "F16", "F32", "I32", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;

  [[nodiscard]] std::int64_t elements() const;
};

[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

// A file mapped into memory. Opening checks the whole header: its size, its JSON, and of each
// tensor dtype, shape and bytes, which have to fill the file without holes or overlaps. A dtype
// that this does not know is an error for who reads the tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);  // throws Failure naming file and tensor
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::vector<FileTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  [[nodiscard]] const FileTensor* find(std::string_view name) const;
  // The same, but a tensor that is missing is an error, which lists those that are there.
  [[nodiscard]] const FileTensor& at(std::string_view name) const;

 private:
  void map_file();
  void parse();

  std::string path_;
  std::span<const std::byte> bytes_;
  std::vector<FileTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file whose data begins at a multiple of 64 bytes; whether it could is `file`'s to tell.
void write_safetensors(std::ostream& file, std::span<const FileTensor> tensors,
                       const std::map<std::string, std::string>& metadata);

// The whole numbers of an I32 or I64 tensor. A value that int32 does not hold is an error where
// `counts(position)` holds; elsewhere it becomes 0.
[[nodiscard]] std::vector<std::int32_t> int32_values(
    const SafetensorsFile& file, const FileTensor& tensor,
    const std::function<bool(std::size_t)>& counts = {});

}  // namespace kpage::cli
