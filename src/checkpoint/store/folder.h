// The checkpoints folder of a run: names, what is complete, what is a leftover, what retention removes.
//
// Called on rank 0 only, never collective. Deletes nothing but what this program wrote, file by file by name: a foreign
// file keeps its folder alive. Symbolic links in the folder are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/manifest.h"

namespace megatron {

inline constexpr const char* kModelFragment = "model.toml";  ///< in an import: the part of an input file that trains it

std::string checkpoints_folder(const std::string& run_directory);
std::string step_folder_name(std::int64_t step);                    ///< "step_00000100"
std::string temporary_folder_name(std::int64_t step);               ///< ".tmp_step_00000100"
std::string aside_folder_name(std::int64_t step);                   ///< ".old_step_00000100"
std::optional<std::int64_t> step_in_name(const std::string& name);  ///< the reverse of step_folder_name

/// The folder of step folders in a run directory that a user named, or that folder itself; "" where `path` must be a
/// checkpoint. Error(checkpoint) with what to name instead.
std::string folder_of_steps(const std::string& path);

/// The steps of all step folders, newest first, whatever their state.
std::vector<std::int64_t> steps_in(const std::string& folder);

/// The manifest's text, without judging it. Error(checkpoint) if there is none.
std::string read_manifest(const std::string& path);
/// Error(checkpoint) unless all rank files are there with the right sizes, and the step is that of the folder's name.
void check_complete(const std::string& path, const Manifest& manifest);

/// The manifest of a folder that is complete by it, or Error(checkpoint); NewerFormat as parse_manifest.
Manifest read_complete_manifest(const std::string& path);

/// Empty if `latest` is absent or names a step folder, else what is wrong with it.
std::string complaint_about_latest(const std::string& folder);

/// Removes temporary folders of saves that died; puts back a folder that had been moved aside.
void clean_leftovers(const std::string& folder);

/// Removes a folder's manifest, rank files and, if nothing else is in it, itself. Empty, or what stood in the way.
std::string remove_checkpoint(const std::string& path);

/// Notes in a folder that its files are not what was saved, or with an empty text that they are: what is damaged takes
/// no place of SaveOptions::keep_last.
void mark_damage(const std::string& path, const std::string& damage);

/// After the commit of `step`: keeps what SaveOptions say; what has later steps is an abandoned future (the run fell
/// back from it) and goes as well. Returns complaints.
std::vector<std::string> retain(const std::string& folder, std::int64_t step, const SaveOptions& options);

}  // namespace megatron
