#include "planning/dry_run/start_paths.h"

#include <filesystem>

#include "base/core/error.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/folder.h"
#include "checkpoint/store/free_space.h"

namespace megatron {

void require_run_folder(const std::string& directory) {
  const std::string place = existing_folder(directory);
  std::error_code unknown;
  verify(std::filesystem::is_directory(place, unknown), ErrorKind::filesystem,
         "run.directory = \"{}\": {} is an existing file and no folder; choose another folder", directory, place);
}

void require_named_checkpoint(const CheckpointConfig& checkpoint, std::vector<std::string>& warnings) {
  const std::string& named = checkpoint.load.empty() ? checkpoint.initialize_from : checkpoint.load;
  if (named.empty()) return;
  try {
    (void)find_named_checkpoint(named, warnings);
  } catch (const Error& error) {
    throw Error(error.kind(),
                fmt::format("checkpoint.{}: {}", checkpoint.load.empty() ? "initialize_from" : "load", error.what()));
  }
}

StartPaths examine_start_paths(const Config& config) {
  StartPaths found;
  const std::string& directory = config.run.directory;
  try {
    require_run_folder(directory);
    if (config.checkpoint.resume && !steps_in(checkpoints_folder(directory)).empty()) {
      (void)find_named_checkpoint(directory, found.warnings);
      return found;
    }
    if (directory_has_run(directory) && !config.checkpoint.resume) {
      found.obstacles.push_back(
          fmt::format("run.directory = \"{}\" holds a run already and checkpoint.resume = false", directory));
    }
    require_named_checkpoint(config.checkpoint, found.warnings);
  } catch (const Error& error) {
    found.obstacles.emplace_back(error.what());
    found.warnings.clear();  // the error has them
  }
  return found;
}

}  // namespace megatron
