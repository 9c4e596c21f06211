// TokenIndex: the ids of tokens by their bytes. Open addressing: reading GPT-2's merges asks it 150,000 times.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {

class TokenIndex {
 public:
  struct Entry {
    std::string bytes;
    std::int32_t id = 0;
  };

  const std::vector<Entry>& entries() const { return entries_; }

  /// nullptr if there is none; valid until the next add().
  const Entry* find(std::string_view bytes) const {
    const std::size_t hash = std::hash<std::string_view>()(bytes);
    for (std::size_t at = hash;; ++at) {
      const Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.entry == 0) return nullptr;
      const Entry& entry = entries_[slot.entry - 1];
      if (slot.hash == static_cast<std::uint32_t>(hash) && entry.bytes == bytes) return &entry;
    }
  }

  /// `bytes` must not be there yet.
  void add(std::string bytes, std::int32_t id) {
    entries_.push_back({std::move(bytes), id});
    if (2 * entries_.size() > slots_.size()) {
      slots_.assign(2 * slots_.size(), {});
      for (std::uint32_t i = 1; i < entries_.size(); ++i) put(i);
    }
    put(static_cast<std::uint32_t>(entries_.size()));
  }

 private:
  struct Slot {
    std::uint32_t hash = 0, entry = 0;  // entry: from 1; 0 if the slot is free
  };

  void put(std::uint32_t entry) {
    const std::size_t hash = std::hash<std::string_view>()(entries_[entry - 1].bytes);
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].entry != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {static_cast<std::uint32_t>(hash), entry};
  }

  std::vector<Entry> entries_;
  std::vector<Slot> slots_ = std::vector<Slot>(1024);  // a power of two, at most half full
};

}  // namespace megatron
