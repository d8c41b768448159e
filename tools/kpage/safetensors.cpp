#include "safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <ostream>
#include <set>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"

namespace kpage::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostHeaderBytes = 100'000'000;  // as the format's reference reader

struct DTypeName {
  const char* name;
  std::int64_t bytes;
};
constexpr DTypeName kDTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
    {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8},
};

// 0: not known here.
std::int64_t bytes_of(const std::string& dtype) {
  for (const DTypeName& known : kDTypes) {
    if (dtype == known.name) {
      return known.bytes;
    }
  }
  return 0;
}

// A whole number of the header that fits, or -1.
std::int64_t whole_number(const Json& value) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return -1;
  }
  return value.get<std::int64_t>();
}

// Parses JSON objects strictly: a name that comes twice is an error.
Json parse_header(std::string_view text, const std::string& path) {
  std::vector<std::set<std::string>> names;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      names.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      names.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto name = parsed.get<std::string>();
      if (!names.back().insert(name).second) {
        twice = name;
      }
    }
    return true;
  };
  Json header;
  try {
    header = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    throw bad_input(path + ": header is not JSON: " + error.what());
  }
  if (!twice.empty()) {
    throw bad_input(path + ": header has the name " + twice + " twice");
  }
  if (!header.is_object()) {
    throw bad_input(path + ": expected a JSON object as header, got " +
                    std::string(header.type_name()));
  }
  return header;
}

FileTensor parse_tensor(const std::string& path, const std::string& name, const Json& entry,
                        std::span<const std::byte> data) {
  const auto fail = [&](const std::string& what) {
    return bad_input(path + ": tensor " + name + ": " + what);
  };
  if (!entry.is_object()) {
    throw fail("expected an object in the header, got " + std::string(entry.type_name()));
  }
  FileTensor tensor;
  tensor.name = name;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) {
    throw fail("dtype is missing or not a string");
  }
  tensor.dtype = dtype->get<std::string>();
  const std::int64_t element = bytes_of(tensor.dtype);

  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) {
    throw fail("shape is missing or not an array");
  }
  std::int64_t bytes = std::max<std::int64_t>(element, 1);
  for (const Json& extent : *shape) {
    const std::int64_t value = whole_number(extent);
    if (value < 0) {
      throw fail("shape holds " + extent.dump() + ", expected whole numbers from 0");
    }
    tensor.shape.push_back(value);
    if (__builtin_mul_overflow(bytes, value, &bytes)) {
      throw fail("shape " + shape_text(tensor.shape) + " is too large");
    }
  }

  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) {
    throw fail("data_offsets is missing or not a pair");
  }
  const std::int64_t begin = whole_number((*offsets)[0]);
  const std::int64_t end = whole_number((*offsets)[1]);
  const auto available = static_cast<std::int64_t>(data.size());
  if (begin < 0 || end < begin) {
    throw fail("data_offsets " + offsets->dump() + " are not a range");
  }
  if (end > available) {
    throw fail("data ends at byte " + std::to_string(end) + ", but the file holds " +
               std::to_string(available) + " bytes of data: it is truncated");
  }
  if (element > 0 && end - begin != bytes) {
    throw fail("expected " + std::to_string(bytes) + " bytes for " + tensor.dtype + " " +
               shape_text(tensor.shape) + ", got " + std::to_string(end - begin));
  }
  tensor.data =
      data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  return tensor;
}

}  // namespace

std::int64_t FileTensor::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    count *= extent;
  }
  return count;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  map_file();
  try {
    parse();
  } catch (...) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void SafetensorsFile::map_file() {
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // of a pipe: at once
  if (file < 0) {
    throw bad_input(path_ + ": cannot read: " + std::strerror(errno));
  }
  struct stat info{};
  const bool regular = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  if (!regular || info.st_size < 8) {
    ::close(file);
    throw bad_input(path_ + (regular ? ": expected a safetensors file, got " +
                                           std::to_string(info.st_size) + " bytes"
                                     : ": not a regular file"));
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  ::close(file);
  if (memory == MAP_FAILED) {
    throw bad_input(path_ + ": cannot map into memory: " + std::strerror(error));
  }
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

void SafetensorsFile::parse() {
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(bytes_[i]) << (8 * i);
  }
  if (header_bytes > bytes_.size() - 8 || header_bytes > kMostHeaderBytes) {
    throw bad_input(path_ + ": header of " + std::to_string(header_bytes) +
                    " bytes does not fit: not a safetensors file, or truncated");
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + 8, header_bytes);
  const std::span<const std::byte> data = bytes_.subspan(8 + header_bytes);
  const Json header = parse_header(text, path_);

  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      tensors_.push_back(parse_tensor(path_, name, entry, data));
      continue;
    }
    if (!entry.is_object()) {
      throw bad_input(path_ + ": __metadata__ is not an object of strings");
    }
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) {
        throw bad_input(path_ + ": __metadata__ " + key + " is not a string");
      }
      metadata_[key] = value.get<std::string>();
    }
  }

  std::vector<const FileTensor*> in_order;
  in_order.reserve(tensors_.size());
  for (const FileTensor& tensor : tensors_) {
    in_order.push_back(&tensor);
  }
  std::sort(in_order.begin(), in_order.end(), [](const FileTensor* a, const FileTensor* b) {
    return std::pair(a->data.data(), a->data.size()) < std::pair(b->data.data(), b->data.size());
  });
  const std::byte* end = data.data();
  for (const FileTensor* tensor : in_order) {
    if (tensor->data.data() != end) {
      throw bad_input(path_ + ": tensor " + tensor->name +
                      (tensor->data.data() < end ? ": its bytes overlap those of another tensor"
                                                 : ": bytes before it belong to no tensor"));
    }
    end += tensor->data.size();
  }
  if (end != data.data() + data.size()) {
    throw bad_input(path_ + ": the last " + std::to_string(data.data() + data.size() - end) +
                    " bytes belong to no tensor");
  }
}

const FileTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const FileTensor& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

const FileTensor& SafetensorsFile::at(std::string_view name) const {
  if (const FileTensor* tensor = find(name)) {
    return *tensor;
  }
  std::string present;
  for (const FileTensor& tensor : tensors_) {
    present += (present.empty() ? "" : ", ") + tensor.name;
  }
  throw bad_input(path_ + ": no tensor " + std::string(name) + "; the file has " +
                  (present.empty() ? "none" : present));
}

void write_safetensors(std::ostream& file, std::span<const FileTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  std::int64_t at = 0;
  for (const FileTensor& tensor : tensors) {
    const auto bytes = static_cast<std::int64_t>(tensor.data.size());
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text = header.dump();
  constexpr std::size_t kAlignment = 64;
  text.append((kAlignment - (text.size() + 8) % kAlignment) % kAlignment, ' ');

  char length[8];
  for (std::size_t i = 0; i < 8; ++i) {
    length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  }
  file.write(length, sizeof(length));
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const FileTensor& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.data.data()),
               static_cast<std::streamsize>(tensor.data.size()));
  }
}

namespace {

template <class T>
std::vector<std::int32_t> narrowed(const SafetensorsFile& file, const FileTensor& tensor,
                                   const std::function<bool(std::size_t)>& counts) {
  const auto count = static_cast<std::size_t>(tensor.elements());
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, tensor.data.data() + i * sizeof(T), sizeof(T));
    if (std::in_range<std::int32_t>(value)) {
      values[i] = static_cast<std::int32_t>(value);
    } else if (!counts || counts(i)) {
      throw bad_input(file.path() + ": tensor " + tensor.name + ": element " + std::to_string(i) +
                      " is " + std::to_string(value) + ", which 32 bits do not hold");
    }
  }
  return values;
}

}  // namespace

std::vector<std::int32_t> int32_values(const SafetensorsFile& file, const FileTensor& tensor,
                                       const std::function<bool(std::size_t)>& counts) {
  if (tensor.dtype == "I32") {
    return narrowed<std::int32_t>(file, tensor, counts);
  }
  if (tensor.dtype == "I64") {
    return narrowed<std::int64_t>(file, tensor, counts);
  }
  throw bad_input(file.path() + ": tensor " + tensor.name + ": expected dtype I32 or I64, got " +
                  tensor.dtype);
}

}  // namespace kpage::cli
