#include "checkpoint/store/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <set>

#include "base/text/foreign_json.h"
#include "checkpoint/store/files.h"
#include "checkpoint/store/tensor_slices.h"

namespace megatron {

namespace {

using nlohmann::json;

constexpr const char* kFormatName = "megatron_train checkpoint";
constexpr std::int64_t kElementLimit = std::int64_t{1} << 60;  // for one tensor, so that byte counts cannot overflow
constexpr int kRankLimit = 10'000'000;
constexpr std::size_t kMostStates = 8;
/// States that format 1 knows: both, the first alone, or none, and the same of all tensors.
constexpr std::array<const char*, 2> kMoments{"m", "v"};

std::string checksum_of(const std::string& version, const json& content) {
  return digest_text(version + "\n" + content.dump());
}

/// Refuses what another major version wrote; anything but MAJOR.MINOR is damage.
void check_version(const std::string& version) {
  int major = -1, minor = -1;
  const char* end = version.data() + version.size();
  const auto [dot, error] = std::from_chars(version.data(), end, major);
  const bool sound = error == std::errc{} && dot != end && *dot == '.' &&
                     std::from_chars(dot + 1, end, minor).ptr == end && major >= 1 && minor >= 0;
  verify(sound, ErrorKind::checkpoint, "format version {} is not one", json(version).dump());
  if (major > kFormatMajor) {
    throw NewerFormat(ErrorKind::checkpoint,
                      fmt::format("it has format version {} and this program reads up to {}.x: use a newer "
                                  "megatron_train, or load a checkpoint that this version saved",
                                  version, kFormatMajor));
  }
}

std::vector<RankFile> files_in(const json& content, int ranks) {
  std::vector<RankFile> files;
  std::int64_t bytes = 0;
  const json& list = member_at(content, "files");
  verify(list.is_array() && !list.empty(), ErrorKind::checkpoint, "\"files\" is not a list of files");
  for (const json& entry : list) {
    RankFile file;
    file.rank = static_cast<int>(integer_at(entry, "rank", files.empty() ? 0 : files.back().rank + 1, ranks - 1));
    file.bytes = integer_at(entry, "bytes", 1, kElementLimit - bytes);
    bytes += file.bytes;
    file.xxh3_128 = text_at(entry, "xxh3_128", 32);
    // The name is there for people: which file is read, the rank says.
    verify(!entry.contains("name") || entry.at("name") == rank_file_name(file.rank), ErrorKind::checkpoint,
           "the file of rank {} has another name than {}", file.rank, rank_file_name(file.rank));
    files.push_back(file);
  }
  return files;
}

/// States of each tensor that does not list its own.
std::vector<std::string> states_in(const json& content) {
  const json& has_optimizer = member_at(content, "has_optimizer");
  verify(has_optimizer.is_boolean(), ErrorKind::checkpoint, "\"has_optimizer\" is not a truth value");
  if (!has_optimizer.get<bool>()) return {};
  if (content.contains("states")) return states_at(content);
  // Format 1.0 had no other optimizer than one with two moments.
  const std::int64_t moments = content.contains("moments") ? integer_at(content, "moments", 1, 2) : 2;
  return {kMoments.begin(), kMoments.begin() + moments};
}

std::vector<TensorSummary> tensors_in(const json& content) {
  const std::vector<std::string> states = states_in(content);
  std::vector<TensorSummary> tensors;
  const json& list = member_at(content, "tensors");
  verify(list.is_array(), ErrorKind::checkpoint, "\"tensors\" is not a list");
  for (const json& entry : list) {
    TensorSummary tensor{text_at(entry, "name", kLongestTensorName), shape_at(entry, "shape"), 0};
    tensor.elements = integer_at(entry, "elements", 0, kElementLimit);
    tensor.states = entry.contains("states") ? states_at(entry) : states;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace

std::int64_t Manifest::file_bytes() const {
  std::int64_t bytes = 0;
  for (const RankFile& file : files) bytes += file.bytes;
  return bytes;
}

std::vector<std::string> Manifest::states() const {
  std::set<std::string> names;
  for (const TensorSummary& tensor : tensors) names.insert(tensor.states.begin(), tensor.states.end());
  return {names.begin(), names.end()};
}

TensorSummary summary_of(const TensorSlice& slice) {
  return {slice.name, slice.global_shape, slice.count, state_names(slice)};
}

std::string rank_file_name(int rank) {
  return fmt::format("rank_{:05d}.h5", rank);
}

std::string manifest_text(const Manifest& manifest) {
  const std::vector<std::string> states = manifest.states();
  json content = {{"step", manifest.state.step}, {"samples", manifest.state.samples}, {"tokens", manifest.state.tokens},
                  {"ranks", manifest.ranks},     {"has_optimizer", !states.empty()},  {"files", json::array()},
                  {"tensors", json::array()},    {"facts", manifest.state.facts},     {"extra", manifest.state.extra}};
  const bool moments = states.size() <= kMoments.size() && std::equal(states.begin(), states.end(), kMoments.begin());
  if (!moments) content["states"] = states;
  if (moments && !states.empty()) content["moments"] = states.size();
  bool format_1 = moments;
  for (const RankFile& file : manifest.files) {
    content["files"].push_back(
        {{"rank", file.rank}, {"name", rank_file_name(file.rank)}, {"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}});
  }
  for (const TensorSummary& tensor : manifest.tensors) {
    json& entry = content["tensors"].emplace_back();
    entry = {{"name", tensor.name}, {"shape", tensor.shape}, {"elements", tensor.elements}};
    if (tensor.states == states) continue;
    entry["states"] = tensor.states;
    format_1 = false;
  }
  const std::string version = format_1 ? "1.1" : "2.0";
  const std::string checksum = checksum_of(version, content);
  const json whole = {
      {"format", kFormatName}, {"format_version", version}, {"checksum", checksum}, {"content", std::move(content)}};
  return whole.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text) {
  const json whole = parse_json(text, kManifestName);
  verify(text_at(whole, "format", 64) == kFormatName, ErrorKind::checkpoint, "it is not a checkpoint of this program");
  const std::string version = text_at(whole, "format_version", 32);
  check_version(version);
  const json& content = member_at(whole, "content");
  verify(checksum_of(version, content) == text_at(whole, "checksum", 32), ErrorKind::checkpoint,
         "manifest.json: its contents do not match its checksum");
  Manifest manifest;
  manifest.state.step = integer_at(content, "step", 0, kStepLimit);
  manifest.state.samples = integer_at(content, "samples", 0, kElementLimit);
  manifest.state.tokens = integer_at(content, "tokens", 0, kElementLimit);
  manifest.state.facts = object_at(content, "facts");
  manifest.state.extra = object_at(content, "extra");
  manifest.ranks = static_cast<int>(integer_at(content, "ranks", 1, kRankLimit));
  manifest.files = files_in(content, manifest.ranks);
  manifest.tensors = tensors_in(content);
  return manifest;
}

std::vector<std::string> states_at(const json& object) {
  const json& list = member_at(object, "states");
  const auto name = [](const json& entry) {
    return entry.is_string() && is_state_name(entry.get_ref<const std::string&>());
  };
  verify(list.is_array() && list.size() <= kMostStates && std::all_of(list.begin(), list.end(), name),
         ErrorKind::checkpoint, "\"states\" is not a list of at most {} names", kMostStates);
  auto names = list.get<std::vector<std::string>>();
  verify(std::adjacent_find(names.begin(), names.end(), std::greater_equal<>()) == names.end(), ErrorKind::checkpoint,
         "\"states\" is not sorted, each name once");
  return names;
}

Shape shape_at(const json& object, const char* key) {
  const json& value = member_at(object, key);
  verify(value.is_array() && !value.empty() && value.size() <= kMaxRank, ErrorKind::checkpoint,
         "\"{}\" is not a list of 1 to {} integers", key, kMaxRank);
  std::int64_t product = 1;
  for (const json& entry : value) {
    const std::int64_t factor = std::max<std::int64_t>(integer_in(entry, key, 0, kElementLimit), 1);
    verify(factor <= kElementLimit / product, ErrorKind::checkpoint, "\"{}\" has too many elements", key);
    product *= factor;
  }
  return value.get<Shape>();
}

void to_json(json& list, const Shape& shape) {
  list = json::array();
  for (int i = 0; i < shape.rank(); ++i) list.push_back(shape[i]);
}

void from_json(const json& list, Shape& shape) {
  shape = Shape(list.get<std::vector<std::int64_t>>());
}

}  // namespace megatron
