// DuplicateSearch: the duplicates among the documents of all ranks, the same on any number of them. Each rank adds its
// own documents and exchanges now and then, as often as the others; then all finish().
//
// Keys (the hash of a text, of each band) go to rank key % ranks, which finds what is alike; rank 0 joins the pairs.
// Per million documents: 24 MB of scratch files for exact, 16 MB per band for near duplicates; 8 MB of memory on rank
// 0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/duplicates/duplicate_clusters.h"
#include "data/duplicates/minhash.h"
#include "data/duplicates/record_exchange.h"
#include "data/duplicates/record_sorter.h"
#include "distributed/comm/communicator.h"

namespace megatron {

/// Documents of the same text in a form.
struct ExactDuplicates {
  TextForm form = TextForm::white_space;
};
/// Documents of similar texts.
struct NearDuplicates {
  Shingles signatures = {};
  BandPlan plan = {};
  /// Comparison of candidates; without it all are duplicates.
  struct Check {
    Shingles shingles = {};
    Overlap overlap = Overlap::all;
    double threshold = 0.7;
  };
  std::optional<Check> check = Check{};
};

struct DuplicateOptions {
  std::optional<ExactDuplicates> exact = ExactDuplicates{};
  std::optional<NearDuplicates> near = NearDuplicates{};
  std::string scratch;  ///< an existing folder; each rank has its files in it, SCRATCH/exact-RANK-0, ...
  /// Memory of each rank's sorting, at least 3 · kLeastSorterBytes. What exchange() moves and clusters come on top.
  std::size_t memory_bytes = std::size_t{256} << 20;
};

/// Bytes of scratch files that this many documents take, all ranks together: 24 for an exact key, 16 for each band;
/// twice that in the worst case, while files are merged.
std::uint64_t scratch_bytes(const DuplicateOptions& options, std::uint64_t documents);

struct DuplicateCounts {
  std::uint64_t exact = 0;       ///< pairs of equal texts
  std::uint64_t candidates = 0;  ///< different pairs that share a band
  std::uint64_t confirmed = 0;   ///< candidates that are duplicates
  std::uint64_t removed = 0;     ///< documents
};

struct Duplicates {
  RemovedDocuments removed;  ///< on every rank
  DuplicateCounts counts;    ///< on every rank
  /// On rank 0: how many clusters there are of each size, and the first removed documents with their survivors.
  std::map<std::uint64_t, std::uint64_t> cluster_sizes;
  std::vector<DocumentPair> examples;
};

class DuplicateSearch {
 public:
  DuplicateSearch(Communicator& world, DuplicateOptions options);

  /// Numbers are by input order over all ranks, each used once.
  void add(std::uint64_t document, std::string_view text);
  /// Collective, and so are its errors; see RecordExchange. `more`: this rank has more documents to add.
  bool exchange(bool more);
  /// Collective, once, and so are its errors; all has been exchanged. `documents`: of all ranks; `fetch` is called for
  /// candidates only, of any rank's documents. `examples`: at most this number of them.
  Duplicates finish(std::uint64_t documents, const CandidateCheck::FetchText& fetch, std::size_t examples = 20);

 private:
  std::string path(const char* name) const;
  template <std::size_t Words>
  void join_candidates(RecordSorter<Words>& sorted, DuplicateClusters& clusters, std::uint64_t& pairs);
  void join_checked(const CandidateCheck::FetchText& fetch, DuplicateClusters& clusters, DuplicateCounts& counts);
  void share_pairs(RecordSorter<2>& pairs);

  Communicator& world_;
  DuplicateOptions options_;
  std::optional<MinHasher> hasher_;
  std::string buffer_;
  std::optional<RecordSorter<3>> exact_;  // hash of the text, document
  std::optional<RecordSorter<2>> bands_;  // hash of the band, document
  RecordExchange<3> exact_exchange_;
  RecordExchange<2> band_exchange_;
};

}  // namespace megatron
