#include "data/tokenizer_training/unigram_seeds.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/text/utf8.h"

namespace megatron {

namespace {

constexpr double kCoverage = 0.9995;
constexpr std::size_t kMostPartCharacters = 32, kMostPieceCharacters = 16, kMostSeeds = 1'000'000;

/// Substrings of one length: which of them begins at each place of the text, by number; -1: none that is frequent.
using Places = std::vector<std::int32_t>;

struct Substring {
  std::size_t begin = 0, end = 0;  // one of its occurrences, in bytes
  std::int64_t count = 0;
};

/// The parts, one after the other.
struct Characters {
  std::vector<std::size_t> offsets;   // by character: where it begins, in bytes of the text
  std::vector<std::size_t> part_end;  // by character: the characters before the end of its part
  std::vector<std::int64_t> counts;   // by character: its part's
  std::string text;
};

Characters characters_of(const std::vector<WordPart>& parts) {
  Characters all;
  for (const WordPart& part : parts) {
    const std::size_t begin = all.offsets.size();
    for (std::size_t at = 0; at < part.text.size();) {
      all.offsets.push_back(all.text.size() + at);
      all.counts.push_back(part.count);
      at += first_code_point(part.text.substr(at, 4)).bytes;
    }
    all.part_end.resize(all.offsets.size(), all.offsets.size());
    std::fill(all.part_end.begin() + static_cast<std::ptrdiff_t>(begin), all.part_end.end(), all.offsets.size());
    all.text += part.text;
  }
  all.offsets.push_back(all.text.size());
  return all;
}

/// Counts what `key(place)` tells apart, of the places where there is one, and keeps what occurs often enough.
template <class Key>
std::vector<Substring> count(const Characters& all, std::size_t length, std::int64_t least, Places& places,
                             const Key& key) {
  std::unordered_map<std::uint64_t, std::int32_t> numbers;
  std::vector<Substring> found;
  Places made(places.size(), -1);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i + length > all.part_end[i]) continue;
    const auto [has, value] = key(i);
    if (!has) continue;
    const auto [entry, is_new] = numbers.try_emplace(value, static_cast<std::int32_t>(found.size()));
    if (is_new) found.push_back({all.offsets[i], all.offsets[i + length], 0});
    made[i] = entry->second;
    found[static_cast<std::size_t>(entry->second)].count += all.counts[i];
  }
  for (std::int32_t& place : made) {
    if (place >= 0 && found[static_cast<std::size_t>(place)].count < least) place = -1;
  }
  places.swap(made);
  return found;
}

}  // namespace

std::vector<std::uint32_t> frequent_characters(const WordCounts& words, std::size_t most) {
  std::map<std::uint32_t, std::int64_t> counts;
  std::int64_t all = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words.text(i);
    for (std::size_t at = 0; at < word.size();) {
      const CodePoint c = first_code_point(word.substr(at, 4));
      counts[c.value] += words.count(i);
      all += words.count(i);
      at += c.bytes;
    }
  }
  std::vector<std::pair<std::int64_t, std::uint32_t>> by_count;  // the most frequent first, then by code point
  for (const auto& [c, occurrences] : counts) by_count.emplace_back(-occurrences, c);
  std::sort(by_count.begin(), by_count.end());
  std::vector<std::uint32_t> kept;
  std::int64_t covered = 0;
  for (const auto& [occurrences, c] : by_count) {
    if (kept.size() == most || static_cast<double>(covered) >= kCoverage * static_cast<double>(all)) break;
    kept.push_back(c);
    covered -= occurrences;
  }
  return kept;
}

std::vector<WordPart> word_parts(const WordCounts& words, const std::vector<std::uint32_t>& kept) {
  const std::unordered_set<std::uint32_t> known(kept.begin(), kept.end());
  std::vector<WordPart> parts;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words.text(i);
    std::size_t begin = 0, characters = 0;
    const auto end_part = [&](std::size_t end, std::size_t next) {
      if (end > begin) parts.push_back({word.substr(begin, end - begin), words.count(i)});
      begin = next;
      characters = 0;
    };
    for (std::size_t at = 0; at < word.size();) {
      const CodePoint c = first_code_point(word.substr(at, 4));
      if (!known.contains(c.value)) {
        end_part(at, at + c.bytes);
      } else if (characters++ == kMostPartCharacters) {
        end_part(at, at);
        characters = 1;
      }
      at += c.bytes;
    }
    end_part(word.size(), word.size());
  }
  return parts;
}

std::vector<SeedPiece> seed_pieces(const std::vector<WordPart>& parts, std::int64_t least_count) {
  const Characters all = characters_of(parts);
  const auto text_of = [&](const Substring& s) { return all.text.substr(s.begin, s.end - s.begin); };
  Places places(all.counts.size());
  std::vector<SeedPiece> seeds;
  const auto single = [&](std::size_t i) {
    return std::pair(true, std::uint64_t{first_code_point(std::string_view(all.text).substr(all.offsets[i], 4)).value});
  };
  for (const Substring& s : count(all, 1, 0, places, single)) {
    seeds.push_back({text_of(s), static_cast<double>(s.count), true});
  }
  struct Scored {
    double covers;
    Substring substring;
  };
  std::vector<Scored> longer;
  for (std::size_t length = 2; length <= kMostPieceCharacters; ++length) {
    // A substring is frequent only if both of those inside it are that are shorter by a character.
    const auto both = [&](std::size_t i) {
      const std::int32_t left = places[i], right = places[i + 1];
      return std::pair(left >= 0 && right >= 0,
                       static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right));
    };
    for (const Substring& s : count(all, length, least_count, places, both)) {
      if (s.count >= least_count) longer.push_back({static_cast<double>(s.count) * static_cast<double>(length), s});
    }
  }
  std::sort(longer.begin(), longer.end(), [&](const Scored& a, const Scored& b) {
    if (a.covers != b.covers) return a.covers > b.covers;
    const std::string_view text = all.text;
    return text.substr(a.substring.begin, a.substring.end - a.substring.begin) <
           text.substr(b.substring.begin, b.substring.end - b.substring.begin);
  });
  longer.resize(std::min(longer.size(), kMostSeeds));
  for (const Scored& one : longer) {
    seeds.push_back({text_of(one.substring), static_cast<double>(one.substring.count), false});
  }
  std::sort(seeds.begin(), seeds.end(), [](const SeedPiece& a, const SeedPiece& b) { return a.text < b.text; });
  return seeds;
}

}  // namespace megatron
