#include "data/duplicates/minhash.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "data/cleaning/cleaning_support.h"
#include "support/catch.h"
#include "support/require_error.h"

namespace megatron::test {

namespace {

/// Jaccard similarity of the five-word shingles of two texts that are in the words form already.
double true_similarity(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto shingles = [](const std::vector<std::string>& words) {
    std::set<std::string> all;
    for (std::size_t i = 0; i + 5 <= words.size(); ++i) all.insert(joined({&words[i], &words[i] + 5}));
    return all;
  };
  const std::set<std::string> first = shingles(a), second = shingles(b);
  std::size_t common = 0;
  for (const std::string& shingle : first) common += second.count(shingle);
  return static_cast<double>(common) / static_cast<double>(first.size() + second.size() - common);
}

/// The whole number of the words of `count` to replace that comes nearest to this similarity: a run of m of n words
/// leaves n - 4 - (m + 4) shingles of n - 4.
std::size_t replaced_words(std::size_t count, double similarity) {
  const double shingles = static_cast<double>(count) - 4, common = 2 * shingles * similarity / (1 + similarity);
  return static_cast<std::size_t>(std::lround(shingles - common - 4));
}

bool share_a_band(MinHasher& hasher, const std::string& a, const std::string& b) {
  const auto first = hasher.band_hashes(hasher.signature(a));
  const std::vector<std::uint64_t> kept(first.begin(), first.end());
  const auto second = hasher.band_hashes(hasher.signature(b));
  for (std::size_t band = 0; band < kept.size(); ++band) {
    if (kept[band] == second[band]) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("minhash: the probabilities of published band plans") {
  struct Row {
    int bands, rows;
    double threshold;
    std::vector<double> probabilities;  // at 0.5, 0.6, ... 0.9
  };
  const Row rows[] = {{10, 10, .794, {.010, .059, .249, .679, .986}},
                      {14, 8, .719, {.053, .211, .565, .924, 1.000}},
                      {20, 13, .794, {.002, .026, .177, .677, .997}},
                      {16, 8, .707, {.061, .237, .613, .947, 1.000}}};
  for (const Row& row : rows) {
    const BandPlan plan{row.bands, row.rows};
    INFO(plan.to_string());
    CHECK(plan.threshold() == Approx(row.threshold).margin(.0005));
    for (std::size_t i = 0; i < row.probabilities.size(); ++i) {
      CHECK(plan.probability(0.5 + 0.1 * static_cast<double>(i)) == Approx(row.probabilities[i]).margin(.0005001));
    }
  }
  CHECK(BandPlan{16, 8}.to_string() ==
        "16 bands of 8 hashes (threshold 0.707): pairs of Jaccard similarity 0.5 0.6 0.7 0.8 0.9 are found with "
        "probability 0.061 0.237 0.613 0.947 1.000");
}

TEST_CASE("minhash: bands and rows follow from threshold and hashes") {
  const auto require_plan = [](int hashes, double threshold, int bands, int rows) {
    const BandPlan plan = plan_bands(hashes, threshold);
    INFO(hashes << " hashes, " << threshold);
    CHECK(plan.bands == bands);
    CHECK(plan.rows == rows);
  };
  require_plan(100, 0.8, 10, 10);
  require_plan(112, 0.72, 14, 8);
  require_plan(260, 0.8, 20, 13);
  require_plan(128, 0.7, 16, 8);
  require_plan(1, 0.5, 1, 1);
  for (const int hashes : {0, -1, 4097}) {
    require_error(ErrorKind::configuration, {"1 to 4096 hashes"}, [&] { plan_bands(hashes, 0.7); });
  }
  for (const double threshold : {0.0, 1.0, -0.1, std::nan("")}) {
    require_error(ErrorKind::configuration, {"between 0 and 1"}, [&] { plan_bands(128, threshold); });
  }
}

TEST_CASE("minhash: a signature has the least value of each hash") {
  const BandPlan plan{7, 5};  // 35 hashes: more than a tile and less than two
  const Shingles bytes{ShingleUnit::bytes, 5, TextForm::as_is};
  MinHasher hasher(bytes, plan);
  ShingleMaker maker(bytes);
  const std::string text = "The quick brown fox jumps over the lazy dog.";
  std::vector<std::uint32_t> expected;
  for (std::uint32_t i = 0; i < 35; ++i) {
    const PhiloxCounter words = philox4x32({i, 0, 0, 0}, random_key(hash_name("minhash"), 0, 0));
    const std::uint64_t a = std::uint64_t{words[0]} << 32 | words[1], b = std::uint64_t{words[2]} << 32 | words[3];
    std::uint32_t least = ~0u;
    for (const std::uint64_t x : maker.hashes(text)) {
      least = std::min(least, static_cast<std::uint32_t>((a * (x & 0xFFFFFFFFu) + b) >> 32));
    }
    expected.push_back(least);
  }
  const auto signature = hasher.signature(text);
  CHECK(std::vector<std::uint32_t>(signature.begin(), signature.end()) == expected);
}

TEST_CASE("minhash: signatures are the same in all versions") {
  MinHasher hasher(shingle_kind("words").signatures, BandPlan{1, 3});
  const auto signature = hasher.signature("It was the best of times, it was the worst of times.");
  CHECK(std::vector<std::uint32_t>(signature.begin(), signature.end()) ==
        std::vector<std::uint32_t>{269653623, 25723946, 546425870});
}

TEST_CASE("minhash: texts without shingles have no signature") {
  MinHasher hasher(shingle_kind("words").signatures, BandPlan{});
  CHECK(hasher.signature("").empty());
  CHECK(hasher.signature(" ... !").empty());
  CHECK(hasher.signature("one").size() == 128);
}

TEST_CASE("minhash: equal rows in two bands have two hashes") {
  MinHasher hasher(shingle_kind("words").signatures, BandPlan{2, 2});
  const std::vector<std::uint32_t> signature{7, 8, 7, 8};
  const auto bands = hasher.band_hashes(signature);
  CHECK(bands[0] != bands[1]);
}

TEST_CASE("minhash: planted edits are found as often as the plan says") {
  constexpr std::size_t kWords = 104, kPairs = 250;
  for (const BandPlan plan : {BandPlan{16, 8}, BandPlan{10, 10}}) {
    MinHasher hasher(shingle_kind("words").signatures, plan);
    for (const double similarity : {0.5, 0.6, 0.7, 0.8, 0.9}) {
      Numbers numbers(static_cast<std::uint64_t>(similarity * 100));
      double expected = 0, variance = 0;
      int found = 0;
      for (std::size_t pair = 0; pair < kPairs; ++pair) {
        const auto original = made_up_words(numbers, kWords);
        const auto edit = edited(original, replaced_words(kWords, similarity), numbers);
        const double j = true_similarity(original, edit), p = plan.probability(j);
        CHECK(std::abs(j - similarity) < 0.02);
        expected += p;
        variance += p * (1 - p);
        found += share_a_band(hasher, joined(original), joined(edit));
      }
      INFO(plan.to_string() << ", similarity " << similarity);
      INFO("found " << found << " of " << kPairs << ", expected " << expected << " +- " << std::sqrt(variance));
      CHECK(std::abs(found - expected) <= 3.5 * std::sqrt(variance) + 0.5);
    }
  }
}

TEST_CASE("minhash: hashes agree as often as texts are alike") {
  constexpr int kHashes = 2048;
  MinHasher hasher(shingle_kind("words").signatures, BandPlan{1, kHashes});
  Numbers numbers(5);
  for (int pair = 0; pair < 20; ++pair) {
    const auto original = made_up_words(numbers, 300), edit = edited(original, 60, numbers);
    const auto first = hasher.signature(joined(original));
    const std::vector<std::uint32_t> kept(first.begin(), first.end());
    const auto second = hasher.signature(joined(edit));
    int equal = 0;
    for (std::size_t i = 0; i < kept.size(); ++i) equal += kept[i] == second[i];
    const double j = true_similarity(original, edit);
    CHECK(std::abs(equal - j * kHashes) <= 4 * std::sqrt(kHashes * j * (1 - j)));
  }
}

TEST_CASE("shingles: each unit, and texts of fewer units than n") {
  const auto count = [](ShingleUnit unit, int size, const char* text) {
    return ShingleMaker(Shingles{unit, size, TextForm::as_is}).hashes(text).size();
  };
  CHECK(count(ShingleUnit::words, 2, "a bc d") == 2);
  CHECK(count(ShingleUnit::words, 3, "a bc d") == 1);
  CHECK(count(ShingleUnit::words, 4, "a bc d") == 1);
  CHECK(count(ShingleUnit::characters, 2, "äöü") == 2);
  CHECK(count(ShingleUnit::bytes, 2, "äöü") == 5);
  CHECK(count(ShingleUnit::bytes, 9, "äöü") == 1);
  CHECK(count(ShingleUnit::bytes, 2, "") == 0);
  // The same pieces at different places are the same shingles.
  ShingleMaker maker(Shingles{ShingleUnit::words, 2, TextForm::as_is});
  const std::vector<std::uint64_t> hashes = maker.hashes("a b c a b");
  CHECK(hashes[0] == hashes[3]);
  CHECK(maker.set("a b c a b").size() == 3);
}

TEST_CASE("shingles: similarity by union, by the smaller and the larger set") {
  const std::vector<std::uint64_t> few{1, 2, 3}, many{2, 3, 4, 5, 6, 7};
  CHECK(similarity(few, many) == 2.0 / 7);
  CHECK(similarity(few, many, Overlap::fewer) == 2.0 / 3);
  CHECK(similarity(few, many, Overlap::more) == 2.0 / 6);
  CHECK(similarity(few, {}) == 0);
  CHECK(similarity(few, few) == 1);
}

TEST_CASE("shingles: Megatron's are a row of the table") {
  const ShingleKind& kind = shingle_kind("megatron");
  const BandPlan plan = plan_bands(kind.hashes, kind.threshold);
  CHECK(plan.bands == 10);
  CHECK(plan.rows == 10);
  CHECK(ShingleMaker(kind.signatures).hashes("äöü!").size() == 3);  // 7 bytes
  CHECK(ShingleMaker(kind.check).hashes("äöü!ab").size() == 2);     // 6 characters: the last shingle counts
  require_error(ErrorKind::configuration, {"\"lines\"", "words, characters, megatron"}, [] { shingle_kind("lines"); });
}

}  // namespace megatron::test
