// Checkpoints: saving a run so that a crash at any moment leaves a good one, and loading it on any layout.
//
// Every rank writes and reads for itself; rank 0 decides and all ranks agree: a function here that takes a communicator
// is collective over it and throws the same Error on all ranks or on none. This layer knows slices of tensors and an
// opaque training state; it must not know models, optimizers or configurations. Nothing in a file is trusted: sizes are
// checked before anything is allocated and no path is taken from a file.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/comm/communicator.h"
#include "distributed/parallel/parameter.h"

namespace megatron {

struct CopySegment;  // overlap.h
class OpenDatasets;  // open_datasets.h

/// Where the run stands. `facts` must match on resume (compare_facts); `extra` is whatever else the trainer needs back.
/// Both are JSON objects, at most 32 levels deep.
struct TrainingState {
  std::int64_t step = 0, samples = 0, tokens = 0;
  nlohmann::json facts = nlohmann::json::object();
  nlohmann::json extra = nlohmann::json::object();
};

struct SaveOptions {
  std::int64_t keep_last = 0;  ///< complete checkpoints that stay, this one included; 0: all
  std::int64_t best =
      -1;  ///< a step whose checkpoint stays as well; the one that is being saved: it is named in `best`
  /// Checkpoints up to this step stay as well: nothing has been learned since. Then the new one is the only later one
  /// that stays.
  std::int64_t nothing_learned_since = -1;
};

struct SaveReport {
  std::string path;                   ///< path of the committed folder
  std::int64_t bytes = 0;             ///< written by all ranks together
  double seconds = 0;                 ///< this rank's wall time in save_checkpoint; of a BackgroundSave, see there
  std::vector<std::string> warnings;  ///< on rank 0: what went wrong after the commit and does not matter to it
};

/// Writes the slices that this rank owns, whose tensors lie on `device` (all ranks' slices together cover every tensor
/// exactly once, and a tensor's have the same states), and commits. The state must be the same on all ranks.
/// Throws Error(filesystem) on all ranks if any rank could not write: then the temporary folder is gone and older
/// checkpoints are as they were. Saving a step again replaces it. With keep_last > 0, checkpoints of later steps are
/// removed too: the run has gone back and they are an abandoned future.
/// The program must ignore SIGXFSZ for a file size limit (ulimit -f) to be an error and not its end.
///
/// On disk, under the run directory (docs/checkpoint_format.md has it field by field):
///   checkpoints/latest                     the newest committed folder's name, for people; loading scans by itself
///   checkpoints/step_00000100/manifest.json
///   checkpoints/step_00000100/rank_00003.h5   what rank 3 owned: flat f32 datasets and a table of slices
///   checkpoints/.tmp_step_00000100/        a save that is under way, or died; the next save removes it
SaveReport save_checkpoint(Communicator& world, const std::string& run_directory, const TrainingState& state,
                           const std::vector<TensorSlice>& owned, Device& device, const SaveOptions& options = {});

/// Throws Error(numerics) naming a tensor on all ranks if not all values that ranks own are finite.
void require_finite(Communicator& world, const std::vector<TensorSlice>& owned, Device& device);

/// Bytes that must be free before `numbers` of all ranks are saved, with room for tables and manifest.
std::int64_t room_for_checkpoint(std::int64_t numbers, int ranks);

struct FoundCheckpoint {
  std::string path;
  std::int64_t step = 0;
  std::int64_t bytes = 0;
};

/// The complete-looking checkpoints of a run, newest (largest step) first: readable manifest, all files there with the
/// right sizes. Contents are not verified. Not collective. No folder or none in it: empty.
std::vector<FoundCheckpoint> find_checkpoints(const std::string& run_directory);

/// A slice as it lies in a rank file: `count` elements from `position` on in the dataset of values, and from another
/// place on in that of each of its tensor's states.
struct StoredSlice {
  Box box;
  std::int64_t first = 0, count = 0;
  std::int64_t position = 0;
  int file = 0;
  std::vector<std::int64_t> state_positions = {};  ///< in the order of the tensor's states
};

/// A tensor of a checkpoint, with all its slices.
struct StoredTensor {
  Shape shape;
  std::vector<StoredSlice> slices;
  std::vector<std::string> states = {};  ///< the optimizer's, by name, sorted
};

/// A checkpoint whose files have all been verified against the manifest's hashes, or are being (open_unverified()).
/// Holds tables, no data.
class CheckpointReader {
 public:
  /// Waits until all files have been verified. Throws Error(checkpoint) naming one that is not what was saved: then
  /// nothing that was read counts.
  void require_verified() const {
    if (verified_.valid()) verified_.get();
  }
  const std::string& path() const { return path_; }
  const TrainingState& state() const { return state_; }
  std::vector<std::string> states() const;  ///< names of all tensors' states, sorted
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  /// Fills the value and the states of every wanted slice, whose tensors lie on `device`, whatever the layout that
  /// saved it. Collective. Throws Error(checkpoint) naming the tensor if it is missing, has another global shape, or is
  /// not covered exactly once; or if a state is wanted that was not saved.
  void read(Communicator& world, const std::vector<TensorSlice>& wanted, Device& device) const;

  /// Fills the wanted slices' `value`, in host memory, with the stored numbers of one dataset: kValues, or a state's.
  /// Not collective. Throws as read().
  void read_numbers(const std::string& dataset, const std::vector<TensorSlice>& wanted) const;
  /// The same, for many small reads: files stay open in `open`.
  void read_numbers(const std::string& dataset, const std::vector<TensorSlice>& wanted, OpenDatasets& open) const;

 private:
  friend class CheckpointOpener;
  CheckpointReader() = default;
  void read_to(Device& device, const std::vector<TensorSlice>& wanted) const;
  void read_here(const std::vector<TensorSlice>& wanted) const;
  std::vector<std::vector<CopySegment>> plan(const std::string& dataset, const std::vector<TensorSlice>& wanted) const;

  std::string path_;
  TrainingState state_;
  std::vector<std::string> files_;
  std::map<std::string, StoredTensor> tensors_;
  std::shared_future<void> verified_;  // none: before this was there
};

/// The newest complete, undamaged checkpoint of a run directory, or none if it has none at all. Damaged ones are passed
/// over with a line in `warnings` (the same on all ranks). Throws Error(checkpoint) if there are checkpoints but all
/// are damaged, or the newest was written by a newer major version of the format.
std::optional<CheckpointReader> open_newest_checkpoint(Communicator& world, const std::string& run_directory,
                                                       std::vector<std::string>& warnings);

/// The checkpoint that a user named: a folder, which must be undamaged, or a run directory (its newest undamaged one).
/// Throws Error(checkpoint) otherwise.
CheckpointReader open_named_checkpoint(Communicator& world, const std::string& path,
                                       std::vector<std::string>& warnings);

/// A checkpoint folder for one process, complete and with every element of every tensor stored once. Its files are
/// verified by `threads` threads while the caller already reads: a caller that uses what it has read asks
/// require_verified() first, and where reading fails, since that may be why. Not collective. Throws Error(checkpoint).
CheckpointReader open_unverified(const std::string& path, std::size_t threads);

/// The folder that a user named, by its manifest and sizes alone: SOURCE itself, or of a run directory (or a folder of
/// step folders) the newest that is complete; newer ones that are not get a line in `warnings`. Not collective. Throws
/// Error(checkpoint) if there is none.
std::string find_named_checkpoint(const std::string& path, std::vector<std::string>& warnings);

/// Everything there is, states included, as slices without memory: tensors whole, in the order of their names.
std::vector<TensorSlice> whole_tensors(const CheckpointReader& checkpoint);

/// Every tensor's slices cover it exactly once, element by element, or Error(checkpoint) naming one that they do not.
void verify_coverage(const CheckpointReader& checkpoint);

/// Lets `read` take what it needs out of a checkpoint's training state: what it finds missing or malformed becomes
/// Error(checkpoint) with the checkpoint's path in front.
void read_state(const CheckpointReader& checkpoint, const std::function<void(const nlohmann::json& extra)>& read);

inline constexpr const char* kAbsentFact = "absent";

struct FactDifference {
  std::string key;             ///< "hidden_size", nested "model.layers"
  std::string saved, current;  ///< fact_text(); kAbsentFact if only the other side has the key
};

/// A fact's value as people read it: JSON, and hashes in 16 hexadecimal digits, as everywhere.
std::string fact_text(const std::string& key, const nlohmann::json& value);
/// All keys in which two JSON objects differ, in key order.
std::vector<FactDifference> compare_facts(const nlohmann::json& saved, const nlohmann::json& current);

/// Each with both values, after a line feed.
std::string list_of(const std::vector<FactDifference>& differences);

/// Throws Error(checkpoint) that lists every difference with both values; `path` names the checkpoint, `chosen_by` the
/// key by which another one is chosen.
void require_same_facts(const nlohmann::json& saved, const nlohmann::json& current, const std::string& path,
                        const std::string& chosen_by);

/// Throws Error(filesystem) with both numbers unless the file system of `directory` (or of its nearest existing parent)
/// has `bytes` free for this user.
void check_free_space(const std::string& directory, std::int64_t bytes);

/// Creates the directory if need be and proves that files can be made, written and removed in it, or throws
/// Error(filesystem). One rank is enough.
void check_writable(const std::string& directory);

/// Removes what saves that died have left in the checkpoints folder. For the owner of the run, at its start, on one
/// rank (never while another process may be saving there); saving does it by itself.
void clean_checkpoints(const std::string& run_directory);

/// Whether a run has written here before (resolved configuration, metrics, or checkpoints).
bool directory_has_run(const std::string& run_directory);
/// `wanted` itself if it has no run; else the first of wanted_2, wanted_3, ... that does not exist, which is made. Jobs
/// that ask at the same time get different ones. One rank is enough.
std::string make_fresh_run_directory(const std::string& wanted);

}  // namespace megatron
