#include "data/duplicates/duplicate_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/core/error.h"
#include "distributed/comm/agreement.h"

namespace megatron {

namespace {

constexpr std::size_t kRoundPairs = 65536;  // that a rank sends in one round
constexpr std::size_t kRoundBytes = std::size_t{64} << 20;

/// A round in which storing what arrives may fail on one rank, and then does on all.
template <std::size_t Words, class Take>
bool agreed_exchange(Communicator& world, RecordExchange<Words>& exchange, bool more, const Take& take) {
  std::exception_ptr problem;
  const bool any = exchange.exchange(more, [&](const auto& record) {
    if (problem) return;
    try {
      take(record);
    } catch (const Error&) {
      problem = std::current_exception();
    }
  });
  agree(world, [&] {
    if (problem) std::rethrow_exception(problem);
  });
  return any;
}

/// Sends what next(pair) tells, until it is false, to the ranks that rank_of names; all ranks take part until the last
/// one has come to its end.
template <class Next, class RankOf, class Take>
void send_all(Communicator& world, const Next& next, const RankOf& rank_of, const Take& take) {
  RecordExchange<2> exchange(world);
  bool more = true, any = true;
  while (any) {
    agree(world, [&] {
      DocumentPair pair;
      for (std::size_t sent = 0; more && sent < kRoundPairs; ++sent) {
        more = next(pair);
        if (more) exchange.add(rank_of(pair), pair);
      }
    });
    any = agreed_exchange(world, exchange, more, take);
  }
}

int rank_0(const DocumentPair&) {
  return 0;
}

}  // namespace

std::uint64_t scratch_bytes(const DuplicateOptions& options, std::uint64_t documents) {
  const std::uint64_t bands = options.near ? static_cast<std::uint64_t>(options.near->plan.bands) : 0;
  return documents * ((options.exact ? 24 : 0) + 16 * bands);
}

DuplicateSearch::DuplicateSearch(Communicator& world, DuplicateOptions options)
    : world_(world), options_(std::move(options)), exact_exchange_(world), band_exchange_(world) {
  internal_check(options_.exact || options_.near, "a search for duplicates of some kind");
  const std::size_t share = options_.memory_bytes / 3;  // exact, bands, pairs
  if (options_.exact) exact_.emplace(path("exact"), share);
  if (options_.near) {
    bands_.emplace(path("bands"), share);
    hasher_.emplace(options_.near->signatures, options_.near->plan);
  }
}

std::string DuplicateSearch::path(const char* name) const {
  return fmt::format("{}/{}-{}", options_.scratch, name, world_.rank());
}

void DuplicateSearch::add(std::uint64_t document, std::string_view text) {
  const auto ranks = static_cast<std::uint64_t>(world_.size());
  if (options_.exact) {
    const TextHash hash = hash_text(text_in_form(text, options_.exact->form, buffer_));
    exact_exchange_.add(hash.high % ranks, {hash.high, hash.low, document});
  }
  if (!options_.near) return;
  const std::span<const std::uint32_t> signature = hasher_->signature(text);
  if (signature.empty()) return;
  for (const std::uint64_t hash : hasher_->band_hashes(signature)) band_exchange_.add(hash % ranks, {hash, document});
}

bool DuplicateSearch::exchange(bool more) {
  bool any = false;
  if (exact_) {
    any = agreed_exchange(world_, exact_exchange_, more, [this](const auto& record) { exact_->add(record); });
  }
  if (bands_) {
    any = agreed_exchange(world_, band_exchange_, more, [this](const auto& record) { bands_->add(record); });
  }
  return any;
}

template <std::size_t Words>
void DuplicateSearch::join_candidates(RecordSorter<Words>& sorted, DuplicateClusters& clusters, std::uint64_t& pairs) {
  agree(world_, [&] { sorted.sort(); });
  CandidatePairs<Words> candidates(sorted);
  send_all(
      world_,
      [&](DocumentPair& pair) {
        const bool more = candidates.next(pair);
        pairs += more;
        return more;
      },
      rank_0, [&](const DocumentPair& pair) { clusters.join(pair); });
}

/// Each pair to one rank, where it is found once, whatever the number of bands that it shares.
void DuplicateSearch::share_pairs(RecordSorter<2>& pairs) {
  agree(world_, [&] { bands_->sort(); });
  CandidatePairs<2> candidates(*bands_);
  send_all(
      world_, [&](DocumentPair& pair) { return candidates.next(pair); },
      [this](const DocumentPair& pair) { return pair[0] % static_cast<std::uint64_t>(world_.size()); },
      [&](const DocumentPair& pair) { pairs.add(pair); });
  agree(world_, [&] { pairs.sort(); });
}

void DuplicateSearch::join_checked(const CandidateCheck::FetchText& fetch, DuplicateClusters& clusters,
                                   DuplicateCounts& counts) {
  RecordSorter<2> pairs(path("pairs"), options_.memory_bytes / 3);
  share_pairs(pairs);
  std::optional<CandidateCheck> check;
  if (const auto& how = options_.near->check) check.emplace(how->shingles, how->overlap, how->threshold, fetch);
  DocumentPair last{1, 0};  // no pair
  const auto next = [&](DocumentPair& pair) {
    while (pairs.next(pair)) {
      if (pair == last) continue;
      last = pair;
      ++counts.candidates;
      if (check && !check->confirms(pair)) continue;
      ++counts.confirmed;
      return true;
    }
    return false;
  };
  send_all(world_, next, rank_0, [&](const DocumentPair& pair) { clusters.join(pair); });
}

Duplicates DuplicateSearch::finish(std::uint64_t documents, const CandidateCheck::FetchText& fetch,
                                   std::size_t examples) {
  const bool joins = world_.rank() == 0;
  DuplicateClusters clusters(joins ? documents : 0);
  Duplicates found;
  if (exact_) join_candidates(*exact_, clusters, found.counts.exact);
  if (bands_) join_checked(fetch, clusters, found.counts);
  found.removed = RemovedDocuments(documents);
  for (std::uint64_t document = 0; document < clusters.documents(); ++document) {
    const std::uint64_t survivor = clusters.survivor(document);
    if (survivor == document) continue;
    found.removed.remove(document);
    ++found.counts.removed;
    if (found.examples.size() < examples) found.examples.push_back({survivor, document});
  }
  found.cluster_sizes = clusters.sizes();
  std::vector<std::uint8_t>& bits = found.removed.bits();
  for (std::size_t first = 0; first < bits.size(); first += kRoundBytes) {
    const auto bytes = static_cast<std::int64_t>(std::min(kRoundBytes, bits.size() - first));
    world_.broadcast(Tensor(&bits[first], Shape{bytes}, DType::u8), 0, kReport);
  }
  double sums[] = {static_cast<double>(found.counts.exact), static_cast<double>(found.counts.candidates),
                   static_cast<double>(found.counts.confirmed), static_cast<double>(found.counts.removed)};
  world_.all_reduce_values(sums, kReport);
  const auto whole = [](double sum) { return static_cast<std::uint64_t>(sum); };
  found.counts = {whole(sums[0]), whole(sums[1]), whole(sums[2]), whole(sums[3])};
  return found;
}

}  // namespace megatron
