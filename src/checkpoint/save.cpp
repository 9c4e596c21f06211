#include <chrono>

#include "checkpoint/checkpoint.h"
#include "checkpoint/commit.h"
#include "checkpoint/files.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/pieces.h"
#include "checkpoint/rank_file.h"
#include "comm/agreement.h"

namespace megatron {

namespace {

using nlohmann::json;

/// One save, on one rank. The steps are called in the order of their declaration, by all ranks.
class Save {
 public:
  Save(Communicator& world, const std::string& run_directory, const TrainingState& state,
       const std::vector<Piece>& owned, Device& device)
      : world_(world),
        state_(state),
        device_(device),
        folder_(checkpoints_folder(run_directory)),
        pending_(folder_, temporary_folder_name(state.step), step_folder_name(state.step),
                 aside_folder_name(state.step)) {
    for (const Piece& piece : owned) {
      if (piece.count > 0) owned_.push_back(piece);
    }
  }

  void prepare();
  void write_rank_file_here();
  void gather_manifest();
  void write_manifest();
  void commit();
  std::vector<std::string> name_latest();  ///< complaints
  void discard() const noexcept { pending_.discard(); }

  bool root() const { return world_.rank() == 0; }
  const std::string& folder() const { return folder_; }
  const std::string& path() const { return pending_.place(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::string describe_part() const;

  Communicator& world_;
  const TrainingState& state_;
  Device& device_;
  std::string folder_;
  PendingFolder pending_;
  std::vector<Piece> owned_;
  FileDigest digest_;
  Manifest manifest_;  // on rank 0
  std::int64_t bytes_ = 0;
};

/// Checks, makes room, and creates the temporary folder.
void Save::prepare() {
  agree(world_, [&] {
    check_pieces(owned_);
    for (const Piece& piece : owned_) {
      internal_check(piece.moments() == owned_.front().moments(), "optimizer state for some of the pieces only");
    }
    internal_check(state_.step >= 0 && state_.step <= kStepLimit, "a step out of range");
    internal_check(state_.facts.is_object() && state_.extra.is_object(), "training state that is no JSON object");
  });
  double mine = 0;
  for (const Piece& piece : owned_) mine += static_cast<double>(piece.count) * (1 + piece.moments());
  const auto numbers = static_cast<std::int64_t>(world_.all_reduce_value(mine));
  agree(
      world_,
      [&] {
        if (!root()) return;
        create_folder_durably(folder_);
        clean_leftovers(folder_);
        check_free_space(folder_, checkpoint_bytes(numbers, false, world_.size()));
        pending_.create();
      },
      ErrorKind::filesystem);
}

void Save::write_rank_file_here() {
  const auto write = [&] {
    if (owned_.empty()) return;
    digest_ = write_rank_file(pending_.path() + "/" + rank_file_name(world_.rank()), world_.rank(), state_.step, owned_,
                              device_);
  };
  agree(world_, write, ErrorKind::filesystem);
}

/// What rank 0 needs to know of this rank's file.
std::string Save::describe_part() const {
  if (owned_.empty()) return {};
  json tensors = json::array();
  for (const Piece& piece : owned_) {
    tensors.push_back({{"name", piece.name}, {"shape", json_of(piece.global_shape)}, {"count", piece.count}});
  }
  return json{{"bytes", digest_.bytes},
              {"xxh3_128", digest_.xxh3_128},
              {"moments", owned_.front().moments()},
              {"tensors", std::move(tensors)}}
      .dump();
}

/// Also refuses to commit what could not be loaded: every element must have had its one owner.
void Save::gather_manifest() {
  const std::vector<std::string> parts = world_.gather_texts(describe_part(), 0);
  agree(world_, [&] {
    if (!root()) return;
    ManifestBuilder builder(state_, world_.size());
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      if (parts[rank].empty()) continue;
      const json part = json::parse(parts[rank]);
      builder.add_file(static_cast<int>(rank), {part.at("bytes"), part.at("xxh3_128")}, part.at("moments"));
      for (const json& entry : part.at("tensors")) {
        builder.add_elements(entry.at("name"), shape_at(entry, "shape"), entry.at("count"));
      }
    }
    manifest_ = builder.finish();
  });
}

void Save::write_manifest() {
  agree(
      world_,
      [&] {
        if (!root()) return;
        bytes_ = manifest_.file_bytes() + pending_.write_manifest(manifest_);
      },
      ErrorKind::filesystem);
  bytes_ = static_cast<std::int64_t>(world_.all_reduce_value(static_cast<double>(bytes_)));
}

void Save::commit() {
  const auto commit = [&] {
    if (root()) pending_.commit();
  };
  agree(world_, commit, ErrorKind::filesystem);
}

// `latest` is a hint for people: the step folders are what counts, so that failing here fails nothing.
std::vector<std::string> Save::name_latest() try {
  if (root()) replace_file_durably(folder_, "latest", step_folder_name(state_.step) + "\n");
  return {};
} catch (const Error& error) {
  return {error.what()};
}

}  // namespace

SaveReport save_checkpoint(Communicator& world, const std::string& run_directory, const TrainingState& state,
                           const std::vector<Piece>& owned, Device& device, const SaveOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Save save(world, run_directory, state, owned, device);
  try {
    save.prepare();
    save.write_rank_file_here();
    save.gather_manifest();
    save.write_manifest();
    save.commit();
  } catch (const Error&) {
    // All ranks are here (or the job is ending): nobody writes into the folder any more.
    if (save.root()) save.discard();
    throw;
  }
  SaveReport report{save.path(), save.bytes(), 0, save.name_latest()};
  if (save.root()) {
    for (std::string& complaint : retain(save.folder(), state.step, options.keep_last)) {
      report.warnings.push_back(std::move(complaint));
    }
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::int64_t checkpoint_bytes(std::int64_t elements, bool with_optimizer, int ranks) {
  constexpr std::int64_t kTableBytes = 64 << 10, kManifestBytes = 1 << 20;
  return elements * 4 * (with_optimizer ? 3 : 1) + kTableBytes * ranks + kManifestBytes;
}

}  // namespace megatron
