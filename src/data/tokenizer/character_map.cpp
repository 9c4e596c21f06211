#include "data/tokenizer/character_map.h"

#include <cstring>

#include "base/core/philox.h"
#include "base/text/utf8.h"

namespace megatron {

namespace {

// A unit of a double array as darts-clone lays it out.
constexpr std::size_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}
constexpr bool has_leaf(std::uint32_t unit) {
  return (unit >> 8 & 1u) == 1u;
}
constexpr std::uint32_t label_of(std::uint32_t unit) {
  return unit & ((1u << 31) | 0xFFu);
}
constexpr std::size_t value_of(std::uint32_t unit) {
  return unit & ~(1u << 31);
}

}  // namespace

std::optional<CharacterMap> CharacterMap::read(std::string_view bytes) {
  std::uint32_t array_bytes = 0;
  if (bytes.size() < sizeof array_bytes) return std::nullopt;
  std::memcpy(&array_bytes, bytes.data(), sizeof array_bytes);
  bytes.remove_prefix(sizeof array_bytes);
  if (array_bytes == 0 || array_bytes >= bytes.size() || array_bytes % sizeof(std::uint32_t) != 0) return std::nullopt;
  CharacterMap map;
  map.units_.resize(array_bytes / sizeof(std::uint32_t));
  std::memcpy(map.units_.data(), bytes.data(), array_bytes);
  map.replacements_ = bytes.substr(array_bytes);
  return map.is_valid() ? std::optional(std::move(map)) : std::nullopt;
}

/// Depth first. No string leads back to where it has been; several may lead to the same base.
bool CharacterMap::is_valid() const {
  if (replacements_.back() != '\0' || first_invalid_utf8(replacements_) != replacements_.size()) return false;
  enum class State : std::uint8_t { fresh, on_path, done };
  std::vector<State> states(units_.size(), State::fresh);  // by base
  struct TrieStep {
    std::size_t base = 0;
    std::uint32_t label = 0;  // the next one to follow
  };
  std::vector<TrieStep> path;
  const auto enter = [&](std::size_t base) {
    if ((base | 0xFF) >= units_.size()) return false;
    states[base] = State::on_path;
    path.push_back({base});
    return true;
  };
  if (!enter(offset_of(units_[0]))) return false;
  while (!path.empty()) {
    auto& [base, next_label] = path.back();
    if (next_label > 0xFF) {
      states[base] = State::done;
      path.pop_back();
      continue;
    }
    const std::uint32_t label = next_label++;
    const std::size_t at = base ^ label;
    const std::uint32_t unit = units_[at];
    if (label_of(unit) != label) continue;
    const std::size_t next = at ^ offset_of(unit);
    if (next >= units_.size() || states[next] == State::on_path) return false;
    if (has_leaf(unit) && !is_valid_leaf(next)) return false;
    if (states[next] == State::fresh && !enter(next)) return false;
  }
  return true;
}

bool CharacterMap::is_valid_leaf(std::size_t at) const {
  const std::size_t value = value_of(units_[at]);
  if (value >= replacements_.size()) return false;
  if ((static_cast<unsigned char>(replacements_[value]) & 0xC0) == 0x80) return false;  // within a character
  return std::string_view(replacements_).substr(value, kLongestReplacement + 1).find('\0') != std::string_view::npos;
}

std::uint64_t CharacterMap::hash() const {
  const std::string_view array(reinterpret_cast<const char*>(units_.data()), units_.size() * sizeof(std::uint32_t));
  return hash_name(array) ^ mix64(hash_name(replacements_));
}

std::pair<std::optional<std::string_view>, std::size_t> CharacterMap::found(std::string_view text,
                                                                            bool shortest) const {
  std::pair<std::optional<std::string_view>, std::size_t> best;
  std::size_t base = offset_of(units_[0]);
  text = text.substr(0, kLongestReplaced);
  for (std::size_t i = 0; i < text.size() && !(shortest && best.first); ++i) {
    const auto label = static_cast<unsigned char>(text[i]);
    if (label == 0) break;
    const std::size_t at = base ^ label;
    if (at >= units_.size() || label_of(units_[at]) != label) break;  // the former: an empty map
    base = at ^ offset_of(units_[at]);
    if (has_leaf(units_[at])) best = {replacements_.c_str() + value_of(units_[base]), i + 1};
  }
  return best;
}

}  // namespace megatron
