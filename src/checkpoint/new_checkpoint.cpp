#include "checkpoint/new_checkpoint.h"

#include <filesystem>
#include <future>
#include <memory>

#include "checkpoint/folder.h"
#include "checkpoint/piece_stream.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;

/// Where a target lies and what it is called, whether or not the path ends with a slash.
fs::path place_of(const std::string& target) {
  fs::path place = fs::absolute(target).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  return place;
}

/// Each file is hashed and flushed while the next one is being written.
NewCheckpointReport fill(const PendingFolder& folder, const TrainingState& state, int ranks, int moments,
                         const std::function<NewRankFile(int rank)>& contents) {
  NewCheckpointReport report;
  ManifestBuilder manifest(state, ranks);
  std::future<FileDigest> finishing;
  int finishing_rank = 0;
  const auto finish = [&] {
    if (!finishing.valid()) return;
    const FileDigest digest = finishing.get();
    manifest.add_file(finishing_rank, digest, moments);
    report.bytes += digest.bytes;
    ++report.files;
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const NewRankFile file = contents(rank);
    if (file.pieces.empty()) continue;
    const std::string path = folder.path() + "/" + rank_file_name(rank);
    const std::string table = fill_rank_file(path, rank, state.step, file.pieces, moments, file.numbers);
    for (const Piece& piece : file.pieces) manifest.add_elements(piece.name, piece.global_shape, piece.count);
    finish();
    finishing = std::async(finish_rank_file, path, rank, state.step, table, moments);
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
  verify(file_type(place.string()) == FileType::absent, ErrorKind::configuration,
         "{} is there already; remove it or give another target", target);
  const auto named = step_in_name(name);
  verify(!named || *named == step, ErrorKind::configuration,
         "{} would be the name of another step than this checkpoint's, {}; give another target", target, step);
}

PendingFolder new_folder(const std::string& target, FolderRemoval removal) {
  const fs::path place = place_of(target);
  verify(file_type(place.string()) == FileType::absent, ErrorKind::configuration,
         "{} is there already; remove it or give another target", target);
  const std::string parent = place.parent_path().string(), name = place.filename().string();
  create_folder_durably(parent);
  // Another name than a run's own saves have before they count: a run cleans those up, and so may be running here.
  const PendingFolder folder(parent, ".making_" + name, name, "", removal);
  folder.discard();
  folder.create();
  return folder;
}

NewCheckpointReport write_new_checkpoint(const std::string& target, const TrainingState& state, int ranks, int moments,
                                         const std::function<NewRankFile(int rank)>& contents,
                                         const std::function<void(const std::string& folder)>& check) {
  check_new_checkpoint(target, state.step);
  const PendingFolder folder = new_folder(target, remove_checkpoint);
  try {
    const NewCheckpointReport report = fill(folder, state, ranks, moments, contents);
    if (check) check(folder.path());
    folder.commit();
    return report;
  } catch (...) {
    folder.discard();
    throw;
  }
}

NewCheckpointReport rewrite_checkpoint(const CheckpointReader& source, const std::string& target, int ranks,
                                       const PieceLayout& layout) {
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : source.tensors()) elements += tensor.shape.elements();
  check_new_checkpoint(target, source.state().step);
  check_free_space(place_of(target).parent_path().string(),
                   checkpoint_bytes(elements * (1 + source.moments()), false, ranks));
  const auto contents = [&](int rank) {
    std::vector<Piece> pieces;
    for (Piece& piece : layout(rank)) {
      if (piece.count > 0) pieces.push_back(std::move(piece));
    }
    const auto stream = std::make_shared<PieceStream>(source, pieces);
    return NewRankFile{std::move(pieces),
                       [stream](Stored kind, std::int64_t position) { return stream->read(kind, position); }};
  };
  return write_new_checkpoint(target, source.state(), ranks, source.moments(), contents,
                              [&](const std::string&) { source.require_verified(); });
}

}  // namespace megatron
