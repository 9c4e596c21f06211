#include "data/duplicates/duplicate_clusters.h"

#include <algorithm>

#include "data/cleaning/cleaning_support.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

namespace megatron::test {

TEST_CASE("candidates: each later document of a bucket with the first one") {
  TemporaryFolder folder;
  RecordSorter<2> sorter(folder.file("run"), kLeastSorterBytes);
  for (const std::array<std::uint64_t, 2> record :
       {std::array<std::uint64_t, 2>{9, 4}, {7, 8}, {9, 2}, {9, 6}, {3, 1}, {9, 4}, {7, 0}}) {
    sorter.add(record);
  }
  sorter.sort();
  CandidatePairs<2> candidates(sorter);
  std::vector<DocumentPair> pairs;
  for (DocumentPair pair; candidates.next(pair);) pairs.push_back(pair);
  CHECK(pairs == std::vector<DocumentPair>{{0, 8}, {2, 4}, {2, 4}, {2, 6}});
}

TEST_CASE("candidates: keys of two words are equal in both") {
  TemporaryFolder folder;
  RecordSorter<3> sorter(folder.file("run"), kLeastSorterBytes);
  sorter.add({1, 2, 0});
  sorter.add({1, 3, 1});
  sorter.add({2, 2, 2});
  sorter.add({1, 3, 3});
  sorter.sort();
  CandidatePairs<3> candidates(sorter);
  DocumentPair pair;
  REQUIRE(candidates.next(pair));
  CHECK(pair == DocumentPair{1, 3});
  CHECK_FALSE(candidates.next(pair));
}

TEST_CASE("clusters: the first document survives, in any order of pairs") {
  constexpr std::uint64_t kDocuments = 300;
  Numbers numbers(3);
  std::vector<DocumentPair> pairs;
  for (int i = 0; i < 150; ++i) {
    const std::uint64_t a = numbers.below(kDocuments), b = numbers.below(kDocuments);
    if (a != b) pairs.push_back({std::min(a, b), std::max(a, b)});
  }
  // Reference: the least number spreads along the pairs until nothing changes.
  std::vector<std::uint64_t> expected(kDocuments);
  for (std::uint64_t i = 0; i < kDocuments; ++i) expected[i] = i;
  for (bool changed = true; changed;) {
    changed = false;
    for (const DocumentPair& pair : pairs) {
      const std::uint64_t least = std::min(expected[pair[0]], expected[pair[1]]);
      changed = changed || expected[pair[0]] != least || expected[pair[1]] != least;
      expected[pair[0]] = expected[pair[1]] = least;
    }
  }
  for (int order = 0; order < 20; ++order) {
    for (std::size_t i = pairs.size(); i > 1; --i) {
      std::swap(pairs[i - 1], pairs[numbers.below(static_cast<std::uint32_t>(i))]);
    }
    DuplicateClusters clusters(kDocuments);
    for (const DocumentPair& pair : pairs) clusters.join(pair);
    std::vector<std::uint64_t> survivors;
    for (std::uint64_t i = 0; i < kDocuments; ++i) survivors.push_back(clusters.survivor(i));
    CHECK(survivors == expected);
  }
}

TEST_CASE("clusters: sizes from two documents on") {
  DuplicateClusters clusters(10);
  for (const DocumentPair& pair : {DocumentPair{1, 5}, {5, 9}, {2, 3}, {0, 7}}) clusters.join(pair);
  CHECK(clusters.sizes() == std::map<std::uint64_t, std::uint64_t>{{2, 2}, {3, 1}});
  CHECK_THROWS_AS(clusters.join({9, 10}), Error);
}

TEST_CASE("candidate check: each first text is fetched once") {
  const std::vector<std::string> texts = {"a b c d e f g h", "a b c d e f g x", "a b c d e f g h", "z"};
  std::vector<std::uint64_t> fetched;
  const Shingles shingles{ShingleUnit::words, 1, TextForm::words};
  CandidateCheck check(shingles, Overlap::all, 7.0 / 9, [&](std::uint64_t document) {
    fetched.push_back(document);
    return texts[document];
  });
  CHECK(check.confirms({0, 1}));  // 7 of 9 words
  CHECK(check.confirms({0, 2}));
  CHECK_FALSE(check.confirms({1, 3}));
  CHECK(fetched == std::vector<std::uint64_t>{0, 1, 2, 1, 3});
}

TEST_CASE("removed documents: a flag of each") {
  RemovedDocuments removed(10);
  removed.remove(0);
  removed.remove(9);
  std::vector<std::uint64_t> flags;
  for (std::uint64_t i = 0; i < 10; ++i) flags.push_back(removed[i]);
  CHECK(flags == std::vector<std::uint64_t>{1, 0, 0, 0, 0, 0, 0, 0, 0, 1});
}

}  // namespace megatron::test
