#include "planning/dry_run/start_paths.h"

#include <filesystem>

#include "base/core/error.h"
#include "base/system/storage.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/folder.h"
#include "training/step/compatibility.h"

namespace megatron {

void require_run_folder(const std::string& directory) {
  const std::string place = existing_folder(directory);
  std::error_code unknown;
  verify(std::filesystem::is_directory(place, unknown), ErrorKind::filesystem,
         "run.directory = \"{}\": {} is an existing file and no folder; choose another folder", directory, place);
}

std::string require_named_checkpoint(const CheckpointConfig& checkpoint, std::vector<std::string>& warnings) {
  const std::string& named = checkpoint.load.empty() ? checkpoint.initialize_from : checkpoint.load;
  if (named.empty()) return "";
  try {
    return find_named_checkpoint(named, warnings);
  } catch (const Error& error) {
    throw Error(error.kind(),
                fmt::format("checkpoint.{}: {}", checkpoint.load.empty() ? "initialize_from" : "load", error.what()));
  }
}

namespace {

/// A list of differences in one line.
std::string in_one_line(std::string text) {
  for (const char* separator = " "; text.find("\n  ") != std::string::npos; separator = "; ") {
    text.replace(text.find("\n  "), 3, separator);
  }
  return text;
}

/// Compares the checkpoint in a folder with the run, as its start does.
void examine_checkpoint(const std::string& path, const Config& config, const Datasets* datasets,
                        const std::string& chosen_by, StartPaths& found) {
  const TrainingState saved = read_complete_manifest(path).state;
  nlohmann::json facts = model_signature(config, datasets == nullptr ? Vocabulary{} : datasets->vocabulary());
  if (datasets == nullptr) {
    for (const char* key : {"tokenizer", "tokenizer_hash", "vocab_size", "padded_vocab"}) {
      if (saved.facts.contains(key)) facts[key] = saved.facts.at(key);
    }
  }
  try {
    if (chosen_by == "checkpoint.initialize_from") {
      require_weights_of(saved, config.model, facts, path);
    } else {
      require_resumable(saved, config, facts, path, chosen_by);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::checkpoint) throw;
    found.obstacles.push_back(in_one_line(error.what()));
    return;
  }
  found.lines.push_back(fmt::format("checkpoint {} ({})\n", path, chosen_by) +
                        "          its manifest fits this model; megatron_checkpoint verify checks its contents\n");
}

}  // namespace

StartPaths examine_start_paths(const Config& config, const Datasets* datasets) {
  StartPaths found;
  const std::string& directory = config.run.directory;
  try {
    require_run_folder(directory);
    if (config.checkpoint.resume && !steps_in(checkpoints_folder(directory)).empty()) {
      const std::string own = find_named_checkpoint(directory, found.warnings);
      examine_checkpoint(own, config, datasets, "run.directory", found);
      return found;
    }
    if (directory_has_run(directory) && !config.checkpoint.resume) {
      found.obstacles.push_back(
          fmt::format("run.directory = \"{}\" holds a run already and checkpoint.resume = false", directory));
    }
    const std::string named = require_named_checkpoint(config.checkpoint, found.warnings);
    const std::string key = config.checkpoint.load.empty() ? "checkpoint.initialize_from" : "checkpoint.load";
    if (!named.empty()) examine_checkpoint(named, config, datasets, key, found);
  } catch (const Error& error) {
    found.obstacles.emplace_back(error.what());
    found.warnings.clear();  // the error has them
  }
  return found;
}

}  // namespace megatron
