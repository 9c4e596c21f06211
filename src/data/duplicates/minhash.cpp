#include "data/duplicates/minhash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/core/error.h"
#include "base/core/philox.h"

namespace megatron {

namespace {

/// Eight hashes at a time, and as many of these as stay in registers.
using Lanes [[gnu::vector_size(64)]] = std::uint64_t;
constexpr std::size_t kLanes = sizeof(Lanes) / sizeof(std::uint64_t), kTile = 4 * kLanes;
constexpr int kMostHashes = 4096;

constexpr std::uint64_t joined(std::uint32_t high, std::uint32_t low) {
  return std::uint64_t{high} << 32 | low;
}

/// Least values of kTile hashes over all shingles.
void least_values(std::span<const std::uint32_t> values, const std::uint64_t* multipliers, const std::uint64_t* offsets,
                  std::uint32_t* out) {
  Lanes a[kTile / kLanes], b[kTile / kLanes], least[kTile / kLanes];
  std::memcpy(a, multipliers, sizeof a);
  std::memcpy(b, offsets, sizeof b);
  for (Lanes& lanes : least) lanes = Lanes{} - 1;
  for (const std::uint32_t value : values) {
    const Lanes x = Lanes{} + value;
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kTile / kLanes; ++i) {
      const Lanes hash = a[i] * x + b[i];
      least[i] = hash < least[i] ? hash : least[i];
    }
  }
  for (std::size_t i = 0; i < kTile; ++i) out[i] = static_cast<std::uint32_t>(least[i / kLanes][i % kLanes] >> 32);
}

}  // namespace

double BandPlan::probability(double similarity) const {
  return 1 - std::pow(1 - std::pow(similarity, rows), bands);
}

double BandPlan::threshold() const {
  return std::pow(1.0 / bands, 1.0 / rows);
}

std::string BandPlan::to_string() const {
  std::string similarities, probabilities;
  for (const double j : {0.5, 0.6, 0.7, 0.8, 0.9}) {
    similarities += fmt::format(" {:.1f}", j);
    probabilities += fmt::format(" {:.3f}", probability(j));
  }
  return fmt::format(
      "{} bands of {} hashes (threshold {:.3f}): pairs of Jaccard similarity{} are found with probability{}", bands,
      rows, threshold(), similarities, probabilities);
}

BandPlan plan_bands(int hashes, double threshold) {
  verify(hashes >= 1 && hashes <= kMostHashes, ErrorKind::configuration,
         "near duplicates need 1 to {} hashes per document, not {}", kMostHashes, hashes);
  verify(threshold > 0 && threshold < 1, ErrorKind::configuration,
         "the similarity of near duplicates must be between 0 and 1, not {}", threshold);
  BandPlan best{hashes, 1};
  for (int rows = 2; rows <= hashes; ++rows) {
    const BandPlan plan{hashes / rows, rows};
    if (std::abs(plan.threshold() - threshold) < std::abs(best.threshold() - threshold)) best = plan;
  }
  return best;
}

MinHasher::MinHasher(const Shingles& shingles, const BandPlan& plan) : plan_(plan), shingles_(shingles) {
  const std::size_t hashes = static_cast<std::size_t>(plan.hashes()), padded = (hashes + kTile - 1) / kTile * kTile;
  const std::uint64_t key = random_key(hash_name("minhash"), 0, 0);
  for (std::size_t i = 0; i < padded; ++i) {
    const PhiloxCounter words = philox4x32({static_cast<std::uint32_t>(i), 0, 0, 0}, key);
    multipliers_.push_back(joined(words[0], words[1]));
    offsets_.push_back(joined(words[2], words[3]));
  }
  signature_.resize(padded);
  bands_.resize(static_cast<std::size_t>(plan.bands));
}

std::span<const std::uint32_t> MinHasher::signature(std::string_view text) {
  const std::vector<std::uint64_t>& hashes = shingles_.hashes(text);
  if (hashes.empty()) return {};
  values_.resize(hashes.size());
  for (std::size_t i = 0; i < hashes.size(); ++i) values_[i] = static_cast<std::uint32_t>(hashes[i]);
  for (std::size_t first = 0; first < signature_.size(); first += kTile) {
    least_values(values_, &multipliers_[first], &offsets_[first], &signature_[first]);
  }
  return std::span(signature_).first(static_cast<std::size_t>(plan_.hashes()));
}

std::span<const std::uint64_t> MinHasher::band_hashes(std::span<const std::uint32_t> signature) {
  const auto rows = static_cast<std::size_t>(plan_.rows);
  for (std::size_t band = 0; band < bands_.size(); ++band) {
    bands_[band] = XXH3_64bits_withSeed(&signature[band * rows], rows * sizeof(std::uint32_t), band);
  }
  return bands_;
}

}  // namespace megatron
