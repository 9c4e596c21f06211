// Datasets of rank files that stay open between many small reads.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "checkpoint/rank_file.h"
#include "hdf5/hdf5_file.h"

namespace megatron {

class OpenDatasets {
 public:
  /// Of a rank file; opened when it is asked for first. Valid until the next call.
  const Hdf5Dataset& at(const std::string& path, Stored kind) {
    const auto key = std::pair(path, kind);
    const auto found = open_.find(key);
    if (found != open_.end()) return found->second.second;
    if (open_.size() == kMost) open_.clear();
    Hdf5File file = Hdf5File::open(path, ErrorKind::checkpoint);
    Hdf5Dataset dataset = file.open_dataset(dataset_of(kind));
    return open_.emplace(key, std::pair(std::move(file), std::move(dataset))).first->second.second;
  }

 private:
  static constexpr std::size_t kMost = 64;  // file descriptors are few
  std::map<std::pair<std::string, Stored>, std::pair<Hdf5File, Hdf5Dataset>> open_;
};

}  // namespace megatron
