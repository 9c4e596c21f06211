// Checkpoints that a tool makes, on one process: a folder of any name with rank files for any number of ranks, whole or
// not there at all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/system/file_lock.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/commit.h"
#include "checkpoint/store/rank_file.h"

namespace megatron {

struct NewRankFile {
  std::vector<TensorSlice> slices;  ///< their tensors do not count; empty: the rank has no file
  NumberSource numbers;
};

struct NewCheckpointReport {
  int files = 0;
  std::int64_t bytes = 0;
};

/// Error(configuration) unless a folder can be made there under this name: nothing is there, and a name that says a
/// step says this one.
void check_new_checkpoint(const std::string& target, std::int64_t step);

/// An empty folder that will be `target`, which must not be there yet, and which no other command makes as long as this
/// lives. What commands that died have left of it is removed.
class NewFolder {
 public:
  NewFolder(const std::string& target, FolderRemoval removal);
  const std::string& path() const { return folder_.path(); }
  std::int64_t write_manifest(const Manifest& manifest) const { return folder_.write_manifest(manifest); }
  void commit() const { folder_.commit(); }
  void discard() const noexcept { folder_.discard(); }

 private:
  TargetLock lock_;
  PendingFolder folder_;
};

/// Writes the folder `target` with what `contents` says of each rank, in their order; all slices together cover every
/// tensor once. `check`, if given, may look at the folder before it gets its name. Throws Error(filesystem), or what
/// reading or the check throws; then there is nothing at `target`.
NewCheckpointReport write_new_checkpoint(const std::string& target, const TrainingState& state, int ranks,
                                         const std::function<NewRankFile(int rank)>& contents,
                                         const std::function<void(const std::string& folder)>& check = nullptr);

/// The slices, whose tensors and states do not count, that a rank of another layout has. Empty: it has nothing.
using SliceLayout = std::function<std::vector<TensorSlice>(int rank)>;

/// The same checkpoint in another layout: all numbers and the training state as they are. Memory is that of the tables
/// and of one buffer. `add`, if given, may put files into the folder before it gets its name.
NewCheckpointReport rewrite_checkpoint(const CheckpointReader& source, const std::string& target, int ranks,
                                       const SliceLayout& layout,
                                       const std::function<void(const std::string& folder)>& add = nullptr);

}  // namespace megatron
