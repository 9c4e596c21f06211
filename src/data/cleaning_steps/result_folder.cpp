#include "data/cleaning_steps/result_folder.h"

#include <algorithm>
#include <filesystem>

#include "base/core/error.h"
#include "data/preprocess/text_corpus.h"

namespace megatron {

namespace fs = std::filesystem;

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
  for (const std::string& name : files_of_result(older)) {
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
