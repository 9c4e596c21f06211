#include "data/token_dataset.h"

#include <algorithm>
#include <filesystem>

namespace megatron {

namespace {

constexpr std::uint64_t kMostOpenShards = 64;
constexpr std::uint64_t kMostShards = 10'000'000;

void check_belongs(const TokenShard& shard, const TokenShard& first, std::uint64_t index, const std::string& path) {
  verify(shard.index() == index, ErrorKind::data, "{}: says it is shard {}; was it renamed?", path, shard.index());
  verify(shard.vocabulary() == first.vocabulary(), ErrorKind::data,
         "{}: made with another tokenizer ({}) than the first shard ({})", path, describe(shard.vocabulary()),
         describe(first.vocabulary()));
  verify(shard.count() == first.count() && shard.set_hash() == first.set_hash(), ErrorKind::data,
         "{}: does not belong with the first shard: they come from two runs of megatron_preprocess; run it again",
         path);
}

}  // namespace

TokenDataset::TokenDataset(const std::string& prefix) : prefix_(prefix) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  verify(fs::exists(shard_path(prefix, 0), ignored), ErrorKind::data,
         "{}: not found; \"{}\" must be what megatron_preprocess was given as --output", shard_path(prefix, 0), prefix);
  const TokenShard first(shard_path(prefix, 0));
  vocabulary_ = first.vocabulary();
  set_hash_ = first.set_hash();
  verify(first.count() <= kMostShards, ErrorKind::data, "{}: claims {} shards", shard_path(prefix, 0), first.count());
  shard_starts_.push_back(0);
  document_starts_.push_back(0);
  for (std::uint64_t i = 0; i < first.count(); ++i) {
    const std::string path = shard_path(prefix, i);
    verify(fs::exists(path, ignored), ErrorKind::data, "{}: not found, but the set has {} shards", path, first.count());
    const TokenShard shard(path);
    check_belongs(shard, first, i, path);
    const std::vector<std::uint64_t> offsets = shard.read_documents();
    const std::uint64_t start = shard_starts_.back();
    verify(shard.tokens() <= (std::uint64_t{1} << 62) - start, ErrorKind::data, "{}: too many tokens in all", path);
    for (std::size_t document = 1; document < offsets.size(); ++document) {
      document_starts_.push_back(start + offsets[document]);
    }
    shard_starts_.push_back(start + shard.tokens());
  }
  open_.resize(shards());
  last_use_.resize(shards());
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
    auto opened = std::make_unique<TokenShard>(shard_path(prefix_, index));
    const std::uint64_t expected = shard_starts_[index + 1] - shard_starts_[index];
    verify(opened->set_hash() == set_hash_ && opened->tokens() == expected, ErrorKind::data,
           "{}: has changed while it was in use", shard_path(prefix_, index));
    open_[index] = std::move(opened);
    ++open_count_;
  }
  return *open_[index];
}

void TokenDataset::read(std::uint64_t first, std::uint64_t count, std::int32_t* ids) {
  internal_check(first <= tokens() && count <= tokens() - first, "tokens beyond the end of the data");
  const std::lock_guard lock(mutex_);
  auto next = std::upper_bound(shard_starts_.begin(), shard_starts_.end(), first);
  for (; count > 0; ++next) {
    const auto index = static_cast<std::size_t>(next - shard_starts_.begin()) - 1;
    const std::uint64_t here = std::min(count, *next - first);
    shard(index).read(first - shard_starts_[index], here, ids);
    first += here;
    count -= here;
    ids += here;
  }
}

}  // namespace megatron
