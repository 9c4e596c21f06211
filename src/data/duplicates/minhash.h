// MinHash signatures (Broder 1997) and their bands: two texts of Jaccard similarity j agree in each hash with
// probability j, and in a whole band of r hashes with j^r; those that agree in a band are candidates.
//
// Hash i of a shingle x, 32 bits of XXH3, is the upper half of a[i]·x + b[i] mod 2^64 (Dietzfelbinger's strongly
// universal multiply-shift). The constants are Philox numbers of i: the same in all versions and on all machines.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/duplicates/shingles.h"

namespace megatron {

struct BandPlan {
  int bands = 16, rows = 8;

  int hashes() const { return bands * rows; }
  /// That a pair of this similarity is a candidate: 1 - (1 - j^rows)^bands.
  double probability(double similarity) const;
  /// (1 / bands)^(1 / rows), where the probability rises most.
  double threshold() const;
  /// "16 bands of 8 hashes (threshold 0.707): pairs of Jaccard similarity 0.5, ... are found with probability ...".
  std::string to_string() const;
};
/// Bands and rows of at most this number of hashes whose threshold is nearest to this one; of two the one with more
/// bands. ErrorKind::configuration unless 0 < threshold < 1 and 1 <= hashes <= 4096.
BandPlan plan_bands(int hashes, double threshold);

/// Makes signatures. Keeps its memory; one per thread.
class MinHasher {
 public:
  MinHasher(const Shingles& shingles, const BandPlan& plan);

  const BandPlan& plan() const { return plan_; }
  /// The least value of each hash over the text's shingles: plan().hashes() values, valid until the next call; none
  /// for a text without shingles, which is like no other.
  std::span<const std::uint32_t> signature(std::string_view text);
  /// A hash of each band of a signature, by band, valid until the next call. Equal bands of different places differ.
  std::span<const std::uint64_t> band_hashes(std::span<const std::uint32_t> signature);

 private:
  BandPlan plan_;
  ShingleMaker shingles_;
  std::vector<std::uint64_t> multipliers_, offsets_;  // rounded up to whole tiles
  std::vector<std::uint32_t> values_, signature_;
  std::vector<std::uint64_t> bands_;
};

}  // namespace megatron
