#include "data/shards/shard_provenance.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/text/strict_json.h"
#include "base/text/text.h"
#include "data/hdf5/hdf5_file.h"
#include "data/hdf5/hdf5_reader.h"

namespace megatron {

namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kLargestProvenance = std::uint64_t{64} << 20;
constexpr std::size_t kDeepestProvenance = 512;

/// The steps that made a result of megatron_clean, the first one first, as {"step", "read", "kept", "removed",
/// "made_by"}.
void add_steps(const Json& result, Json& steps) {
  for (const Json& input : result.at("inputs")) {
    if (!input.contains("from")) continue;
    add_steps(input.at("from"), steps);
    break;  // the inputs of a step have mostly one origin
  }
  const Json& documents = result.at("documents");
  steps.push_back({{"step", result.at("step")},
                   {"read", documents.at("read")},
                   {"kept", documents.at("kept")},
                   {"removed", result.at("removed")},
                   {"made_by", result.at("made_by")}});
}

/// Steps of each result.
Json steps_of(const Json& provenance) {
  Json all = Json::array();
  for (const Json& result : provenance.at("results")) add_steps(result, all.emplace_back(Json::array()));
  return all;
}

std::string describe_steps(const Json& results) {
  std::vector<std::string> words;
  for (const Json& steps : results) {
    for (const Json& step : steps) {
      words.push_back(fmt::format("{} kept {} of {}", printable(step.at("step").get<std::string>()),
                                  step.at("kept").get<std::uint64_t>(), step.at("read").get<std::uint64_t>()));
    }
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

void add_provenance(const std::string& temporary_path, std::string_view json) {
  verify(json.size() <= kLargestProvenance, ErrorKind::data,
         "the provenance of the input is {} bytes, more than the {} that shards may have", json.size(),
         kLargestProvenance);
  Hdf5File file = Hdf5File::open_for_update(temporary_path);
  Hdf5Dataset dataset = file.create_growable_dataset(std::string(kProvenanceDataset), Hdf5Type::u8);
  dataset.append(json.data(), json.size());
  file.finish(dataset);
  file.close();
}

std::string provenance_of_shards(const std::string& prefix) {
  const std::string path = shard_path(prefix, 0);
  if (!std::filesystem::exists(path)) return "";  // a part of a set is given
  const Hdf5Reader file(path, ErrorKind::data);
  const std::vector<std::string> names = file.datasets();
  if (std::find(names.begin(), names.end(), kProvenanceDataset) == names.end()) return "";
  const Hdf5Array array = file.open_dataset(std::string(kProvenanceDataset));
  verify(array.type() == Hdf5Type::u8 && array.hashed() && array.elements() <= kLargestProvenance, ErrorKind::data,
         "{}: /{} is no text", file.path(), kProvenanceDataset);
  std::string json(array.elements(), '\0');
  array.read(0, static_cast<void*>(json.data()), json.size());
  return json;
}

std::string describe_provenance(const std::string& json) try {
  return describe_steps(steps_of(parse_strict_json(json, kDeepestProvenance)));
} catch (const std::exception&) {
  return "";
}

void keep_provenance(const std::string& run_directory, const std::vector<std::unique_ptr<TokenDataset>>& sets,
                     Log& log) {
  Json all = Json::object();
  for (const auto& set : sets) {
    for (const std::string& prefix : set->prefixes()) {
      try {
        const std::string json = provenance_of_shards(prefix);
        if (json.empty() || all.contains(prefix)) continue;
        const Json provenance = parse_strict_json(json, kDeepestProvenance), steps = steps_of(provenance);
        log.info("cleaned   {}: {}", prefix, describe_steps(steps));
        all[prefix] = {{"steps", steps}, {"provenance", provenance}};
      } catch (const std::exception& error) {
        log.warning("{}: where its text comes from cannot be told: {}", prefix, error.what());
      }
    }
  }
  const std::string path = run_directory + "/provenance.json";
  if (all.empty()) return remove_quietly(path);
  replace_file_durably(path, all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace megatron
