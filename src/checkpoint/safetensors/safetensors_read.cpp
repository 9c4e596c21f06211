#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

#include "base/core/half.h"
#include "base/system/regular_file.h"
#include "base/text/foreign_json.h"
#include "base/text/foreign_text.h"
#include "base/text/strict_json.h"
#include "base/text/text.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/store/files.h"

namespace megatron {

namespace {

using nlohmann::json;

constexpr std::int64_t kHeaderLimit = 100'000'000;  // the format's own
constexpr std::size_t kDepthLimit = 8;
constexpr std::int64_t kWidenedElements = std::int64_t{1} << 20;  // that are widened together

/// Bytes per element, of all dtypes that the format defines with whole bytes; 0: unknown.
std::int64_t dtype_bytes(const std::string& dtype) {
  static const std::map<std::string, std::int64_t> known = {
      {"F64", 8}, {"I64", 8}, {"U64", 8}, {"F32", 4}, {"I32", 4},  {"U32", 4},     {"F16", 2},    {"BF16", 2},
      {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto found = known.find(dtype);
  return found == known.end() ? 0 : found->second;
}

std::int64_t whole_number(const json& value, std::int64_t limit) {
  verify(value.is_number_unsigned() && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(limit),
         ErrorKind::checkpoint, "{} is not a whole number from 0 to {}", value.dump(), limit);
  return value.get<std::int64_t>();
}

/// One tensor's claims against the `data` bytes after the header, which begin at `start`.
SafetensorsEntry parse_entry(const json& object, std::int64_t start, std::int64_t data) {
  verify(object.is_object() && object.size() == 3 && object.contains("dtype") && object.contains("shape") &&
             object.contains("data_offsets"),
         ErrorKind::checkpoint, "it has not exactly dtype, shape and data_offsets");
  const json &dtype = object.at("dtype"), &shape = object.at("shape"), &offsets = object.at("data_offsets");
  SafetensorsEntry entry;
  verify(dtype.is_string() && dtype_bytes(dtype.get<std::string>()) > 0, ErrorKind::checkpoint,
         "its dtype {} is unknown", dtype.dump(-1, ' ', true, json::error_handler_t::replace));
  entry.dtype = dtype.get<std::string>();
  verify(offsets.is_array() && offsets.size() == 2, ErrorKind::checkpoint, "its data_offsets are not two numbers");
  const std::int64_t begin = whole_number(offsets[0], data), end = whole_number(offsets[1], data);
  verify(begin <= end, ErrorKind::checkpoint, "its data_offsets are {} to {}", begin, end);
  entry.begin = start + begin;
  entry.bytes = end - begin;
  verify(shape.is_array() && shape.size() <= 16, ErrorKind::checkpoint, "its shape is not a list of up to 16 numbers");
  bool nothing = false;
  for (const json& extent : shape) {
    entry.shape.push_back(whole_number(extent, std::numeric_limits<std::int64_t>::max()));
    nothing = nothing || entry.shape.back() == 0;
  }
  std::int64_t bytes = nothing ? 0 : dtype_bytes(entry.dtype);
  for (const std::int64_t extent : entry.shape) {
    if (nothing) break;
    verify(extent <= data / bytes, ErrorKind::checkpoint, "its shape is larger than the file");
    bytes *= extent;
  }
  verify(bytes == entry.bytes, ErrorKind::checkpoint,
         "its shape and dtype take {} bytes, its data_offsets are {} bytes", bytes, entry.bytes);
  return entry;
}

constexpr const char* kCut = "the file is shorter than its header says, a download that was cut off? Fetch it again";

/// That the file is as long as the last tensor needs, whatever else may be wrong with the header.
void check_whole(const json& header, std::int64_t start, std::int64_t size) {
  std::uint64_t end = 0;
  for (const json& entry : header) {
    const auto offsets = entry.is_object() ? entry.find("data_offsets") : entry.end();
    if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) continue;
    if (offsets->back().is_number_unsigned()) end = std::max(end, offsets->back().get<std::uint64_t>());
  }
  const auto there = static_cast<std::uint64_t>(size - start);
  verify(end <= there, ErrorKind::checkpoint, "{}: its tensors have {} bytes, and {} are there", kCut, end, there);
}

/// No gaps, no overlaps, nothing left over.
void check_tiling(const std::map<std::string, SafetensorsEntry>& tensors, std::int64_t start, std::int64_t end) {
  std::vector<std::pair<std::int64_t, const std::string*>> order;
  for (const auto& [name, entry] : tensors) {
    if (entry.bytes > 0) order.emplace_back(entry.begin, &name);
  }
  std::sort(order.begin(), order.end());
  std::int64_t reached = start;
  for (const auto& [begin, name] : order) {
    verify(begin == reached, ErrorKind::checkpoint, "the bytes of tensor {} {} those before them", printable(*name),
           begin < reached ? "overlap" : "do not follow");
    reached += tensors.at(*name).bytes;
  }
  verify(reached == end, ErrorKind::checkpoint, "{} bytes belong to no tensor", end - reached);
}

void read_bytes(int descriptor, std::int64_t at, void* bytes, std::int64_t count) {
  auto* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t now = ::pread(descriptor, to, static_cast<std::size_t>(count), at);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) fail(ErrorKind::checkpoint, "it cannot be read: {}", errno_text(errno));
    verify(now > 0, ErrorKind::checkpoint, "it ends at byte {}", at);
    to += now, at += now, count -= now;
  }
}

template <class T>
void widen(const std::vector<char>& raw, std::span<float> numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    T value;
    std::memcpy(&value, raw.data() + i * sizeof value, sizeof value);
    numbers[i] = to_float(value);
  }
}

/// Runs `work`; an Error(checkpoint) of its gets `where` in front.
template <class Work>
auto told_of(const std::string& where, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::checkpoint) throw;
    fail(ErrorKind::checkpoint, "{}: {}", where, error.what());
  }
}

}  // namespace

json read_json_file(const std::string& path) {
  const RegularFile file(path, ErrorKind::checkpoint);
  verify(file.bytes() <= static_cast<std::uint64_t>(kHeaderLimit), ErrorKind::checkpoint, "{} is too large", path);
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  return told_of(path, [&] {
    const std::size_t last = text.find_last_not_of(" \t\r\n");
    const bool ends = last != text.npos && (text[last] == '}' || text[last] == ']');
    verify(ends, ErrorKind::checkpoint,
           "the file ends before its JSON does, as after a download that was cut off; fetch it again");
    return parse_strict_json(text, kDepthLimit);
  });
}

std::int64_t SafetensorsEntry::elements() const {
  return bytes / dtype_bytes(dtype);
}

SafetensorsFile::SafetensorsFile(std::string path) : path_(std::move(path)) {
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a link in a download cache is as good
  if (descriptor_ < 0) fail_with_errno("open", path_);
  try {
    told_of(path_, [&] {
      struct stat status {};
      verify(::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode), ErrorKind::checkpoint,
             "it is not a regular file");
      const std::int64_t size = status.st_size;
      verify(size >= 8, ErrorKind::checkpoint, "it is too short for a safetensors file");
      std::string beginning(static_cast<std::size_t>(std::min<std::int64_t>(size, 64)), '\0');
      read_bytes(descriptor_, 0, beginning.data(), static_cast<std::int64_t>(beginning.size()));
      const std::string advice = lfs_advice(beginning);
      verify(advice.empty(), ErrorKind::checkpoint, "{}", advice);
      std::uint64_t length = 0;
      for (int i = 7; i >= 0; --i)
        length = length << 8 | static_cast<unsigned char>(beginning[static_cast<std::size_t>(i)]);
      const std::int64_t most = std::min(size - 8, kHeaderLimit);
      verify(
          length < 2 || length > static_cast<std::uint64_t>(kHeaderLimit) || length <= static_cast<std::uint64_t>(most),
          ErrorKind::checkpoint, "{}: its header alone has {} bytes, and the file has {}", kCut, length, size);
      verify(length >= 2 && length <= static_cast<std::uint64_t>(most), ErrorKind::checkpoint,
             "its header would have {} bytes; at most {} are possible", length, most);
      std::string text(length, '\0');
      read_bytes(descriptor_, 8, text.data(), static_cast<std::int64_t>(length));
      verify(text.front() == '{', ErrorKind::checkpoint, "its header does not begin with {{");
      const json header = parse_strict_json(text, kDepthLimit);
      const std::int64_t start = 8 + static_cast<std::int64_t>(length);
      check_whole(header, start, size);
      for (const auto& item : header.items()) {
        if (item.key() == "__metadata__") {
          verify(item.value().is_object(), ErrorKind::checkpoint, "its __metadata__ is no object");
          for (const auto& word : item.value().items()) {
            verify(word.value().is_string(), ErrorKind::checkpoint, "its __metadata__ has something else than texts");
          }
          continue;
        }
        tensors_[item.key()] =
            told_of("tensor " + printable(item.key()), [&] { return parse_entry(item.value(), start, size - start); });
      }
      check_tiling(tensors_, start, size);
    });
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      tensors_(std::move(other.tensors_)) {}

void SafetensorsFile::read(const SafetensorsEntry& entry, std::int64_t first, std::span<float> numbers) const {
  static_assert(std::endian::native == std::endian::little);
  const auto count = static_cast<std::int64_t>(numbers.size()), each = dtype_bytes(entry.dtype);
  internal_check(first >= 0 && count <= entry.elements() - first, "elements beyond the end of a tensor", first, count,
                 entry.elements());
  told_of(path_, [&] {
    const std::int64_t at = entry.begin + first * each;
    if (entry.dtype == "F32") return read_bytes(descriptor_, at, numbers.data(), count * each);
    verify(entry.dtype == "F16" || entry.dtype == "BF16", ErrorKind::checkpoint,
           "a tensor of dtype {}; F32, F16 and BF16 can be read", entry.dtype);
    std::vector<char> raw(static_cast<std::size_t>(std::min(count, kWidenedElements) * each));
    for (std::int64_t done = 0; done < count; done += kWidenedElements) {
      const std::int64_t block = std::min(kWidenedElements, count - done);
      read_bytes(descriptor_, at + done * each, raw.data(), block * each);
      const auto part = numbers.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(block));
      entry.dtype == "F16" ? widen<Float16>(raw, part) : widen<BFloat16>(raw, part);
    }
  });
}

SafetensorsModel::SafetensorsModel(const std::string& folder) : folder_(folder) {
  const std::string index = folder + "/model.safetensors.index.json";
  std::map<std::string, std::string> expected;  // the file of each tensor, by the index
  std::set<std::string> names = {"model.safetensors"};
  std::error_code ignored;
  if (!std::filesystem::exists(folder + "/model.safetensors", ignored)) {
    verify(std::filesystem::is_regular_file(index, ignored), ErrorKind::checkpoint,
           "{} has neither model.safetensors nor model.safetensors.index.json", folder);
    names.clear();
    told_of(index, [&] {
      const json map = object_at(read_json_file(index), "weight_map");
      for (const auto& item : map.items()) {
        verify(item.value().is_string(), ErrorKind::checkpoint, "its weight_map names something else than files");
        const auto name = item.value().get<std::string>();
        verify(name.ends_with(".safetensors") && name.find('/') == std::string::npos && name.front() != '.' &&
                   name.size() <= 255,
               ErrorKind::checkpoint, "\"{}\" is no name of a safetensors file next to it", printable(name));
        expected[item.key()] = name;
        names.insert(name);
      }
    });
  }
  for (const std::string& name : names) {
    const SafetensorsFile& file = files_.emplace_back(folder + "/" + name);
    for (const auto& [tensor, entry] : file.tensors()) {
      const auto place = expected.find(tensor);
      verify(expected.empty() || (place != expected.end() && place->second == name), ErrorKind::checkpoint,
             "{}: tensor {} is not there by the index", file.path(), printable(tensor));
      places_[tensor] = files_.size() - 1;
    }
  }
  for (const auto& [tensor, name] : expected) {
    verify(places_.contains(tensor), ErrorKind::checkpoint, "{}/{}: has no tensor {}, which the index says it has",
           folder, name, printable(tensor));
  }
}

std::vector<std::string> SafetensorsModel::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : places_) names.push_back(name);
  return names;
}

const SafetensorsEntry& SafetensorsModel::entry(const std::string& name) const {
  const auto place = places_.find(name);
  verify(place != places_.end(), ErrorKind::checkpoint, "{} has no tensor {}", folder_, name);
  return files_[place->second].tensors().at(name);
}

void SafetensorsModel::read(const std::string& name, std::int64_t first, std::span<float> numbers) const {
  const SafetensorsEntry& where = entry(name);
  files_[places_.at(name)].read(where, first, numbers);
}

}  // namespace megatron
