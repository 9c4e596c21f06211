// The commit protocol of a checkpoint folder, in one place for all who write one: training's saves and the offline
// tools. Files go into a folder of another name, then a manifest, everything is synced, and one rename makes it count.
//
// On one process (rank 0 of a save). Knows folders and manifests; who writes the rank files, and when, is the callers'.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "checkpoint/store/files.h"
#include "checkpoint/store/folder.h"

namespace megatron {

/// Removes what the program has written into a folder, and the folder. Empty, or what stood in the way.
using FolderRemoval = std::string (*)(const std::string& path);

/// A folder on its way to becoming the checkpoint `place`, filled under the name `temporary`; what has the place before
/// makes way by the name `aside`, or where that is empty stays, and the commit fails unless it is an empty folder. All
/// three names are in `parent`.
/// Throws Error(filesystem).
class PendingFolder {
 public:
  PendingFolder(std::string parent, const std::string& temporary, const std::string& place, const std::string& aside,
                FolderRemoval removal = remove_checkpoint);

  const std::string& path() const { return temporary_; }  ///< where files go
  const std::string& place() const { return place_; }

  /// Creates the folder, which must not be there.
  void create() const;
  /// Writes and syncs the manifest of the files that lie in the folder, synced already, after a check that it can be
  /// read. Returns its bytes.
  std::int64_t write_manifest(const Manifest& manifest) const;
  /// After this it is there, whatever happens. What had the place before is removed; nothing else is.
  void commit() const;
  /// Removes what was written; for the way out after an error.
  void discard() const noexcept;

 private:
  std::string parent_, temporary_, place_, aside_;
  FolderRemoval remove_;
};

/// Puts together the manifest of rank files, which are added by rank.
class ManifestBuilder {
 public:
  ManifestBuilder(const TrainingState& state, int ranks);

  void add_file(int rank, const FileDigest& digest);
  /// Adds a part of a tensor that is in some file: its elements, each with the same states. Internal error unless all
  /// parts of the tensor have the same shape and states.
  void add_elements(const TensorSummary& part);
  /// Internal error unless every element of every tensor is in one file, by count: what could not be loaded must not be
  /// committed.
  Manifest finish();

 private:
  Manifest manifest_;
  std::map<std::string, TensorSummary> tensors_;
};

}  // namespace megatron
