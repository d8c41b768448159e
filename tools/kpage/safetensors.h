// The safetensors file format: eight bytes of header length, a JSON header, then the tensors'
// bytes. https://github.com/huggingface/safetensors#format
#pragma once

#include <cstddef>
#include <cstdint>
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
// tensor dtype, shape and bytes, which have to fill the file without holes or overlaps.
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

// Writes a file whose data begins at a multiple of 64 bytes.
void write_safetensors(const std::string& path, std::span<const FileTensor> tensors,
                       const std::map<std::string, std::string>& metadata);

// The whole numbers of a tensor of any integer dtype; values that int32 does not hold are an error.
[[nodiscard]] std::vector<std::int32_t> int32_values(const SafetensorsFile& file,
                                                     const FileTensor& tensor);

}  // namespace kpage::cli
