// ResultFolder: the folder that a step's result lies in: files of documents, report.json, and provenance.json, which
// names them with their hashes and is the durable record that the step was finished. All of it appears at once or not
// at all; files that are not the step's stay. For one process: rank 0.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/durable_file.h"
#include "base/system/file_lock.h"
#include "data/cleaning_steps/output_text.h"
#include "data/preprocess/clean_result.h"

namespace megatron {

/// A folder in the result's, for files that are gone when it is finished.
inline constexpr const char* kScratchFolder = ".megatron_clean.scratch";

class ResultFolder {
 public:
  /// Locks the folder and makes it. ErrorKind::filesystem if another command writes there.
  ResultFolder(const std::string& folder, bool overwrite);
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;
  ~ResultFolder();

  /// The provenance of a result that is there as a whole and was made from the same.
  std::optional<nlohmann::ordered_json> finished(const std::string& fingerprint) const;
  /// ErrorKind::configuration if another result is there and may not be replaced.
  void require_free(const std::string& fingerprint) const;
  /// Removes what killed commands have left: scratch files, and those whose names end as temporary ones do.
  void remove_leftovers() const;

  /// Begins a file of documents, such as "train.jsonl.zst".
  OutputText& begin(const std::string& name, Packing packing);
  /// Files begun so far: [{"file", "documents", "bytes", "hash"}], complete and on the disk. `documents`: of each.
  nlohmann::ordered_json finish_files(const std::vector<std::uint64_t>& documents);
  /// Gives all files their names. ErrorKind::configuration where that would replace a file of another content.
  void publish(const nlohmann::ordered_json& report, const nlohmann::ordered_json& provenance);

 private:
  std::string path_of(std::string_view name) const { return folder_ + "/" + std::string(name); }
  void remove_older(const nlohmann::ordered_json& older) const;

  std::string folder_;
  bool overwrite_;
  TargetLock lock_;
  MadeFolders made_;
  std::vector<std::string> names_, temporaries_;
  std::deque<OutputText> files_;
  Publication publication_;
};

}  // namespace megatron
