#include "data/cleaning_steps/duplicate_filter.h"

#include <cstring>
#include <string>

#include "data/cleaning_steps/rank_messages.h"

namespace megatron {

bool HashSet::insert(const TextHash& hash) {
  const TextHash zero;
  if (hash == zero) return !std::exchange(has_zero_, true);
  if (4 * (used_ + 1) > 3 * slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash.high & mask;
  while (!(slots_[at] == zero)) {
    if (slots_[at] == hash) return false;
    at = (at + 1) & mask;
  }
  slots_[at] = hash;
  ++used_;
  return true;
}

void HashSet::grow() {
  constexpr std::size_t kLeastSlots = 1024;
  std::vector<TextHash> larger(std::max(kLeastSlots, 2 * slots_.size()));
  const std::size_t mask = larger.size() - 1;
  for (const TextHash& hash : slots_) {
    if (hash == TextHash{}) continue;
    std::size_t at = hash.high & mask;
    while (!(larger[at] == TextHash{})) at = (at + 1) & mask;
    larger[at] = hash;
  }
  slots_ = std::move(larger);
}

std::vector<bool> DuplicateFilter::first(std::span<const TextHash> identities) {
  const auto ranks = static_cast<std::size_t>(world_.size());
  std::vector<std::string> asked(ranks);
  for (const TextHash& identity : identities) {
    asked[identity.low % ranks].append(reinterpret_cast<const char*>(&identity), sizeof identity);
  }
  std::vector<std::string> answers;
  for (const std::string& part : exchange_bytes(world_, asked)) {
    std::string& answer = answers.emplace_back(part.size() / sizeof(TextHash), '\0');
    for (std::size_t i = 0; i < answer.size(); ++i) {
      TextHash identity;
      std::memcpy(&identity, part.data() + i * sizeof identity, sizeof identity);
      answer[i] = seen_.insert(identity) ? 1 : 0;
    }
  }
  const std::vector<std::string> told = exchange_bytes(world_, answers);
  std::vector<std::size_t> at(ranks);
  std::vector<bool> first;
  for (const TextHash& identity : identities) {
    const std::size_t owner = identity.low % ranks;
    first.push_back(told[owner][at[owner]++] != 0);
  }
  return first;
}

}  // namespace megatron
