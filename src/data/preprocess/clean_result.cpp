#include "data/preprocess/clean_result.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/core/error.h"
#include "base/system/regular_file.h"
#include "base/text/strict_json.h"
#include "data/preprocess/text_corpus.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestProvenance = std::uint64_t{64} << 20;
constexpr std::size_t kDeepestProvenance = 256;

/// Hexadecimal XXH3-128 of a file's contents.
std::string hash_of_file(const std::string& path) {
  constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;
  const RegularFile file(path, ErrorKind::data);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> hash(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(hash.get());
  std::string block;
  for (std::uint64_t at = 0; at < file.bytes(); at += block.size()) {
    block.resize(std::min(kBlockBytes, file.bytes() - at));
    file.read(at, block.data(), block.size());
    XXH3_128bits_update(hash.get(), block.data(), block.size());
  }
  const XXH128_hash_t all = XXH3_128bits_digest(hash.get());
  return fmt::format("{:016x}{:016x}", all.high64, all.low64);
}

/// A JSON file of ours; nothing if it is another's, or damaged.
std::optional<nlohmann::ordered_json> read_json(const std::string& path) try {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  const RegularFile file(path, ErrorKind::data);
  if (file.bytes() > kLargestProvenance) return std::nullopt;
  std::string text(file.bytes(), '\0');
  file.read(0, text.data(), text.size());
  parse_strict_json(text, kDeepestProvenance);  // refuses what the parser below should not see
  return nlohmann::ordered_json::parse(text);
} catch (const Error& error) {
  if (error.kind() == ErrorKind::filesystem) throw;
  return std::nullopt;
}

bool has_text(const nlohmann::ordered_json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_string();
}

}  // namespace

std::vector<std::string> files_of_result(const nlohmann::ordered_json& provenance) {
  std::vector<std::string> names;
  if (!provenance.is_object() || !provenance.contains("outputs")) return names;
  for (const auto& output : provenance["outputs"]) {
    if (!has_text(output, "file") || !has_text(output, "hash")) return {};
    names.push_back(output["file"].get<std::string>());
    if (names.back().empty() || names.back().find('/') != std::string::npos) return {};
  }
  return names;
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<nlohmann::ordered_json> provenance_in(const std::string& folder) {
  std::optional<nlohmann::ordered_json> json = read_json(folder + "/" + kProvenanceFile);
  if (!json || files_of_result(*json).empty() || !has_text(*json, "fingerprint")) return std::nullopt;
  for (const char* name : {"recipe", "text_key"}) {
    if (json->contains(name) && !has_text(*json, name)) return std::nullopt;
  }
  return json;
}

const std::optional<nlohmann::ordered_json>& LastProvenance::in(const std::string& folder) {
  if (folder != folder_) {
    provenance_ = provenance_in(folder);
    folder_ = folder;
  }
  return provenance_;
}

std::optional<nlohmann::ordered_json> report_in(const std::string& folder) {
  std::optional<nlohmann::ordered_json> json = read_json(folder + "/" + kReportFile);
  if (!json || !json->is_object() || !json->contains("step")) return std::nullopt;
  return json;
}

bool is_as_written(const std::string& path, const nlohmann::ordered_json& output) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && output.value("hash", "") == hash_of_file(path);
}

bool has_outputs(const std::string& folder, const nlohmann::ordered_json& provenance) {
  for (const auto& output : provenance.at("outputs")) {
    if (!is_as_written(folder + "/" + output.at("file").get<std::string>(), output)) return false;
  }
  return true;
}

}  // namespace megatron
