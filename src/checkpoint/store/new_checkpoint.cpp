#include "checkpoint/store/new_checkpoint.h"

#include <filesystem>
#include <future>
#include <memory>
#include <optional>

#include "base/system/durable_file.h"
#include "checkpoint/store/folder.h"
#include "checkpoint/store/slice_stream.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;

/// Where a target lies and what it is called, whether or not the path ends with a slash.
fs::path place_of(const std::string& target) {
  fs::path place = fs::absolute(target).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  return place;
}

void require_absent(const std::string& target) {
  verify(file_type(place_of(target).string()) == FileType::absent, ErrorKind::configuration,
         "{} is there already; remove it or give another target", target);
}

/// Another name than a run's own saves have before they count: a run cleans those up, and so may be running here.
std::string making_name(const fs::path& place) {
  return ".making_" + place.filename().string();
}

PendingFolder pending_folder(const fs::path& place, FolderRemoval removal) {
  const std::string parent = place.parent_path().string();
  return {parent, temporary_name(making_name(place)), place.filename().string(), "", removal};
}

/// Removes leftovers of commands that died; what cannot be removed stays.
void remove_unfinished(const fs::path& place, FolderRemoval removal) {
  const std::string stem = making_name(place);
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator at(place.parent_path(), error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool of_it = name.starts_with(stem) && is_behind_temporary(std::string_view(name).substr(stem.size()));
    if (of_it && file_type(at->path().string()) == FileType::directory) found.push_back(at->path().string());
  }
  for (const std::string& path : found) removal(path);
}

/// States of a tensor, without memory; none if there is no such tensor, which reading will tell.
std::vector<NamedState> states_in(const CheckpointReader& source, const std::string& tensor) {
  std::vector<NamedState> states;
  const auto stored = source.tensors().find(tensor);
  if (stored == source.tensors().end()) return states;
  for (const std::string& name : stored->second.states) states.push_back({name, {}});
  return states;
}

/// Each file is hashed and flushed while the next one is being written.
NewCheckpointReport fill(const NewFolder& folder, const TrainingState& state, int ranks,
                         const std::function<NewRankFile(int rank)>& contents) {
  NewCheckpointReport report;
  ManifestBuilder manifest(state, ranks);
  std::future<FileDigest> finishing;
  int finishing_rank = 0;
  const auto finish = [&] {
    if (!finishing.valid()) return;
    const FileDigest digest = finishing.get();
    manifest.add_file(finishing_rank, digest);
    report.bytes += digest.bytes;
    ++report.files;
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const NewRankFile file = contents(rank);
    if (file.slices.empty()) continue;
    const std::string path = folder.path() + "/" + rank_file_name(rank);
    const SliceTable table = fill_rank_file(path, rank, state.step, file.slices, file.numbers);
    for (const TensorSlice& slice : file.slices) manifest.add_elements(summary_of(slice));
    finish();
    finishing = std::async(finish_rank_file, path, rank, state.step, table);
    finishing_rank = rank;
  }
  finish();
  report.bytes += folder.write_manifest(manifest.finish());
  return report;
}

}  // namespace

void check_new_checkpoint(const std::string& target, std::int64_t step) {
  verify(!target.empty(), ErrorKind::configuration, "the target has no name");
  const fs::path place = place_of(target);
  const std::string name = place.filename().string();
  require_absent(target);
  const std::string parent = place.parent_path().string();
  verify(file_type(parent + "/" + kManifestName) == FileType::absent, ErrorKind::configuration,
         "{} would be inside the checkpoint {}; give another target", target, parent);
  const auto named = step_in_name(name);
  verify(!named || *named == step, ErrorKind::configuration,
         "{} would be the name of another step than this checkpoint's, {}; give another target", target, step);
}

NewFolder::NewFolder(const std::string& target, FolderRemoval removal)
    : lock_(place_of(target).string()), folder_(pending_folder(place_of(target), removal)) {
  require_absent(target);
  remove_unfinished(place_of(target), removal);
  folder_.create();
}

NewCheckpointReport write_new_checkpoint(const std::string& target, const TrainingState& state, int ranks,
                                         const std::function<NewRankFile(int rank)>& contents,
                                         const std::function<void(const std::string& folder)>& check) {
  check_new_checkpoint(target, state.step);
  const NewFolder folder(target, remove_checkpoint);
  try {
    const NewCheckpointReport report = fill(folder, state, ranks, contents);
    if (check) check(folder.path());
    folder.commit();
    return report;
  } catch (...) {
    folder.discard();
    throw;
  }
}

NewCheckpointReport rewrite_checkpoint(const CheckpointReader& source, const std::string& target, int ranks,
                                       const SliceLayout& layout,
                                       const std::function<void(const std::string& folder)>& add) {
  std::int64_t numbers = 0;
  for (const TensorSlice& whole : whole_tensors(source)) numbers += whole.numbers();
  check_new_checkpoint(target, source.state().step);
  check_free_space(place_of(target).parent_path().string(), room_for_checkpoint(numbers, ranks));
  const auto contents = [&](int rank) {
    std::vector<TensorSlice> slices;
    for (TensorSlice& slice : layout(rank)) {
      if (slice.count == 0) continue;
      slice.states = states_in(source, slice.name);
      slices.push_back(std::move(slice));
    }
    const auto stream = std::make_shared<std::optional<SliceStream>>();
    return NewRankFile{slices, [&source, slices, stream](const std::string& dataset, std::int64_t position) {
                         if (position == 0) stream->emplace(source, slices, dataset);
                         return (*stream)->read(position);
                       }};
  };
  return write_new_checkpoint(target, source.state(), ranks, contents, [&](const std::string& folder) {
    if (add) add(folder);
    source.require_verified();
  });
}

}  // namespace megatron
