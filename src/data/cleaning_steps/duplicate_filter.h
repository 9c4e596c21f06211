// DuplicateFilter: of documents with the same identity the first one in the order of the input stays, whatever rank has
// read it. Each rank remembers a part of all identities: 16 bytes each, in tables at most three quarters full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/cleaning_steps/step.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// A set of hashes by open addressing.
class HashSet {
 public:
  /// Whether it was not in the set.
  bool insert(const TextHash& hash);
  std::size_t size() const { return used_ + (has_zero_ ? 1 : 0); }

 private:
  void grow();
  std::vector<TextHash> slots_;  // zero: free
  std::size_t used_ = 0;
  bool has_zero_ = false;
};

class DuplicateFilter {
 public:
  explicit DuplicateFilter(Communicator& world) : world_(world) {}

  /// For each of this rank's documents of the round, whether it is the first of its identity: those of rank 0 come
  /// before those of rank 1, and all of a round before those of the next. Collective.
  std::vector<bool> first(std::span<const TextHash> identities);

 private:
  Communicator& world_;
  HashSet seen_;
};

}  // namespace megatron
