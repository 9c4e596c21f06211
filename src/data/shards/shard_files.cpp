#include "data/shards/shard_files.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>

#include "base/core/error.h"
#include "base/system/errno_text.h"
#include "data/shards/shard_paths.h"
#include "data/shards/token_shard.h"
#include "data/tokenizer/tokenizer.h"

namespace megatron {

namespace {

/// The set_hash that all shards of a set hold.
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

/// The number in front of ".h5" and what follows it: of "00007.h5.replaced" 7 and ".replaced". Nothing if it is
/// not written as in the names of shards.
std::optional<std::pair<std::uint64_t, std::string_view>> numbered(std::string_view text) {
  constexpr std::size_t kMostDigits = 9;
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > kMostDigits || !text.substr(digits).starts_with(".h5")) return std::nullopt;
  const std::uint64_t number = std::stoull(std::string(text.substr(0, digits)));
  if (fmt::format("{:05}", number) != text.substr(0, digits)) return std::nullopt;
  return std::pair(number, text.substr(digits + 3));
}

/// By name and contents: a user's own file may be called books-20240101.h5.
bool is_shard(const std::string& path, std::uint64_t index) try {
  return std::filesystem::is_regular_file(std::filesystem::symlink_status(path)) && TokenShard(path).index() == index;
} catch (const Error&) {
  return false;
}

/// A shard of a longer set that was there, or what a killed command has left. `rest`: of its name after the prefix.
bool is_leftover(const std::string& path, std::string_view rest, std::uint64_t shards) {
  constexpr std::string_view kPart = "-part-";
  if (rest.starts_with(kPart)) {
    const auto part = numbered(rest.substr(kPart.size()));
    return part && is_behind_temporary(part->second);
  }
  if (!rest.starts_with('-')) {
    return std::any_of(std::begin(kTokenizerFiles), std::end(kTokenizerFiles), [&](const char* name) {
      const std::string written = fmt::format(".{}", name);
      return rest.starts_with(written) && is_behind_temporary(rest.substr(written.size()));
    });
  }
  const auto shard = numbered(rest.substr(1));
  if (!shard) return false;
  const bool longer = shard->second.empty() && shard->first >= shards;
  return (longer || is_behind_replaced(shard->second)) && is_shard(path, shard->first);
}

}  // namespace

void check_prefix(const std::string& prefix, const char* option) {
  const std::string name = std::filesystem::path(prefix).filename().string();
  verify(!name.empty() && name != "." && name != "..", ErrorKind::configuration,
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
  const std::vector<ShardSummary> shards = with_documents(parts);
  if (!existing) return require_no_others(shards.size());
  require_vocabulary(prefix_, *existing, vocabulary);
  if (existing->hash == hash_of_set(shards)) return;
  refuse_to_replace(prefix_, *existing, "with other documents, or divided into other shards");
}

/// In a set that is not whole, shards and the same vocabulary may be replaced. Anything else is not known to be this
/// program's.
void ShardSetFiles::require_no_others(std::uint64_t shards) const {
  const auto refuse = [](const std::string& path, const char* what) {
    fail(ErrorKind::configuration,
         "{} is there already and is {}; add --overwrite to replace it, or choose another name", path, what);
  };
  for (std::uint64_t i = 0; i < shards; ++i) {
    const std::string path = shard_path(prefix_, i);
    if (std::filesystem::exists(std::filesystem::symlink_status(path)) && !is_shard(path, i)) {
      refuse(path, "no shard of a set, or a damaged one");
    }
  }
  for (const std::string& path : vocabulary_files_) {
    if (!replaces_nothing_else(temporary_name(path), path)) refuse(path, "of another vocabulary");
  }
}

ShardSetFiles::~ShardSetFiles() {
  for (const std::uint64_t part : begun_) remove_quietly(temporary_path(part));
}

std::string ShardSetFiles::temporary_path(std::uint64_t part) const {
  return temporary_name(fmt::format("{}-part-{:05}.h5", prefix_, part));
}

std::string ShardSetFiles::begin_part(std::uint64_t part) {
  begun_.push_back(part);
  return temporary_path(part);
}

void ShardSetFiles::write_vocabulary(const std::string& file, std::string_view contents) {
  vocabulary_files_.push_back(vocabulary_path(prefix_, file));
  publication_.write(vocabulary_files_.back(), contents);
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
    internal_check(part < parts.size(), "a part of a set without a summary", part, parts.size());
    if (parts[part].documents == 0) continue;
    seal_shard(temporary_path(part), index_of[part], shards_, hash);
    publication_.add(temporary_path(part), shard_path(prefix_, index_of[part]));
  }
  publication_.publish();
  begun_.clear();
}

void ShardSetFiles::remove_leftovers() const noexcept try {
  const std::string stem = std::filesystem::path(prefix_).filename().string();
  std::vector<std::string> leftovers;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(folder_of(prefix_))) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(stem) &&
        is_leftover(entry.path().string(), std::string_view(name).substr(stem.size()), shards_)) {
      leftovers.push_back(entry.path().string());
    }
  }
  for (const std::string& path : leftovers) remove_quietly(path);
  sync_path(folder_of(prefix_));
} catch (const std::exception&) {  // the set is complete: what stays is not read, and the next set removes it
}

}  // namespace megatron
