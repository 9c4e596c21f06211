#include "checkpoint/store/save_work.h"

#include "checkpoint/store/folder.h"
#include "checkpoint/store/tensor_slices.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"

namespace megatron {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FileDigest, bytes, xxh3_128)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TensorSummary, name, shape, elements, states)

namespace {

/// Description of a rank's file for rank 0; no parts, no file.
struct WrittenFile {
  FileDigest digest;
  std::vector<TensorSummary> parts;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(WrittenFile, digest, parts)

}  // namespace

SaveWork::SaveWork(Communicator& world, const std::string& run_directory, TrainingState state,
                   const std::vector<TensorSlice>& owned, const SaveOptions& options)
    : world_(world),
      state_(std::move(state)),
      options_(options),
      folder_(checkpoints_folder(run_directory)),
      pending_(folder_, temporary_folder_name(state_.step), step_folder_name(state_.step),
               aside_folder_name(state_.step)) {
  for (const TensorSlice& slice : owned) {
    if (slice.count > 0) owned_.push_back(slice);
  }
}

void SaveWork::prepare() {
  agree(world_, [&] {
    check_slices(owned_);
    internal_check(state_.step >= 0 && state_.step <= kStepLimit, "a step out of range", state_.step);
    internal_check(state_.facts.is_object() && state_.extra.is_object(), "training state that is no JSON object");
  });
  double mine = 0;
  for (const TensorSlice& slice : owned_) mine += static_cast<double>(slice.numbers());
  const auto numbers = static_cast<std::int64_t>(world_.all_reduce_value(mine, kReport));
  agree(
      world_,
      [&] {
        if (!root()) return;
        create_folder_durably(folder_);
        clean_leftovers(folder_);
        check_free_space(folder_, room_for_checkpoint(numbers, world_.size()));
        pending_.create();
      },
      ErrorKind::filesystem);
}

std::string SaveWork::rank_file_path() const {
  return pending_.path() + "/" + rank_file_name(world_.rank());
}

void SaveWork::write_rank_file_here(Device& device) {
  if (owned_.empty()) return;
  digest_ = write_rank_file(rank_file_path(), world_.rank(), state_.step, owned_, device);
}

void SaveWork::write_rank_file_here(const NumberSource& numbers) {
  if (owned_.empty()) return;
  digest_ = write_rank_file(rank_file_path(), world_.rank(), state_.step, owned_, numbers);
}

/// Also refuses to commit what could not be loaded: every element must have had its one owner.
void SaveWork::gather_manifest() {
  WrittenFile mine{digest_, {}};
  for (const TensorSlice& slice : owned_) mine.parts.push_back(summary_of(slice));
  const std::vector<WrittenFile> files = gather(world_, mine);
  agree(world_, [&] {
    if (!root()) return;
    ManifestBuilder builder(state_, world_.size());
    for (std::size_t rank = 0; rank < files.size(); ++rank) {
      const auto& [digest, parts] = files[rank];
      if (parts.empty()) continue;
      builder.add_file(static_cast<int>(rank), digest);
      for (const TensorSummary& part : parts) builder.add_elements(part);
    }
    manifest_ = builder.finish();
  });
}

void SaveWork::publish() {
  bytes_ = manifest_.file_bytes() + pending_.write_manifest(manifest_);
  pending_.commit();
  name_step("latest", state_.step);
  if (options_.best >= 0) name_step("best", options_.best);  // also where an earlier save could not
  for (std::string& complaint : retain(folder_, state_.step, options_)) {
    warnings_.push_back(std::move(complaint));
  }
}

// `latest` and `best` are hints for people: the step folders are what counts, so that failing here fails nothing.
void SaveWork::name_step(const char* file, std::int64_t step) try {
  replace_file_durably(folder_ + "/" + file, step_folder_name(step) + "\n");
} catch (const Error& error) {
  warnings_.emplace_back(error.what());
}

SaveReport SaveWork::report() {
  bytes_ = static_cast<std::int64_t>(world_.all_reduce_value(static_cast<double>(bytes_), kReport));
  return {pending_.place(), bytes_, 0, warnings_};
}

}  // namespace megatron
