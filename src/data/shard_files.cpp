#include "data/shard_files.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>

#include "base/errno_text.h"
#include "base/error.h"
#include "data/shard_paths.h"
#include "data/token_shard.h"
#include "tokenizer/tokenizer.h"

namespace megatron {

namespace {

/// What all shards of a set hold as set_hash.
std::uint64_t hash_of_set(std::span<const ShardSummary> shards) {
  std::vector<std::uint64_t> numbers;
  for (const ShardSummary& shard : shards) {
    numbers.insert(numbers.end(), {shard.documents, shard.tokens, shard.hash});
  }
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof(std::uint64_t));
}

struct ExistingSet {
  Vocabulary vocabulary;
  std::uint64_t shards = 0, hash = 0;
};

/// Nothing if shards are missing, damaged or of different sets. ErrorKind::filesystem if they cannot be read, which is
/// no reason to replace them.
std::optional<ExistingSet> existing_set(const std::string& prefix) try {
  std::error_code error;
  if (!std::filesystem::exists(shard_path(prefix, 0), error)) {
    verify(!error, ErrorKind::filesystem, "cannot examine {}: {}", shard_path(prefix, 0), error.message());
    return std::nullopt;
  }
  const TokenShard first(shard_path(prefix, 0));
  for (std::uint64_t i = 1; i < first.count(); ++i) {
    const TokenShard shard(shard_path(prefix, i));
    if (shard.index() != i || shard.count() != first.count() || shard.set_hash() != first.set_hash())
      return std::nullopt;
  }
  return ExistingSet{first.vocabulary(), first.count(), first.set_hash()};
} catch (const Error& error) {
  if (error.kind() != ErrorKind::data) throw;
  return std::nullopt;
}

[[noreturn]] void refuse_to_replace(const std::string& prefix, const ExistingSet& existing, const std::string& why) {
  fail(ErrorKind::configuration,
       "{} already holds another set of {} shard{} ({}); add --overwrite to replace it, or choose another name",
       shard_path(prefix, 0), existing.shards, existing.shards == 1 ? "" : "s", why);
}

void require_vocabulary(const std::string& prefix, const ExistingSet& existing, const Vocabulary& vocabulary) {
  if (existing.vocabulary == vocabulary) return;
  refuse_to_replace(prefix, existing, "made with another tokenizer: " + describe(existing.vocabulary));
}

std::vector<ShardSummary> with_documents(std::span<const ShardSummary> parts) {
  std::vector<ShardSummary> shards;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(shards),
               [](const ShardSummary& part) { return part.documents > 0; });
  return shards;
}

/// Of a file's name behind "PREFIX-".
bool is_leftover(std::string_view rest, std::uint64_t shards) {
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const std::string_view extension = rest.substr(digits);
  if (digits >= 5 && digits <= 9) {
    return (extension == ".h5" && std::stoull(std::string(rest.substr(0, digits))) >= shards) ||
           (extension.starts_with(".h5") && is_behind_replaced(extension.substr(3)));
  }
  return rest.starts_with("part-") && rest.ends_with(".h5.tmp");
}

}  // namespace

void check_prefix(const std::string& prefix, const char* option) {
  verify(!prefix.empty() && prefix.back() != '/', ErrorKind::configuration,
         "{} \"{}\": give a prefix of file names, as in data/stories", option, prefix);
}

void prepare_prefix(const std::string& prefix, const char* option) {
  check_prefix(prefix, option);
  const std::string folder = folder_of(prefix);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorKind::filesystem, "{}: cannot make this folder: {}", folder, errno_text(error.value()));
}

bool find_replaceable(const std::string& prefix, const Vocabulary& vocabulary) {
  const std::optional<ExistingSet> existing = existing_set(prefix);
  if (existing) require_vocabulary(prefix, *existing, vocabulary);
  return existing.has_value();
}

void ShardSetFiles::require_replaceable(std::span<const ShardSummary> parts, const Vocabulary& vocabulary) const {
  const std::optional<ExistingSet> existing = existing_set(prefix_);
  if (existing) require_vocabulary(prefix_, *existing, vocabulary);
  if (!existing || existing->hash == hash_of_set(with_documents(parts))) return;
  refuse_to_replace(prefix_, *existing, "with other documents, or divided into other shards");
}

ShardSetFiles::~ShardSetFiles() {
  for (const std::uint64_t part : begun_) remove_quietly(temporary_path(part));
}

std::string ShardSetFiles::temporary_path(std::uint64_t part) const {
  return fmt::format("{}-part-{:05}.h5.tmp", prefix_, part);
}

std::string ShardSetFiles::begin_part(std::uint64_t part) {
  begun_.push_back(part);
  return temporary_path(part);
}

void ShardSetFiles::write_vocabulary(const std::string& file, std::string_view contents) {
  publication_.write(vocabulary_path(prefix_, file), contents);
}

void ShardSetFiles::publish(std::span<const ShardSummary> parts) {
  std::vector<ShardSummary> shards;
  std::vector<std::uint64_t> index_of(parts.size());
  for (std::size_t part = 0; part < parts.size(); ++part) {
    index_of[part] = shards.size();
    if (parts[part].documents > 0) shards.push_back(parts[part]);
  }
  shards_ = shards.size();
  const std::uint64_t hash = hash_of_set(shards);
  for (const std::uint64_t part : begun_) {
    internal_check(part < parts.size(), "a part of a set without a summary");
    if (parts[part].documents == 0) continue;
    seal_shard(temporary_path(part), index_of[part], shards_, hash);
    publication_.add(temporary_path(part), shard_path(prefix_, index_of[part]));
  }
  publication_.publish();
  begun_.clear();
}

void ShardSetFiles::remove_leftovers() const noexcept try {
  const std::string stem = std::filesystem::path(prefix_).filename().string() + "-";
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder_of(prefix_))) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(stem) && is_leftover(std::string_view(name).substr(stem.size()), shards_)) {
      remove_quietly(entry.path().string());
    }
  }
  for (const char* file : kTokenizerFiles) remove_quietly(vocabulary_path(prefix_, file) + ".tmp");
  sync_path(folder_of(prefix_));
} catch (const std::exception&) {  // the set is complete: nobody reads what stays, and the next set removes it
}

}  // namespace megatron
