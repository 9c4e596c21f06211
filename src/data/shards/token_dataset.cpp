#include "data/shards/token_dataset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace megatron {

namespace {

constexpr std::uint64_t kMostOpenShards = 64;
constexpr std::uint64_t kMostShards = 10'000'000;

constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 62;

void check_belongs(const TokenShard& shard, const TokenShard& first, std::uint64_t index, const std::string& path) {
  verify(shard.index() == index, ErrorKind::data, "{}: says it is shard {}; was it renamed?", path, shard.index());
  verify(shard.vocabulary() == first.vocabulary(), ErrorKind::data,
         "{}: made with another tokenizer ({}) than the first shard ({})", path, describe(shard.vocabulary()),
         describe(first.vocabulary()));
  verify(shard.count() == first.count() && shard.set_hash() == first.set_hash(), ErrorKind::data,
         "{}: does not belong with the first shard: they come from two runs of megatron_preprocess; run it again",
         path);
}

/// Reads tokens of parts that lie end to end: part i has [starts[i], starts[i + 1]) and is what part_at(i) returns.
template <class PartAt>
void read_parts(std::span<const std::uint64_t> starts, std::uint64_t first, std::uint64_t count, std::int32_t* ids,
                const PartAt& part_at) {
  auto next = std::upper_bound(starts.begin(), starts.end(), first);
  for (; count > 0; ++next) {
    const auto part = static_cast<std::size_t>(next - starts.begin()) - 1;
    const std::uint64_t here = std::min(count, *next - first);
    part_at(part).read(first - starts[part], here, ids);
    first += here;
    count -= here;
    ids += here;
  }
}

}  // namespace

TokenDataset::TokenDataset(const std::string& path) : path_(path), shard_starts_{0}, document_starts_{0} {
  for (const ShardSet& set : find_shards(path)) add(set);
  open_.resize(shards());
  last_use_.resize(shards());
  if (sets_.size() == 1 && sets_[0].indices.size() == shards() && sets_[0].whole) {
    set_hash_ = sets_[0].hash;
    return;
  }
  std::vector<std::uint64_t> all;
  for (const Set& set : sets_) {
    all.insert(all.end(), {set.hash, set.indices.size()});
    all.insert(all.end(), set.indices.begin(), set.indices.end());
  }
  set_hash_ = XXH3_64bits(all.data(), all.size() * sizeof(std::uint64_t));
}

std::vector<std::string> TokenDataset::prefixes() const {
  std::vector<std::string> prefixes;
  for (const Set& set : sets_) prefixes.push_back(set.prefix);
  return prefixes;
}

/// Takes the shards of a set that are wanted; all others of it must be there nevertheless.
void TokenDataset::add(const ShardSet& set) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const std::string& prefix = set.prefix;
  const std::string first_path = shard_path(prefix, 0);
  verify(fs::exists(first_path, ignored), ErrorKind::data, "{}: not found, but other shards of this set are there",
         first_path);
  const TokenShard first(first_path);
  verify(first.count() <= kMostShards, ErrorKind::data, "{}: claims {} shards", first_path, first.count());
  if (sets_.empty()) vocabulary_ = first.vocabulary();
  const std::string& first_prefix = sets_.empty() ? prefix : sets_.front().prefix;
  verify(first.vocabulary() == vocabulary_, ErrorKind::data,
         "{}: made with another tokenizer ({}) than {} ({}): use one for all of {}", first_path,
         describe(first.vocabulary()), shard_path(first_prefix, 0), describe(vocabulary_), path_);
  Set& added = sets_.emplace_back();
  added = {set, first.set_hash(), shard_starts_.size() - 1, false};
  if (set.indices.empty()) {
    for (std::uint64_t i = 0; i < first.count(); ++i) added.indices.push_back(i);
  }
  added.whole = added.indices.size() == first.count();
  for (std::uint64_t i = 0; i < first.count(); ++i) {
    const std::string path = shard_path(prefix, i);
    verify(fs::exists(path, ignored), ErrorKind::data, "{}: not found, but the set has {} shards", path, first.count());
  }
  for (const std::uint64_t i : added.indices) {
    const std::string path = shard_path(prefix, i);
    const TokenShard shard(path);
    check_belongs(shard, first, i, path);
    add_shard(shard, path);
  }
}

void TokenDataset::add_shard(const TokenShard& shard, const std::string& path) {
  const std::vector<std::uint64_t> offsets = shard.read_documents();
  const std::uint64_t start = shard_starts_.back();
  verify(shard.tokens() <= kMostTokens - start, ErrorKind::data, "{}: too many tokens in all", path);
  for (std::size_t document = 1; document < offsets.size(); ++document) {
    document_starts_.push_back(start + offsets[document]);
  }
  shard_starts_.push_back(start + shard.tokens());
  has_sentences_ = has_sentences_ && shard.has_sentences();
}

const TokenDataset::Set& TokenDataset::set_of(std::size_t shard) const {
  return *(std::upper_bound(sets_.begin(), sets_.end(), shard,
                            [](std::size_t i, const Set& candidate) { return i < candidate.first; }) -
           1);
}

std::string TokenDataset::path_of(std::size_t shard) const {
  const Set& set = set_of(shard);
  return shard_path(set.prefix, set.indices[shard - set.first]);
}

TokenShard& TokenDataset::shard(std::size_t index) {
  last_use_[index] = ++uses_;
  if (open_[index] == nullptr) {
    if (open_count_ == kMostOpenShards) {
      std::size_t oldest = index;
      for (std::size_t i = 0; i < open_.size(); ++i) {
        if (open_[i] != nullptr && last_use_[i] < last_use_[oldest]) oldest = i;
      }
      open_[oldest].reset();
      --open_count_;
    }
    const std::string path = path_of(index);
    auto opened = std::make_unique<TokenShard>(path);
    const std::uint64_t expected = shard_starts_[index + 1] - shard_starts_[index];
    verify(opened->set_hash() == set_of(index).hash && opened->tokens() == expected, ErrorKind::data,
           "{}: has changed while it was in use", path);
    open_[index] = std::move(opened);
    ++open_count_;
  }
  return *open_[index];
}

void TokenDataset::read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) {
  internal_check(first <= tokens() && count <= tokens() - first, "tokens beyond the end of the data", first, count,
                 tokens());
  const std::lock_guard lock(mutex_);
  read_parts(shard_starts_, first, count, ids, [&](std::size_t index) -> TokenShard& { return shard(index); });
}

std::vector<DocumentEnd> TokenDataset::document_ends() {
  std::vector<DocumentEnd> ends;
  for (std::size_t shard = 0; shard < shards(); ++shard) {
    const std::uint64_t begin = shard_starts_[shard], end = shard_starts_[shard + 1];
    const std::uint64_t second = *std::upper_bound(document_starts_.begin(), document_starts_.end(), begin);
    for (const auto& [which, past] : {std::pair("first", second), std::pair("last", end)}) {
      read(past - 1, 1, &ends.emplace_back(DocumentEnd{path_of(shard), which, -1}).token);
    }
  }
  return ends;
}

std::vector<std::uint64_t> TokenDataset::read_sentences() {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> starts{0};
  for (std::size_t i = 0; i < shards(); ++i) {
    const TokenShard& one = shard(i);
    verify(one.has_sentences(), ErrorKind::data,
           "{}: does not know where sentences begin; make it again with megatron_preprocess --split-sentences",
           path_of(i));
    const std::vector<std::uint64_t> offsets = one.read_sentences();
    for (std::size_t sentence = 1; sentence < offsets.size(); ++sentence) {
      starts.push_back(shard_starts_[i] + offsets[sentence]);
    }
  }
  return starts;
}

TokenChain::TokenChain(std::vector<TokenSource*> parts) : parts_(std::move(parts)), starts_{0} {
  internal_check(!parts_.empty(), "a chain of no tokens");
  for (const TokenSource* part : parts_) {
    verify(part->tokens() <= kMostTokens - starts_.back(), ErrorKind::data, "too many tokens in all");
    starts_.push_back(starts_.back() + part->tokens());
  }
}

void TokenChain::read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) {
  internal_check(first <= tokens() && count <= tokens() - first, "tokens beyond the end of the data", first, count,
                 tokens());
  read_parts(starts_, first, count, ids, [&](std::size_t part) -> TokenSource& { return *parts_[part]; });
}

}  // namespace megatron
