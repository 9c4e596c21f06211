// Merging long pieces: the symbols as a linked list, and the merges that are possible in the order they must be done.
#include <algorithm>
#include <functional>
#include <unordered_map>

#include "data/tokenizer_kinds/merge_rules.h"

namespace megatron {

namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

/// Positions of one rank, the lowest first. As long as they come in ascending order, which is nearly always, a plain
/// queue; a queue that is ascending is also a heap, and becomes one with the first position that is out of order.
class PositionQueue {
 public:
  bool empty() const { return head_ == positions_.size(); }

  void push(std::uint32_t position) {
    if (!heap_ && !empty() && position < positions_.back()) {
      positions_.erase(positions_.begin(), positions_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
      heap_ = true;
    }
    positions_.push_back(position);
    if (heap_) std::push_heap(positions_.begin(), positions_.end(), std::greater<>());
  }

  std::uint32_t pop() {
    if (!heap_) return positions_[head_++];
    std::pop_heap(positions_.begin(), positions_.end(), std::greater<>());
    const std::uint32_t position = positions_.back();
    positions_.pop_back();
    return position;
  }

 private:
  std::vector<std::uint32_t> positions_;
  std::size_t head_ = 0;  // front of the plain queue; 0 in a heap
  bool heap_ = false;
};

/// All merges that may be possible, by rank, then position. Time for each at most log n.
class MergeQueue {
 public:
  void push(std::uint32_t rank, std::uint32_t position) {
    const auto [found, added] = queues_.try_emplace(rank);
    if (added) {
      ranks_.push_back(rank);
      std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
    }
    found->second.push(position);
  }
  bool empty() const { return ranks_.empty(); }
  std::uint32_t lowest_rank() const { return ranks_.front(); }
  /// A position of the lowest rank.
  std::uint32_t pop() {
    const auto queue = queues_.find(ranks_.front());
    const std::uint32_t position = queue->second.pop();
    if (queue->second.empty()) {
      queues_.erase(queue);
      std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
      ranks_.pop_back();
    }
    return position;
  }

 private:
  std::unordered_map<std::uint32_t, PositionQueue> queues_;  // none is empty
  std::vector<std::uint32_t> ranks_;                         // a heap of their ranks
};

}  // namespace

void encode_long(const MergeRules& rules, std::vector<std::int32_t> symbols, std::vector<std::int32_t>& ids) {
  const auto count = static_cast<std::uint32_t>(symbols.size());
  std::vector<std::uint32_t> previous(count), next(count);
  MergeQueue queue;
  const auto offer = [&](std::uint32_t left, std::uint32_t right) {
    const std::uint32_t rank = rules.rank_of(symbols[left], symbols[right]);
    if (rank != kNoRank) queue.push(rank, left);
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    previous[i] = i == 0 ? kNone : i - 1;
    next[i] = i + 1 == count ? kNone : i + 1;
    if (i + 1 < count) offer(i, i + 1);
  }
  while (!queue.empty()) {
    const std::uint32_t rank = queue.lowest_rank(), left = queue.pop();
    const std::uint32_t right = symbols[left] < 0 ? kNone : next[left];
    if (right == kNone) continue;
    if (rules.rank_of(symbols[left], symbols[right]) != rank) continue;  // a neighbour has been merged since
    symbols[left] = rules.result_of(rank);
    symbols[right] = -1;
    next[left] = next[right];
    if (next[left] != kNone) {
      previous[next[left]] = left;
      offer(left, next[left]);
    }
    if (previous[left] != kNone) offer(previous[left], left);
  }
  for (std::uint32_t i = 0; i != kNone; i = next[i]) ids.push_back(symbols[i]);
}

}  // namespace megatron
