#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <future>
#include <system_error>

#include "base/core/error.h"
#include "base/core/half.h"
#include "base/system/durable_file.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/store/files.h"

namespace megatron {

namespace {

using nlohmann::json;

constexpr std::size_t kNarrowedElements = std::size_t{1} << 20;
constexpr std::size_t kWriteBytes = std::size_t{32} << 20;  // so that the disk begins before a large tensor ends

const char* dtype_of(SafetensorsType type) {
  return type == SafetensorsType::f32 ? "F32" : type == SafetensorsType::bf16 ? "BF16" : "F16";
}

std::int64_t elements_of(const NewTensor& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : tensor.shape) elements *= extent;
  return elements;
}

/// A file that is being written; synced when it is closed.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)), descriptor_(create(path_)), flush_(path_) {}
  ~NewFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t now = ::write(descriptor_, from, std::min(bytes, kWriteBytes));
      if (now < 0 && errno == EINTR) continue;
      if (now < 0) fail_with_errno("write", path_);
      flush_.written(static_cast<std::size_t>(now));
      from += now, bytes -= static_cast<std::size_t>(now);
    }
  }

  void close() {
    while (::fsync(descriptor_) != 0) {
      if (errno != EINTR) fail_with_errno("flush to disk", path_);
    }
    const int descriptor = std::exchange(descriptor_, -1);
    if (::close(descriptor) != 0 && errno != EINTR) fail_with_errno("write", path_);
  }

 private:
  static int create(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) fail_with_errno("create", path);
    return descriptor;
  }

  std::string path_;
  int descriptor_;
  EarlyFlush flush_;
};

/// How many numbers a type has no room for: finite ones that became infinite. `largest`: of their magnitudes.
template <class T>
std::int64_t count_too_large(std::span<const float> numbers, const T* narrowed, float& largest) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!std::isinf(to_float(narrowed[i])) || std::isinf(numbers[i])) continue;
    ++count;
    largest = std::max(largest, std::abs(numbers[i]));
  }
  return count;
}

template <class T, class Narrow>
void write_narrowed(NewFile& file, const std::string& name, SafetensorsType type, std::span<const float> numbers,
                    Narrow narrow) {
  std::int64_t too_large = 0;
  float largest = 0;
  std::vector<T> block(std::min(numbers.size(), kNarrowedElements));
  for (std::size_t first = 0; first < numbers.size(); first += block.size()) {
    const std::size_t count = std::min(block.size(), numbers.size() - first);
    std::transform(numbers.begin() + static_cast<std::ptrdiff_t>(first),
                   numbers.begin() + static_cast<std::ptrdiff_t>(first + count), block.begin(), narrow);
    too_large += count_too_large(numbers.subspan(first, count), block.data(), largest);
    file.write(block.data(), count * sizeof(T));
  }
  verify(too_large == 0, ErrorKind::configuration,
         "tensor {}: {} of its {} numbers are too large for {} and would be infinite, the largest of them {:.5g}; "
         "write another dtype",
         name, too_large, numbers.size(), name_of(type), largest);
}

void write_numbers(NewFile& file, const std::string& name, std::span<const float> numbers, SafetensorsType type) {
  switch (type) {
    case SafetensorsType::f32: return file.write(numbers.data(), numbers.size_bytes());
    case SafetensorsType::bf16: return write_narrowed<BFloat16>(file, name, type, numbers, to_bfloat16);
    case SafetensorsType::f16: return write_narrowed<Float16>(file, name, type, numbers, to_float16);
  }
}

/// The tensors [first, end) of each file.
std::vector<std::pair<std::size_t, std::size_t>> split(const std::vector<NewTensor>& tensors, SafetensorsType type,
                                                       std::int64_t max_shard_bytes) {
  std::vector<std::pair<std::size_t, std::size_t>> shards;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t more = elements_of(tensors[i]) * size_of(type);
    if (shards.empty() || (bytes > 0 && bytes + more > max_shard_bytes)) {
      shards.emplace_back(i, i);
      bytes = 0;
    }
    shards.back().second = i + 1;
    bytes += more;
  }
  return shards;
}

/// Length and header, padded so that the data begin at a multiple of 8.
std::string header_of(std::span<const NewTensor> tensors, SafetensorsType type) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::int64_t at = 0;
  for (const NewTensor& tensor : tensors) {
    const std::int64_t end = at + elements_of(tensor) * size_of(type);
    header[tensor.name] = {{"dtype", dtype_of(type)}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return length + text;
}

}  // namespace

const char* name_of(SafetensorsType type) {
  return type == SafetensorsType::f32 ? "fp32" : type == SafetensorsType::bf16 ? "bf16" : "fp16";
}

std::int64_t size_of(SafetensorsType type) {
  return type == SafetensorsType::f32 ? 4 : 2;
}

WrittenSafetensors write_safetensors(const std::string& folder, const std::vector<NewTensor>& tensors,
                                     SafetensorsType type, std::int64_t max_shard_bytes, const TensorNumbers& numbers) {
  const auto shards = split(tensors, type, max_shard_bytes);
  WrittenSafetensors written;
  json weight_map = json::object();
  std::int64_t data = 0;
  std::array<std::vector<float>, 2> buffers;  // a tensor is written while the next one is fetched
  for (std::size_t shard = 0; shard < shards.size(); ++shard) {
    const auto [first, end] = shards[shard];
    const std::string name = shards.size() == 1
                                 ? "model.safetensors"
                                 : fmt::format("model-{:05d}-of-{:05d}.safetensors", shard + 1, shards.size());
    NewFile file(folder + "/" + name);
    const std::string header = header_of(std::span(tensors).subspan(first, end - first), type);
    file.write(header.data(), header.size());
    written.bytes += static_cast<std::int64_t>(header.size());
    std::future<void> writing;
    for (std::size_t i = first; i < end; ++i) {
      std::vector<float>& buffer = buffers[i % 2];
      buffer.resize(static_cast<std::size_t>(elements_of(tensors[i])));
      numbers(i, buffer);
      if (writing.valid()) writing.get();
      writing = std::async([&, i] { write_numbers(file, tensors[i].name, buffers[i % 2], type); });
      data += elements_of(tensors[i]) * size_of(type);
      weight_map[tensors[i].name] = name;
    }
    if (writing.valid()) writing.get();
    file.close();
    ++written.files;
  }
  written.bytes += data;
  if (shards.size() > 1) {
    const json index = {{"metadata", {{"total_size", data}}}, {"weight_map", weight_map}};
    create_file_durably(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
  }
  return written;
}

std::string remove_export(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool ours = name.ends_with(".safetensors") || name == "model.safetensors.index.json" ||
                      name == "config.json" || name == "vocab.json" || name == "merges.txt" ||
                      name == "tokenizer.json" || name == "tokenizer_config.json";
    if (ours && at->symlink_status().type() == std::filesystem::file_type::regular) ::unlink(at->path().c_str());
  }
  if (::rmdir(folder.c_str()) == 0 || errno == ENOENT) return {};
  return fmt::format("{} could not be removed: {}", folder, std::generic_category().message(errno));
}

}  // namespace megatron
