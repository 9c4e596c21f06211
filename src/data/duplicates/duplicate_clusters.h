// From sorted records to duplicates: documents that share a key are candidates, confirmed pairs make clusters, and of
// each cluster the first document by input order survives. The order in which pairs come changes nothing.
//
// Memory per million documents: clusters 8 MB on the rank that joins them, removed documents 0.125 MB on each rank.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/duplicates/record_sorter.h"
#include "data/duplicates/shingles.h"

namespace megatron {

/// Two documents, the earlier one first.
using DocumentPair = std::array<std::uint64_t, 2>;

/// Tells the candidates of sorted records: of the records that are equal but for their last word, the document, each
/// later document with the first one. So a bucket of n documents gives n - 1 pairs.
template <std::size_t Words>
class CandidatePairs {
 public:
  explicit CandidatePairs(RecordSorter<Words>& sorted) : sorted_(sorted) {}
  bool next(DocumentPair& pair);  ///< false at the end

 private:
  RecordSorter<Words>& sorted_;
  std::array<std::uint64_t, Words> first_{};
  bool begun_ = false;
};

extern template class CandidatePairs<2>;
extern template class CandidatePairs<3>;

/// Compares the texts of candidates. Pairs that come in ascending order need each first text once.
class CandidateCheck {
 public:
  /// The text of a document, by its number.
  using FetchText = std::function<std::string(std::uint64_t document)>;

  CandidateCheck(const Shingles& shingles, Overlap overlap, double threshold, FetchText fetch)
      : maker_(shingles), overlap_(overlap), threshold_(threshold), fetch_(std::move(fetch)) {}
  /// Whether their similarity is the threshold or more.
  bool confirms(const DocumentPair& pair);

 private:
  ShingleMaker maker_;
  Overlap overlap_;
  double threshold_;
  FetchText fetch_;
  bool begun_ = false;
  std::uint64_t first_ = 0;
  std::vector<std::uint64_t> first_set_;
};

/// Clusters of documents [0, documents).
class DuplicateClusters {
 public:
  explicit DuplicateClusters(std::uint64_t documents);

  void join(const DocumentPair& pair);
  /// The first document of its cluster: itself for one that survives.
  std::uint64_t survivor(std::uint64_t document);
  std::uint64_t documents() const { return earlier_.size(); }
  /// How many clusters there are of each number of documents from two on.
  std::map<std::uint64_t, std::uint64_t> sizes();

 private:
  std::vector<std::uint64_t> earlier_;  // one of the same cluster; itself for the first one
};

/// A flag of each document.
class RemovedDocuments {
 public:
  RemovedDocuments() = default;
  explicit RemovedDocuments(std::uint64_t documents) : bits_((documents + 7) / 8) {}

  void remove(std::uint64_t document) { bits_[document / 8] |= static_cast<std::uint8_t>(1u << document % 8); }
  bool operator[](std::uint64_t document) const { return (bits_[document / 8] >> document % 8 & 1) != 0; }
  std::vector<std::uint8_t>& bits() { return bits_; }  ///< for ranks that tell others

 private:
  std::vector<std::uint8_t> bits_;
};

}  // namespace megatron
