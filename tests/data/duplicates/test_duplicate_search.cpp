#include "data/duplicates/duplicate_search.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <unordered_map>

#include "data/cleaning/cleaning_support.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/file_size_limit.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

namespace megatron::test {

namespace {

struct Corpus {
  std::vector<std::string> texts;
  std::vector<std::vector<std::uint64_t>> sets;  // shingles of each text
};

/// Originals, edits of some of them at a similarity of 0.5 to 0.9, and copies with other white space; then all mixed.
Corpus made_up_corpus() {
  Numbers numbers(1);
  std::vector<std::string> texts;
  for (int i = 0; i < 2900; ++i) {
    const std::vector<std::string> original = made_up_words(numbers, 60);
    texts.push_back(joined(original));
    if (i % 2 == 0) texts.push_back(joined(edited(original, numbers.below(16), numbers)));
    if (i % 8 == 0) texts.push_back(joined(edited(original, numbers.below(16), numbers)));
    if (i % 10 == 0) texts.push_back("  " + joined(original) + "\n");
    if (i % 40 == 0) texts.push_back("");
  }
  for (std::size_t i = texts.size(); i > 1; --i) {
    std::swap(texts[i - 1], texts[numbers.below(static_cast<std::uint32_t>(i))]);
  }
  Corpus corpus{std::move(texts), {}};
  ShingleMaker maker(shingle_kind("words").check);
  for (const std::string& text : corpus.texts) corpus.sets.push_back(maker.set(text));
  return corpus;
}

/// All pairs with a common shingle, and their similarity, by brute force.
std::map<DocumentPair, double> similar_pairs(const Corpus& corpus) {
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> documents;  // by shingle
  for (std::uint64_t i = 0; i < corpus.sets.size(); ++i) {
    for (const std::uint64_t shingle : corpus.sets[i]) documents[shingle].push_back(i);
  }
  std::map<DocumentPair, double> pairs;
  for (const auto& [shingle, all] : documents) {
    for (std::size_t a = 0; a < all.size(); ++a) {
      for (std::size_t b = a + 1; b < all.size(); ++b) ++pairs[{all[a], all[b]}];
    }
  }
  for (auto& [pair, common] : pairs) {
    const auto both = static_cast<double>(corpus.sets[pair[0]].size() + corpus.sets[pair[1]].size());
    common /= both - common;
  }
  return pairs;
}

DuplicateOptions options_in(const TemporaryFolder& folder) {
  DuplicateOptions options;
  options.scratch = folder.path();
  options.memory_bytes = 3 * kLeastSorterBytes;
  options.near->signatures = options.near->check->shingles = shingle_kind("words").signatures;
  return options;
}

/// The search on ranks that read blocks of the documents in turn; the result of rank 0. The others must agree.
Duplicates search(const std::vector<std::string>& texts, const DuplicateOptions& options, int ranks) {
  Duplicates result;
  std::vector<std::vector<std::uint8_t>> bits(static_cast<std::size_t>(ranks));
  run_as_threads(ranks, [&](Communicator& world) {
    constexpr std::uint64_t kBlock = 37;
    const auto rank = static_cast<std::uint64_t>(world.rank()), count = static_cast<std::uint64_t>(ranks);
    DuplicateSearch searching(world, options);
    std::uint64_t block = rank;
    bool any = true;
    while (any) {
      for (std::uint64_t i = block * kBlock; i < std::min<std::uint64_t>(texts.size(), (block + 1) * kBlock); ++i) {
        searching.add(i, texts[i]);
      }
      block += count;
      any = searching.exchange(block * kBlock < texts.size());
    }
    Duplicates found = searching.finish(texts.size(), [&](std::uint64_t document) { return texts[document]; });
    bits[rank] = found.removed.bits();
    if (rank == 0) result = std::move(found);
  });
  for (const auto& others : bits) CHECK(others == result.removed.bits());
  return result;
}

std::vector<std::uint64_t> removed_by(const Duplicates& found, std::size_t documents) {
  std::vector<std::uint64_t> removed;
  for (std::uint64_t i = 0; i < documents; ++i) {
    if (found.removed[i]) removed.push_back(i);
  }
  return removed;
}

}  // namespace

TEST_CASE("duplicate search: near duplicates against brute force") {
  const Corpus corpus = made_up_corpus();
  const std::map<DocumentPair, double> pairs = similar_pairs(corpus);
  TemporaryFolder folder;
  DuplicateOptions options = options_in(folder);
  options.exact.reset();
  const Duplicates checked = search(corpus.texts, options, 1);
  CHECK(folder.files().empty());

  // Without clusters of several documents each pair is an independent draw; these are the ones to count.
  std::vector<int> partners(corpus.texts.size());
  for (const auto& [pair, similarity] : pairs) {
    ++partners[pair[0]];
    ++partners[pair[1]];
  }
  double expected = 0, variance = 0;
  int found = 0, counted = 0, alike = 0;
  for (const auto& [pair, similarity] : pairs) {
    alike += similarity >= 0.7;
    if (partners[pair[0]] > 1 || partners[pair[1]] > 1) continue;
    const bool removed = checked.removed[pair[1]];
    CHECK_FALSE(checked.removed[pair[0]]);
    if (similarity < 0.7) {
      CHECK_FALSE(removed);
      continue;
    }
    const double p = options.near->plan.probability(similarity);
    expected += p;
    variance += p * (1 - p);
    found += removed;
    ++counted;
  }
  INFO("found " << found << " of " << counted << ", expected " << expected << " +- " << std::sqrt(variance));
  CHECK(counted > 200);
  CHECK(std::abs(found - expected) <= 3.5 * std::sqrt(variance));
  CHECK(checked.counts.candidates >= checked.counts.confirmed);
  CHECK(checked.counts.confirmed <= static_cast<std::uint64_t>(alike));
  // All that was removed is like a document that stays, directly or by others.
  DuplicateClusters clusters(corpus.texts.size());
  for (const auto& [pair, similarity] : pairs) {
    if (similarity >= 0.7) clusters.join(pair);
  }
  for (const DocumentPair& example : checked.examples) {
    CHECK(clusters.survivor(example[0]) == clusters.survivor(example[1]));
  }
  for (const std::uint64_t document : removed_by(checked, corpus.texts.size())) {
    CHECK(clusters.survivor(document) != document);
  }
}

TEST_CASE("duplicate search: the same on any number of ranks") {
  const Corpus corpus = made_up_corpus();
  TemporaryFolder folder;
  for (const bool check : {true, false}) {
    DuplicateOptions options = options_in(folder);
    if (!check) options.near->check.reset();
    const Duplicates alone = search(corpus.texts, options, 1);
    CHECK(alone.counts.removed == removed_by(alone, corpus.texts.size()).size());
    CHECK(alone.examples.size() == 20);
    for (const int ranks : {2, 3, 8}) {
      const Duplicates several = search(corpus.texts, options, ranks);
      INFO(ranks << " ranks, check " << check);
      CHECK(removed_by(several, corpus.texts.size()) == removed_by(alone, corpus.texts.size()));
      CHECK(several.counts.exact == alone.counts.exact);
      CHECK(several.counts.candidates == alone.counts.candidates);
      CHECK(several.counts.confirmed == alone.counts.confirmed);
      CHECK(several.counts.removed == alone.counts.removed);
      CHECK(several.cluster_sizes == alone.cluster_sizes);
      CHECK(several.examples == alone.examples);
    }
    CHECK(folder.files().empty());
  }
}

TEST_CASE("duplicate search: exact duplicates differ in white space only") {
  TemporaryFolder folder;
  DuplicateOptions options = options_in(folder);
  options.near.reset();
  const std::vector<std::string> texts = {"One text.", "Another text.", "  One\ttext.",     "one text.",
                                          "",          "One text.",     "Another\n\ntext.", " "};
  for (const int ranks : {1, 3}) {
    const Duplicates found = search(texts, options, ranks);
    CHECK(removed_by(found, texts.size()) == std::vector<std::uint64_t>{2, 5, 6, 7});
    CHECK(found.counts.exact == 4);
    CHECK(found.examples == std::vector<DocumentPair>{{0, 2}, {0, 5}, {1, 6}, {4, 7}});
    CHECK(found.cluster_sizes == std::map<std::uint64_t, std::uint64_t>{{2, 2}, {3, 1}});
  }
}

TEST_CASE("duplicate search: Megatron's shingles find Megatron's duplicates") {
  TemporaryFolder folder;
  DuplicateOptions options = options_in(folder);
  const ShingleKind& kind = shingle_kind("megatron");
  options.exact.reset();
  options.near->signatures = kind.signatures;
  options.near->plan = plan_bands(kind.hashes, kind.threshold);
  options.near->check = NearDuplicates::Check{kind.check, Overlap::all, kind.check_threshold};
  Numbers numbers(2);
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) texts.push_back(joined(made_up_words(numbers, 100)));
  for (std::size_t i = 0; i < 20; ++i) texts.push_back(texts[i] + " and one more line");
  const Duplicates found = search(texts, options, 1);
  std::vector<std::uint64_t> expected;
  for (std::uint64_t i = 40; i < 60; ++i) expected.push_back(i);
  CHECK(removed_by(found, texts.size()) == expected);
}

TEST_CASE("duplicate search: documents without words are no near duplicates") {
  TemporaryFolder folder;
  DuplicateOptions options = options_in(folder);
  options.exact.reset();
  CHECK(search({"", "...", "!", ""}, options, 2).counts.removed == 0);
}

TEST_CASE("duplicate search: scratch files are of the size stated") {
  DuplicateOptions options;
  CHECK(scratch_bytes(options, 1000000) == 280000000);
  options.exact.reset();
  CHECK(scratch_bytes(options, 1000) == 256000);
  options.near.reset();
  CHECK(scratch_bytes(options, 1000) == 0);
}

TEST_CASE("duplicate search: an error of one rank is one of all") {
  const Corpus corpus = made_up_corpus();
  for (const char* name : {"exact-1-0", "bands-1-0"}) {
    TemporaryFolder folder;
    write_file(folder.file(name), "in the way");
    std::vector<std::string> told(2);
    run_as_threads(2, [&](Communicator& world) {
      DuplicateSearch searching(world, options_in(folder));
      try {
        for (std::uint64_t i = 0; i < corpus.texts.size(); ++i) {
          if (i % 2 == static_cast<std::uint64_t>(world.rank())) searching.add(i, corpus.texts[i]);
          if (i % 100 == 99) searching.exchange(true);
        }
        searching.exchange(false);
        searching.finish(corpus.texts.size(), [&](std::uint64_t document) { return corpus.texts[document]; });
      } catch (const Error& error) {
        told[static_cast<std::size_t>(world.rank())] = error.what();
      }
    });
    for (const std::string& message : told) CHECK_THAT(message, Contains(folder.file(name)));
    CHECK(folder.files() == std::vector<std::string>{name});
  }
}

TEST_CASE("duplicate search: a full disk names the file") {
  TemporaryFolder folder;
  const Corpus corpus = made_up_corpus();
  {
    const FileSizeLimit limit(20000);
    require_error(ErrorKind::filesystem, {"cannot write " + folder.path() + "/"},
                  [&] { search(corpus.texts, options_in(folder), 1); });
  }
  CHECK(folder.files().empty());
}

}  // namespace megatron::test
