// One save, on one rank, step by step. Internal to src/checkpoint/store: save_checkpoint() and BackgroundSave call the
// steps.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/commit.h"
#include "checkpoint/store/rank_file.h"

namespace megatron {

/// The steps are called in the order of their declaration, by all ranks. Those that are marked collective throw on all
/// ranks or on none; the others do not communicate, may be called from another thread, and throw for this rank
/// alone. After an error: discard(), on rank 0, once no rank writes any more.
class SaveWork {
 public:
  SaveWork(Communicator& world, const std::string& run_directory, TrainingState state,
           const std::vector<TensorSlice>& owned, const SaveOptions& options);

  void prepare();  ///< collective: checks, makes room, and creates the temporary folder
  /// Writes this rank's slices: their tensors lie on `device`, or `numbers` gives the numbers (rank_file.h).
  void write_rank_file_here(Device& device);
  void write_rank_file_here(const NumberSource& numbers);
  void gather_manifest();  ///< collective: what was written, which must be everything, comes to rank 0
  void publish();          ///< on rank 0 only: manifest and commit, then what the save does not depend on
  SaveReport report();     ///< collective; how long it took the caller knows

  void discard() const noexcept { pending_.discard(); }
  /// This rank's slices without empty ones, in the order of its file.
  const std::vector<TensorSlice>& owned() const { return owned_; }
  bool root() const { return world_.rank() == 0; }
  std::int64_t step() const { return state_.step; }

 private:
  std::string rank_file_path() const;
  void name_step(const char* file, std::int64_t step);

  Communicator& world_;
  TrainingState state_;
  SaveOptions options_;
  std::string folder_;
  PendingFolder pending_;
  std::vector<TensorSlice> owned_;
  FileDigest digest_;
  Manifest manifest_;  // on rank 0
  std::int64_t bytes_ = 0;
  std::vector<std::string> warnings_;
};

}  // namespace megatron
