// Datasets of rank files that stay open between many small reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "checkpoint/store/rank_file.h"
#include "data/hdf5/hdf5_reader.h"

namespace megatron {

class OpenDatasets {
 public:
  /// A dataset of a rank file; opened when it is asked for first. Valid until the next call.
  const Hdf5Array& at(const std::string& path, const std::string& dataset) {
    const auto key = std::pair(path, dataset);
    auto found = open_.find(key);
    if (found == open_.end()) {
      if (open_.size() == kMost) {
        open_.erase(std::min_element(open_.begin(), open_.end(), [](const auto& a, const auto& b) {
          return a.second.last_use < b.second.last_use;
        }));
      }
      found = open_.emplace(key, Open{Hdf5Reader(path, ErrorKind::checkpoint).open_dataset(dataset)}).first;
    }
    found->second.last_use = ++uses_;
    return found->second.dataset;
  }

  static constexpr std::size_t kMost = 64;  ///< open at a time, the last ones used: file descriptors are few

 private:
  struct Open {
    Hdf5Array dataset;
    std::uint64_t last_use = 0;
  };
  std::map<std::pair<std::string, std::string>, Open> open_;
  std::uint64_t uses_ = 0;
};

}  // namespace megatron
