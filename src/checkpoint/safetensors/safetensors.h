// safetensors, the format that Hugging Face models are kept in: eight bytes of header length (little-endian), a JSON
// header of name, dtype, shape and byte range for each tensor, and the bytes. Files come from strangers: everything
// that the header claims is checked against the file's size, and all ranges against each other, before memory is taken
// for anything but the header (at most 100 MB of JSON, and several times as much for its parsed form). Ranges must tile
// the data exactly, as the format's definition wants it. Errors of reading are ErrorKind::checkpoint, those of writing
// ErrorKind::filesystem. Knows no models.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace megatron {

/// Types that we read and write; other dtypes that the format knows may be in a file, but their numbers can't be read.
enum class SafetensorsType { f32, bf16, f16 };
/// "fp32", "bf16", "fp16".
const char* name_of(SafetensorsType type);
std::int64_t size_of(SafetensorsType type);

struct SafetensorsEntry {
  std::string dtype;                ///< as the file has it: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;  ///< any rank; empty: one number
  std::int64_t begin = 0;           ///< in the file
  std::int64_t bytes = 0;
  std::int64_t elements() const;
};

class SafetensorsFile {
 public:
  /// Reads and checks the header. Throws Error(checkpoint) with the path and what is wrong.
  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsEntry>& tensors() const { return tensors_; }

  /// Elements [first, first + numbers.size()) of a tensor of this file, row-major, as f32. 16-bit ones pass through a
  /// buffer of 2 MB. Error(checkpoint) if its dtype is none of SafetensorsType, or the file was cut.
  void read(const SafetensorsEntry& entry, std::int64_t first, std::span<float> numbers) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::map<std::string, SafetensorsEntry> tensors_;
};

/// JSON of a stranger's file, of at most 100 MB: no key twice in an object, little nesting. Error(checkpoint) with the
/// path.
nlohmann::json read_json_file(const std::string& path);

/// A model's files: model.safetensors alone, or those that model.safetensors.index.json names.
class SafetensorsModel {
 public:
  /// Throws Error(checkpoint) if there is neither, a named file is no plain name in the folder, or index and files do
  /// not have the same tensors.
  explicit SafetensorsModel(const std::string& folder);

  /// All tensors of all files.
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return places_.contains(name); }
  /// Error(checkpoint) naming what is missing.
  const SafetensorsEntry& entry(const std::string& name) const;
  void read(const std::string& name, std::int64_t first, std::span<float> numbers) const;

 private:
  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> places_;  // the file of each
};

struct NewTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

struct WrittenSafetensors {
  int files = 0;
  std::int64_t bytes = 0;
};

/// Fills a whole tensor, the `index`-th, row-major.
using TensorNumbers = std::function<void(std::size_t index, std::span<float> numbers)>;

/// Writes tensors, all of one type, in their order into `folder`: one file, or where that would have more than
/// `max_shard_bytes` of data several with an index, under Hugging Face's names. Files are synced, the folder is not.
/// `numbers` is asked for a tensor while the one before is written: memory is that of the two largest, in
/// f32, and of a block of 2 MB where they are narrowed. Throws Error(filesystem),
/// and Error(configuration) naming a tensor with finite numbers that the type would make infinite.
WrittenSafetensors write_safetensors(const std::string& folder, const std::vector<NewTensor>& tensors,
                                     SafetensorsType type, std::int64_t max_shard_bytes, const TensorNumbers& numbers);

/// Removes the files that an export consists of, and the folder if nothing else is in it; as remove_checkpoint.
std::string remove_export(const std::string& folder);

}  // namespace megatron
