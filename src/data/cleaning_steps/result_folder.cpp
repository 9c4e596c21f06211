#include "data/cleaning_steps/result_folder.h"

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

/// The names of files in a provenance; none if it is not written as ours are.
std::vector<std::string> files_of(const nlohmann::ordered_json& provenance) {
  std::vector<std::string> names;
  if (!provenance.is_object() || !provenance.contains("outputs")) return names;
  for (const auto& output : provenance["outputs"]) {
    if (!output.is_object() || !output.contains("file") || !output["file"].is_string()) return {};
    names.push_back(output["file"].get<std::string>());
    if (names.back().empty() || names.back().find('/') != std::string::npos) return {};
  }
  return names;
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

}  // namespace

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<nlohmann::ordered_json> provenance_in(const std::string& folder) {
  std::optional<nlohmann::ordered_json> json = read_json(folder + "/" + kProvenanceFile);
  if (!json || files_of(*json).empty() || !json->contains("fingerprint")) return std::nullopt;
  return json;
}

std::optional<nlohmann::ordered_json> report_in(const std::string& folder) {
  std::optional<nlohmann::ordered_json> json = read_json(folder + "/" + kReportFile);
  if (!json || !json->is_object() || !json->contains("step")) return std::nullopt;
  return json;
}

bool has_outputs(const std::string& folder, const nlohmann::ordered_json& provenance) {
  for (const auto& output : provenance.at("outputs")) {
    const std::string path = folder + "/" + output.at("file").get<std::string>();
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored) || output.value("hash", "") != hash_of_file(path)) return false;
  }
  return true;
}

ResultFolder::ResultFolder(const std::string& folder, bool overwrite)
    : folder_(folder), overwrite_(overwrite), lock_(folder), made_(folder) {}

ResultFolder::~ResultFolder() {
  std::error_code ignored;
  fs::remove(path_of(kScratchFolder), ignored);
}

std::optional<nlohmann::ordered_json> ResultFolder::finished(const std::string& fingerprint) const {
  std::optional<nlohmann::ordered_json> there = provenance_in(folder_);
  if (!there || (*there)["fingerprint"] != fingerprint || !has_outputs(folder_, *there)) return std::nullopt;
  return there;
}

void ResultFolder::require_free(const std::string& fingerprint) const {
  const std::optional<nlohmann::ordered_json> there = provenance_in(folder_);
  verify(overwrite_ || !there || (*there)["fingerprint"] == fingerprint, ErrorKind::configuration,
         "{} already holds another result; add --overwrite to replace it, or choose another folder", folder_);
}

OutputText& ResultFolder::begin(const std::string& name, Packing packing) {
  names_.push_back(name);
  temporaries_.push_back(temporary_name(path_of(name)));
  publication_.add(temporaries_.back(), path_of(name));
  return files_.emplace_back(temporaries_.back(), packing);
}

nlohmann::ordered_json ResultFolder::finish_files(const std::vector<std::uint64_t>& documents) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < files_.size(); ++i) {
    files_[i].finish();
    list.push_back({{"file", names_[i]},
                    {"documents", documents[i]},
                    {"bytes", files_[i].file_bytes()},
                    {"hash", files_[i].hash()}});
  }
  return list;
}

void ResultFolder::publish(const nlohmann::ordered_json& report, const nlohmann::ordered_json& provenance) {
  const std::optional<nlohmann::ordered_json> older = provenance_in(folder_);
  // A result that names no files with its provenance is one that a kill has left half published.
  const bool ours = older && (*older)["fingerprint"] == provenance["fingerprint"];
  for (std::size_t i = 0; i < names_.size(); ++i) {
    verify(overwrite_ || ours || replaces_nothing_else(temporaries_[i], path_of(names_[i])), ErrorKind::configuration,
           "{} exists already; add --overwrite to replace it, or choose another folder", path_of(names_[i]));
  }
  publication_.write(path_of(kReportFile), json_text(report, 2) + "\n");
  publication_.write(path_of(kProvenanceFile), json_text(provenance, 2) + "\n");
  publication_.publish();
  publication_.commit();
  if (older) remove_older(*older);
}

/// Removes the files that an older result had and this one has not.
void ResultFolder::remove_older(const nlohmann::ordered_json& older) const {
  for (const std::string& name : files_of(older)) {
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) remove_quietly(path_of(name));
  }
}

void ResultFolder::remove_leftovers() const {
  std::error_code ignored;
  fs::remove_all(path_of(kScratchFolder), ignored);
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::size_t extension = name.size() < 13 ? 0 : name.size() - 13;  // .3f9a2c71.tmp
    if (extension > 0 && is_behind_temporary(std::string_view(name).substr(extension))) {
      names.push_back(path_of(name.substr(0, extension)));
    }
  }
  remove_temporaries(names);
}

}  // namespace megatron
