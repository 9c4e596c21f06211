// ReplicaCheck: values that several ranks hold must be the same bits on all of them. Memory, processors and networks
// break without saying so; what comes of it looks like training for a long time.
//
// Which groups hold the same follows from the parameter's record: the table in the constructor. So it does for fp32
// masters and moments, of which a distributed optimizer's ranks hold a part each. Moments are not compared over the
// grid's copies: where they differ the values do after the next update. Knows hashes and ranks, not when to check.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/ops/device.h"
#include "distributed/comm/process_grid.h"
#include "distributed/parallel/parameter.h"
#include "training/optimizer/optimizer.h"

namespace megatron {

class ReplicaCheck {
 public:
  /// All must outlive the check; the store must be allocated, and the optimizer be of it.
  ReplicaCheck(const ProcessGrid& grid, const ParameterStore& store, Device& device, const Optimizer& optimizer);
  ~ReplicaCheck();
  ReplicaCheck(const ReplicaCheck&) = delete;
  ReplicaCheck& operator=(const ReplicaCheck&) = delete;

  /// Reads all values once; sends a few numbers. Collective over the grid. Copies that differ: the same
  /// Error(numerics) on every rank, which names tensors, ranks and hosts. `when` opens its text: "after step 300".
  void run(const std::string& when);

 private:
  struct Slice {
    const Parameter* parameter;
    ConstTensor values;
    std::string of;                   ///< " (fp32 master)", or nothing
    bool over_copies, over_replicas;  ///< the grid's copies, or those of another set, are to have the same
    std::uint64_t hash = 0;
  };
  /// A group, and the slices that are the same on all its ranks.
  struct Holders {
    Communicator* group;
    std::function<bool(const Slice&)> hold;
  };
  struct HashState;

  void add(Slice slice);
  void add_state(const Parameter& parameter, const FlatRange& part, const Optimizer& optimizer, bool shared_out);
  bool differ(const Holders& holders) const;
  std::uint64_t hash_of(ConstTensor values);
  std::vector<std::pair<std::string, std::uint64_t>> hashes() const;  // slices' names and hashes

  const ProcessGrid& grid_;
  Device& device_;
  std::vector<Holders> holders_;
  std::vector<Slice> slices_;
  std::vector<std::byte> staging_;
  std::unique_ptr<HashState> state_;
};

}  // namespace megatron
