// Files that megatron_clean leaves next to the documents that it writes: provenance.json, which names their files with
// hashes and says what they were made from, and report.json, what went and why. Written by ResultFolder; read by the
// steps after it, and by megatron_preprocess. A file that is not written as ours are is none.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

/// JSON as text, where names of files need not be UTF-8: U+FFFD stands for what is not.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

/// The provenance that lies in a folder, if it has one that is written as ours are: its fingerprint, the text key and
/// its outputs' names and hashes are texts.
std::optional<nlohmann::ordered_json> provenance_in(const std::string& folder);
/// The same for many files, which are asked about folder by folder: each folder's is read once.
class LastProvenance {
 public:
  const std::optional<nlohmann::ordered_json>& in(const std::string& folder);

 private:
  std::string folder_;
  std::optional<nlohmann::ordered_json> provenance_;
};
/// The report of a result, if it is JSON of a step.
std::optional<nlohmann::ordered_json> report_in(const std::string& folder);
/// The names of the files of documents in a provenance.
std::vector<std::string> files_of_result(const nlohmann::ordered_json& provenance);
/// Whether a file has the hash that this entry of a provenance's "outputs" says; reads all of it.
bool is_as_written(const std::string& path, const nlohmann::ordered_json& output);
/// Whether all files that a provenance names are in the folder as written.
bool has_outputs(const std::string& folder, const nlohmann::ordered_json& provenance);

}  // namespace megatron
