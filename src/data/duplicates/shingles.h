// Shingles: the overlapping pieces of n words, characters or bytes whose sets say how alike two texts are.
//
// A text with fewer than n units has one shingle, all of it; an empty one has none. Shingles are told apart by 64 bits
// of XXH3.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/cleaning/text_form.h"

namespace megatron {

enum class ShingleUnit : std::uint8_t { words, characters, bytes };

/// Shingles of `size` units of the text in that form.
struct Shingles {
  ShingleUnit unit = ShingleUnit::words;
  int size = 5;
  TextForm form = TextForm::words;
};

/// A way to compare near duplicates, with the values of the keys that go with it.
struct ShingleKind {
  const char* name;
  Shingles signatures;  ///< hashed for signatures
  Shingles check;       ///< compared where two documents are candidates
  int hashes;
  double threshold;        ///< where the bands' curve is steepest
  double check_threshold;  ///< candidates of this Jaccard similarity and more are duplicates
};
/// words: 5 words. characters: 24 characters, for texts that do not separate words. megatron: 5 bytes of the text as it
/// is, checked by 5 characters, 10 bands of 10 rows.
std::span<const ShingleKind> shingle_kinds();
/// ErrorKind::configuration, with the names that there are, for another one.
const ShingleKind& shingle_kind(std::string_view name);

/// Makes shingles; keeps its memory. One per thread.
class ShingleMaker {
 public:
  explicit ShingleMaker(const Shingles& shingles) : shingles_(shingles) {}

  /// Hashes of the text's shingles in their order, repeated ones too; valid until the next call.
  const std::vector<std::uint64_t>& hashes(std::string_view text);
  /// The same as a set: ascending, each one once.
  std::vector<std::uint64_t> set(std::string_view text);

 private:
  void find_starts(std::string_view text);

  Shingles shingles_;
  std::string buffer_;
  std::vector<std::size_t> starts_;  // places of the units, and of the one that would follow
  std::vector<std::uint64_t> hashes_;
};

/// The divisor of the number of common shingles: the size of the union (`all`: Jaccard's similarity), of the smaller
/// set (`fewer`: containment) or of the larger one.
enum class Overlap : std::uint8_t { all, fewer, more };
/// Similarity of two sets, each ascending; 0 if one is empty.
double similarity(std::span<const std::uint64_t> first, std::span<const std::uint64_t> second,
                  Overlap overlap = Overlap::all);

}  // namespace megatron
