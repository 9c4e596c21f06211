#include "checkpoint/store/folder.h"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>

#include "checkpoint/store/files.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

namespace {

constexpr const char* kTemporaryPrefix = ".tmp_";
constexpr const char* kAsidePrefix = ".old_";
constexpr const char* kDamageMark = "damaged";

/// The names in a folder; none if it is not there. Error(filesystem) if it cannot be read: taking that for empty would
/// begin a run anew over its own checkpoints.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  verify(!error || error == std::errc::no_such_file_or_directory, ErrorKind::filesystem, "cannot read {}: {}", folder,
         errno_text(error.value()));
  std::sort(names.begin(), names.end());
  return names;
}

bool is_rank_file_name(const std::string& name) {
  int rank = -1;
  if (!name.starts_with("rank_") || !name.ends_with(".h5")) return false;
  const char* end = name.data() + name.size() - 3;
  return std::from_chars(name.data() + 5, end, rank).ptr == end && rank >= 0 && rank_file_name(rank) == name;
}

/// The step of PREFIXstep_NNN.
std::optional<std::int64_t> step_behind(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? step_in_name(name.substr(prefix.size())) : std::nullopt;
}

enum class Looks { complete, damaged, unreadable };

/// By its manifest and sizes. What the system does not let us look at may well be a good checkpoint.
Looks looks_of(const std::string& path) {
  try {
    read_complete_manifest(path);
    return Looks::complete;
  } catch (const Error& error) {
    return error.kind() == ErrorKind::checkpoint ? Looks::damaged : Looks::unreadable;
  }
}

}  // namespace

std::string checkpoints_folder(const std::string& run_directory) {
  return run_directory + "/checkpoints";
}

std::string step_folder_name(std::int64_t step) {
  return fmt::format("step_{:08d}", step);
}

std::string temporary_folder_name(std::int64_t step) {
  return kTemporaryPrefix + step_folder_name(step);
}

std::string aside_folder_name(std::int64_t step) {
  return kAsidePrefix + step_folder_name(step);
}

std::optional<std::int64_t> step_in_name(const std::string& name) {
  std::int64_t step = -1;
  if (!name.starts_with("step_")) return std::nullopt;
  const char* end = name.data() + name.size();
  if (std::from_chars(name.data() + 5, end, step).ptr != end || step < 0 || step > kStepLimit) return std::nullopt;
  if (step_folder_name(step) != name) return std::nullopt;
  return step;
}

std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    const auto step = step_in_name(name);
    if (step && file_type(folder + "/" + name) == FileType::directory) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

std::string read_manifest(const std::string& path) {
  const std::string file = path + "/" + kManifestName;
  verify(file_type(file) == FileType::regular, ErrorKind::checkpoint, "{} is missing", kManifestName);
  verify(file_bytes(file) <= kManifestLimit, ErrorKind::checkpoint, "{} is too large to be one", kManifestName);
  return read_text_file(file, kManifestLimit);
}

void check_complete(const std::string& path, const Manifest& manifest) {
  const auto named = step_in_name(std::filesystem::path(path).filename().string());
  verify(!named || *named == manifest.state.step, ErrorKind::checkpoint, "its manifest says step {}",
         manifest.state.step);
  for (const RankFile& file : manifest.files) {
    const std::string name = rank_file_name(file.rank);
    const std::int64_t bytes = file_bytes(path + "/" + name);
    verify(bytes >= 0, ErrorKind::checkpoint, "{} is missing", name);
    verify(bytes == file.bytes, ErrorKind::checkpoint, "{} has {} bytes instead of {}", name, bytes, file.bytes);
  }
}

Manifest read_complete_manifest(const std::string& path) {
  Manifest manifest = parse_manifest(read_manifest(path));
  check_complete(path, manifest);
  return manifest;
}

std::string complaint_about_latest(const std::string& folder) {
  const std::string file = folder + "/latest";
  if (file_type(file) == FileType::absent) return {};
  try {
    std::string name = read_text_file(file, 64);
    if (name.ends_with('\n')) name.pop_back();
    if (!step_in_name(name))
      return fmt::format("{} is no step folder's name",
                         nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    if (file_type(folder + "/" + name) != FileType::directory) return fmt::format("{} is not there", name);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

void clean_leftovers(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    const bool pointer = name.starts_with("latest.") || name.starts_with("best.");
    if (pointer && name.ends_with(".tmp")) (void)::unlink(path.c_str());  // left by a save that died
    if (file_type(path) != FileType::directory) continue;
    if (const auto step = step_behind(name, kAsidePrefix)) {
      const std::string place = folder + "/" + step_folder_name(*step);
      // A crash between the two renames of put_folder_in_place: the old checkpoint has lost its name only.
      const Looks looks = looks_of(path);
      if (looks == Looks::unreadable) continue;
      const bool restored = file_type(place) == FileType::absent && looks == Looks::complete &&
                            ::rename(path.c_str(), place.c_str()) == 0;
      if (!restored) remove_checkpoint(path);
    } else if (step_behind(name, kTemporaryPrefix)) {
      remove_checkpoint(path);
    }
  }
}

std::string remove_checkpoint(const std::string& path) try {
  // The manifest goes first, so that what a crash leaves does not look complete.
  (void)::unlink((path + "/" + kManifestName).c_str());
  for (const std::string& name : names_in(path)) {
    const std::string file = path + "/" + name;
    const bool ours =
        is_rank_file_name(name) || name == kDamageMark || name == kModelFragment ||
        std::find(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), name) != std::end(kTokenizerFiles);
    if (ours && file_type(file) == FileType::regular) (void)::unlink(file.c_str());
  }
  if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return {};
  return fmt::format("{} could not be removed: {}", path, std::generic_category().message(errno));
} catch (const Error& error) {
  return error.what();
}

void mark_damage(const std::string& path, const std::string& damage) {
  const std::string mark = path + "/" + kDamageMark;
  if (damage.empty()) {
    (void)::unlink(mark.c_str());
  } else {
    std::ofstream(mark) << damage << "\n";
  }
}

std::vector<std::string> retain(const std::string& folder, std::int64_t step, const SaveOptions& options) try {
  std::vector<std::string> complaints;
  if (options.keep_last <= 0) return complaints;
  const bool learning = options.nothing_learned_since < 0;
  std::int64_t kept = 1;  // the one just committed
  for (const std::int64_t other : steps_in(folder)) {
    const std::string path = folder + "/" + step_folder_name(other);
    if (other == step || other == options.best || other <= options.nothing_learned_since) continue;
    if (other < step && kept < options.keep_last && learning) {
      const bool marked = file_type(path + "/" + kDamageMark) != FileType::absent;
      const Looks looks = marked ? Looks::damaged : looks_of(path);
      if (looks == Looks::complete) ++kept;
      if (looks != Looks::damaged) continue;
    }
    const std::string complaint = remove_checkpoint(path);
    if (!complaint.empty()) complaints.push_back(complaint);
  }
  return complaints;
} catch (const Error& error) {
  return {error.what()};  // the commit is done; the next one tries again
}

}  // namespace megatron
