// RecordExchange: records to the ranks that they belong to, in rounds that all ranks take part in.
//
// A round moves what was added since the one before; its memory is about four times these records (the largest share
// of any rank for another one counts for all). On one rank records are handed over in place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "distributed/comm/communicator.h"

namespace megatron {

template <std::size_t Words>
class RecordExchange {
 public:
  using Record = std::array<std::uint64_t, Words>;

  explicit RecordExchange(Communicator& world) : world_(world), parts_(static_cast<std::size_t>(world.size())) {}

  void add(std::uint64_t rank, const Record& record) { parts_[rank].push_back(record); }
  /// Collective. `more`: this rank will have records for another round. Calls take(record) for each one that arrived,
  /// by rank and in the order they were added there. True as long as any rank has more: then all take another round.
  bool exchange(bool more, const std::function<void(const Record&)>& take);

 private:
  Communicator& world_;
  std::vector<std::vector<Record>> parts_;  // by rank
};

extern template class RecordExchange<2>;
extern template class RecordExchange<3>;

}  // namespace megatron
