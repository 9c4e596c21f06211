// ReplicaCheck: values that several ranks hold must be the same bits on all of them. Memory, processors and networks
// break without saying so; what comes of it looks like training for a long time.
//
// What has copies follows from the parameters' placements: every parameter on the data ranks, whole ones (norms, some
// biases, position tables) on the tensor ranks, tied ones on the first and last stage. Knows hashes and ranks; when to
// check is the loop's business.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/process_grid.h"
#include "ops/device.h"
#include "parallel/parameter.h"

namespace megatron {

class ReplicaCheck {
 public:
  /// All must outlive the check; the store must be allocated. `master`: the flat f32 copy of the values (as long as
  /// store.values()) where each data rank holds a whole one; empty where there is none, or it is shared out.
  ReplicaCheck(const ProcessGrid& grid, const ParameterStore& store, Device& device, ConstTensor master);
  ~ReplicaCheck();
  ReplicaCheck(const ReplicaCheck&) = delete;
  ReplicaCheck& operator=(const ReplicaCheck&) = delete;

  /// Reads all values once; sends a few numbers. Collective over the grid. Copies that differ: the same
  /// Error(numerics) on every rank, which names tensors, ranks and hosts. `when` opens its text: "after step 300".
  void run(const std::string& when);

 private:
  struct Piece {
    const Parameter* parameter;
    ConstTensor values;
    const char* of;  ///< " (fp32 master)", or nothing
    std::uint64_t hash;
  };
  struct HashState;

  template <class Select>
  bool differ(Communicator& group, const Select& select) const;
  std::uint64_t hash_of(ConstTensor values);
  std::string describe() const;

  const ProcessGrid& grid_;
  Device& device_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> staging_;
  std::unique_ptr<HashState> state_;
};

}  // namespace megatron
