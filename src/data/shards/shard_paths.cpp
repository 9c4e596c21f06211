#include "data/shards/shard_paths.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "base/core/error.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".h5";
constexpr std::size_t kDigits = 5, kMostDigits = 9;

struct ShardFile {
  std::string prefix;
  std::uint64_t index = 0;
};

/// Nothing if it is not the name of a shard.
std::optional<ShardFile> parse_shard_path(std::string_view path) {
  if (!path.ends_with(kExtension)) return std::nullopt;
  const std::string_view stem = path.substr(0, path.size() - kExtension.size());
  const std::size_t last = stem.find_last_not_of("0123456789");
  if (last == std::string_view::npos || stem[last] != '-') return std::nullopt;
  const std::string_view digits = stem.substr(last + 1);
  if (digits.size() < kDigits || digits.size() > kMostDigits) return std::nullopt;
  ShardFile file{std::string(stem.substr(0, last)), 0};
  std::from_chars(digits.data(), digits.data() + digits.size(), file.index);
  // "000007" would be another file than the one that is read as shard 7.
  if (shard_path(file.prefix, file.index) != path) return std::nullopt;
  return file;
}

/// By prefix; no indices: all.
using Sets = std::map<std::string, std::vector<std::uint64_t>>;

void add_folder(const std::string& folder, Sets& sets) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto file = parse_shard_path(entry->path().string())) sets[file->prefix].clear();
  }
  verify(!error, ErrorKind::filesystem, "{}: cannot read this folder: {}", folder, error.message());
}

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  verify(result == 0 || result == GLOB_NOMATCH, ErrorKind::filesystem, "{}: cannot look for files that match", pattern);
  return paths;
}

void add_matches(const std::string& pattern, Sets& sets) {
  std::vector<std::string> folders;
  for (const std::string& path : matches_of(pattern)) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
      folders.push_back(path);
    } else if (const auto file = parse_shard_path(path)) {
      sets[file->prefix].push_back(file->index);
    }
  }
  for (auto& [prefix, indices] : sets) std::sort(indices.begin(), indices.end());
  for (const std::string& folder : folders) add_folder(folder, sets);
}

/// No shards are at `path`: probably because something else is, or because it was meant from another folder.
[[noreturn]] void explain_absence(const std::string& path, bool folder, bool pattern) {
  std::error_code ignored;
  const std::string whole =
      fs::path(path).is_absolute() ? "" : fmt::format(" ({})", fs::absolute(path, ignored).string());
  if (folder || pattern) {
    fail(ErrorKind::data, "{}{}: no token shards (NAME-00000.h5 ...) {}", path, whole,
         folder ? "are in this folder" : "match");
  }
  if (const auto shard = parse_shard_path(path)) {
    fail(ErrorKind::data, "{}: this names one shard of a set; name the set: \"{}\", without {}", path, shard->prefix,
         path.substr(shard->prefix.size()));
  }
  if (fs::is_regular_file(path, ignored)) {
    fail(ErrorKind::data,
         "{0}: this is a file, not a set of token shards; if it is text, make shards of it first: megatron_preprocess "
         "--input {0} --output PREFIX, then name PREFIX here",
         path);
  }
  if (fs::is_regular_file(path + ".bin", ignored) && fs::is_regular_file(path + ".idx", ignored)) {
    fail(ErrorKind::data,
         "{0}: these are Megatron-LM's {0}.bin and {0}.idx; make shards of them first: megatron_preprocess import {0} "
         "PREFIX, then name PREFIX here",
         path);
  }
  fail(ErrorKind::data,
       "{}: not found{}; \"{}\" must be what megatron_preprocess was given as --output, or a folder of shards, or a "
       "pattern of their names",
       shard_path(path, 0), whole, path);
}

}  // namespace

std::string shard_path(const std::string& prefix, std::uint64_t index) {
  return fmt::format("{}-{:05}.h5", prefix, index);
}

std::vector<ShardSet> find_shards(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(shard_path(path, 0), ignored)) return {{path, {}}};
  Sets sets;
  const bool folder = fs::is_directory(path, ignored), pattern = path.find_first_of("*?[") != std::string::npos;
  if (folder) {
    add_folder(path, sets);
  } else if (pattern) {
    add_matches(path, sets);
  }
  if (sets.empty()) explain_absence(path, folder, pattern);
  std::vector<ShardSet> result;
  for (auto& [prefix, indices] : sets) result.push_back({prefix, std::move(indices)});
  return result;
}

}  // namespace megatron
