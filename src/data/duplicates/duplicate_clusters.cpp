#include "data/duplicates/duplicate_clusters.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/core/error.h"

namespace megatron {

template <std::size_t Words>
bool CandidatePairs<Words>::next(DocumentPair& pair) {
  std::array<std::uint64_t, Words> record;
  while (sorted_.next(record)) {
    const bool same = begun_ && std::equal(record.begin(), record.end() - 1, first_.begin());
    if (same && record.back() != first_.back()) {
      pair = {first_.back(), record.back()};
      return true;
    }
    begun_ = true;
    first_ = record;
  }
  return false;
}

template class CandidatePairs<2>;
template class CandidatePairs<3>;

bool CandidateCheck::confirms(const DocumentPair& pair) {
  if (!begun_ || first_ != pair[0]) {
    first_set_ = maker_.set(fetch_(pair[0]));
    first_ = pair[0];
    begun_ = true;
  }
  return similarity(first_set_, maker_.set(fetch_(pair[1])), overlap_) >= threshold_;
}

DuplicateClusters::DuplicateClusters(std::uint64_t documents) : earlier_(documents) {
  std::iota(earlier_.begin(), earlier_.end(), std::uint64_t{0});
}

std::uint64_t DuplicateClusters::survivor(std::uint64_t document) {
  internal_check(document < earlier_.size(), "a document of a cluster", document, earlier_.size());
  while (earlier_[document] != document) {
    earlier_[document] = earlier_[earlier_[document]];
    document = earlier_[document];
  }
  return document;
}

void DuplicateClusters::join(const DocumentPair& pair) {
  const std::uint64_t a = survivor(pair[0]), b = survivor(pair[1]);
  earlier_[std::max(a, b)] = std::min(a, b);
}

std::map<std::uint64_t, std::uint64_t> DuplicateClusters::sizes() {
  std::unordered_map<std::uint64_t, std::uint64_t> members;  // by survivor, without it
  for (std::uint64_t document = 0; document < earlier_.size(); ++document) {
    const std::uint64_t first = survivor(document);
    if (first != document) ++members[first];
  }
  std::map<std::uint64_t, std::uint64_t> sizes;
  for (const auto& [first, others] : members) ++sizes[others + 1];
  return sizes;
}

}  // namespace megatron
