// Common parts of the readers of vocabularies: a file with its name, and a BPE vocabulary that is checked while it is
// put together. Errors are ErrorKind::data and say file, line and what to do. Internal to src/data/tokenizer.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/core/error.h"
#include "base/text/json_reader.h"
#include "data/tokenizer/bpe_vocabulary.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/token_index.h"

namespace megatron {

inline constexpr const char* kVocabularyAdvice = "scripts/download_vocab.sh fetches GPT-2's files";

struct NamedText {
  const std::string& path;
  std::string text;
  const char* advice = kVocabularyAdvice;  ///< ends every message

  std::size_t line_of(std::size_t at) const {
    return 1 + static_cast<std::size_t>(std::count(
                   text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size())), '\n'));
  }
  template <class... Args>
  [[noreturn]] void fail_at(std::size_t at, fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::data, "{}:{}: {}; {}", path, line_of(at), fmt::format(format, std::forward<Args>(args)...), advice);
  }

  /// Not JSON: of an error in the text from `offset` on.
  [[noreturn]] void fail_json(const JsonError& error, const char* what, std::size_t offset = 0) const {
    const std::size_t at = offset + error.at;
    if (at >= text.size()) {
      fail_at(at,
              "{} (byte {} of the file): {}: the file ends too early, as after a download that was cut off; fetch it "
              "again",
              what, at + 1, error.reason);
    }
    fail_at(at, "{} (byte {} of the file): {}", what, at + 1, error.reason);
  }
};

/// At most kLargestVocabularyFile bytes.
NamedText read_binary_vocabulary_file(const std::string& path, const char* advice);
/// The same, valid UTF-8.
NamedText read_vocabulary_file(const std::string& path, const char* advice = kVocabularyAdvice);

/// "model/" of "model/vocab.txt", and the other part.
std::string folder_part(const std::string& path);
std::string file_part(const std::string& path);

/// A token (UTF-8) as it may stand in an error message of one line.
std::string shown(std::string_view token);

/// The order of merges: `made` is strict, a part of a merge is a byte or made by a merge before it; in lists that were
/// derived from ranks of tokens (Llama 3) some parts are made later.
enum class MergeOrder { made, any };

/// Tokens and merges as files write them, in the characters of ByteAlphabet. `at` is where they are in the file.
class BpeBuilder {
 public:
  explicit BpeBuilder(const NamedText& file, MergeOrder order = MergeOrder::made) : file_(&file), order_(order) {}
  /// The file that `at` is a place in from here on.
  void continue_with(const NamedText& file) { file_ = &file; }

  void add_token(std::size_t at, std::string_view written, std::uint64_t id);
  /// A token that no merge makes, as the bytes it stands for.
  void add_whole_token(std::size_t at, std::string bytes, std::uint64_t id);
  /// One whose bytes another token may have as well. Merges know only the other one.
  void add_second_token(std::size_t at, std::string bytes, std::uint64_t id);
  /// All tokens have been added: checks their ids.
  void end_tokens();
  void add_merge(std::size_t at, std::string_view left, std::string_view right);
  /// All merges have been added: checks that every token is made. `whole`: tokens that none has to make, by id.
  BpeVocabulary finish(const std::vector<bool>& whole = {});
  /// The same, where tokens need not be made.
  BpeVocabulary finish_unchecked() { return std::move(vocabulary_); }

  const TokenIndex& ids() const { return ids_; }
  /// Ids below the highest so far that no token has, as cl100k's between its special tokens.
  std::vector<std::int32_t> unused_ids() const;
  /// A name for such an id, which no text encodes to.
  static std::string unused_name(std::int32_t id) { return fmt::format("<|unused_{}|>", id); }
  std::size_t merges() const { return vocabulary_.merges.size(); }

 private:
  const TokenIndex::Entry& part(std::size_t at, std::string_view written) const;
  void check_all_made(const std::vector<bool>& whole) const;
  void check_size(std::size_t at, const std::string& bytes, std::uint64_t id) const;

  const NamedText* file_;
  MergeOrder order_;
  ByteAlphabet alphabet_;
  TokenIndex ids_;
  std::vector<TokenIndex::Entry> second_;
  BpeVocabulary vocabulary_;
  std::vector<bool> made_;  // by id: whether the token is a byte or the result of a merge so far
  std::unordered_set<std::uint64_t> pairs_;
};

/// ErrorKind::filesystem where it cannot be told: that is not taken for absent.
bool tokenizer_file_exists(const std::string& path);

}  // namespace megatron
