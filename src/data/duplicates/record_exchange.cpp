#include "data/duplicates/record_exchange.h"

#include <algorithm>
#include <cstring>

namespace megatron {

template <std::size_t Words>
bool RecordExchange<Words>::exchange(bool more, const std::function<void(const Record&)>& take) {
  if (world_.size() == 1) {
    for (const Record& record : parts_[0]) take(record);
    parts_[0].clear();
    return more;
  }
  double most[2] = {0, more ? 1.0 : 0.0};
  for (const std::vector<Record>& part : parts_) most[0] = std::max(most[0], static_cast<double>(part.size()));
  world_.all_reduce_values(most, kDecision);
  if (most[0] > 0) {
    // Equal parts: the number of records, and room for the largest share.
    const std::size_t part_words = 1 + static_cast<std::size_t>(most[0]) * Words;
    std::vector<std::uint64_t> send(part_words * parts_.size()), receive(send.size());
    for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
      std::uint64_t* part = &send[rank * part_words];
      part[0] = parts_[rank].size();
      if (part[0] > 0) std::memcpy(part + 1, parts_[rank].data(), part[0] * sizeof(Record));
      parts_[rank].clear();
    }
    const Shape shape{static_cast<std::int64_t>(send.size() * sizeof(std::uint64_t))};
    world_.all_to_all(ConstTensor(send.data(), shape, DType::u8), Tensor(receive.data(), shape, DType::u8), kReport);
    for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
      const std::uint64_t* part = &receive[rank * part_words];
      internal_check(part[0] * Words < part_words, "records that arrived", part[0], part_words);
      for (std::size_t i = 0; i < part[0]; ++i) {
        Record record;
        std::memcpy(record.data(), part + 1 + i * Words, sizeof record);
        take(record);
      }
    }
  }
  return most[1] > 0;
}

template class RecordExchange<2>;
template class RecordExchange<3>;

}  // namespace megatron
