#include "tokenizer/bpe_vocabulary.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/log.h"
#include "base/utf8.h"
#include "tokenizer/token_index.h"

namespace megatron {

namespace {

constexpr const char* kAdvice = "scripts/download_vocab.sh fetches GPT-2's files";

/// A file with its name, for errors that say where.
struct NamedText {
  const std::string& path;
  std::string text;

  std::size_t line_of(std::size_t at) const {
    return 1 + static_cast<std::size_t>(std::count(
                   text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size())), '\n'));
  }
  template <class... Args>
  [[noreturn]] void fail_at(std::size_t at, fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::data, "{}:{}: {}; {}", path, line_of(at), fmt::format(format, std::forward<Args>(args)...),
         kAdvice);
  }
};

NamedText read_file(const std::string& path) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);
  verify(regular, ErrorKind::data, "{}: {}; {}", path, error ? error.message() : "not a regular file", kAdvice);
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  verify(!error && bytes <= kLargestVocabularyFile, ErrorKind::data, "{}: {}; {}", path,
         error ? error.message()
               : fmt::format("{} bytes are too many for a vocabulary, whose files have at most {}", bytes,
                             kLargestVocabularyFile),
         kAdvice);
  NamedText file{path, std::string(bytes, '\0')};
  std::ifstream stream(path, std::ios::binary);
  stream.read(file.text.data(), static_cast<std::streamsize>(bytes));
  verify(stream.gcount() == static_cast<std::streamsize>(bytes), ErrorKind::filesystem, "{}: cannot read it: {}", path,
         std::strerror(errno));
  const std::size_t valid = first_invalid_utf8(file.text);
  if (valid < file.text.size()) file.fail_at(valid, "invalid UTF-8");
  return file;
}

/// The byte that each of the 256 characters stands for.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    bytes_.fill(-1);
    std::uint32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      bytes_[itself ? static_cast<std::uint32_t>(byte) : next++] = byte;
    }
  }

  /// Nothing if a character is none of the 256.
  std::optional<std::string> bytes_of(std::string_view written) const {
    std::string bytes;
    while (!written.empty()) {
      const CodePoint character = first_code_point(written);
      if (character.value >= bytes_.size() || bytes_[character.value] < 0) return std::nullopt;
      bytes.push_back(static_cast<char>(bytes_[character.value]));
      written.remove_prefix(character.bytes);
    }
    return bytes;
  }

 private:
  std::array<int, 256 + 68> bytes_;
};

/// A token (UTF-8) as it may stand in an error message of one line.
std::string shown(std::string_view token) {
  std::size_t length = std::min<std::size_t>(token.size(), 60);
  while (length < token.size() && (static_cast<unsigned char>(token[length]) & 0xC0) == 0x80) --length;
  std::string text;
  for (const char c : token.substr(0, length)) {
    if (c == '\n' || c == '\t') {
      text += c == '\n' ? "\\n" : "\\t";
    } else {
      text += c;
    }
  }
  return printable(text) + (length < token.size() ? "..." : "");
}

/// Adds the next `"token": id`.
void read_entry(const NamedText& file, const ByteAlphabet& alphabet, JsonReader& json, std::string& buffer,
                TokenIndex& ids) {
  json.peek();
  const std::size_t at = json.position();
  const std::string_view written = json.string(buffer);
  json.expect(':', "':' behind a token");
  const std::uint64_t id = json.integer();
  if (id >= kMostTokens) file.fail_at(at, "id {}: ids are below {}", id, kMostTokens);
  std::optional<std::string> bytes = alphabet.bytes_of(written);
  if (!bytes || bytes->empty()) {
    file.fail_at(at, "token \"{}\" (id {}) is not written in the 256 characters of a byte-level vocabulary",
                 shown(written), id);
  }
  if (bytes->size() > kLongestToken) file.fail_at(at, "a token of {} bytes", bytes->size());
  if (ids.find(*bytes) != nullptr) file.fail_at(at, "token \"{}\" is there twice", shown(written));
  ids.add(std::move(*bytes), static_cast<std::int32_t>(id));
}

TokenIndex read_ids(const NamedText& file) {
  const ByteAlphabet alphabet;
  TokenIndex ids;
  std::string buffer;
  try {
    JsonReader json(file.text);
    json.expect('{', "an object {\"token\": id, ...}");
    if (!json.take('}')) {
      do {
        read_entry(file, alphabet, json, buffer, ids);
      } while (json.take(','));
      json.expect('}', "',' or '}'");
    }
    json.expect_end();
  } catch (const JsonError& error) {
    file.fail_at(error.at, "not valid JSON (byte {} of the file): {}", error.at + 1, error.reason);
  }
  return ids;
}

std::vector<std::string> by_id(const NamedText& file, const TokenIndex& ids) {
  std::vector<std::string> tokens(ids.entries().size());
  for (const auto& [token, id] : ids.entries()) {
    const auto place = static_cast<std::size_t>(id);
    if (place >= tokens.size())
      file.fail_at(0, "{} tokens, but one has id {}: ids must be 0 .. n-1", tokens.size(), id);
    if (!tokens[place].empty()) file.fail_at(0, "two tokens have id {}", id);
    tokens[place] = token;
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (ids.find(std::string(1, static_cast<char>(byte))) == nullptr) {
      file.fail_at(0, "byte 0x{:02x} is no token, so that not every text can be encoded", byte);
    }
  }
  return tokens;
}

/// <|endoftext|>, <pad>, [MASK]: tokens that no merge makes.
bool is_special(std::string_view token) {
  return token.size() > 2 &&
         ((token.front() == '<' && token.back() == '>') || (token.front() == '[' && token.back() == ']'));
}

/// The merges of merges.txt, one line after the other.
class MergeReader {
 public:
  MergeReader(const NamedText& file, const TokenIndex& ids, const std::vector<std::string>& tokens)
      : file_(file), ids_(ids), tokens_(tokens) {
    made_.resize(tokens.size());
    pairs_.reserve(tokens.size());
    merges_.reserve(tokens.size());
    for (std::size_t id = 0; id < tokens.size(); ++id) made_[id] = tokens[id].size() == 1;
  }

  std::vector<BpeMerge> read() {
    std::size_t at = 0;
    if (file_.text.starts_with("#version")) at = std::min(file_.text.find('\n'), file_.text.size() - 1) + 1;
    while (at < file_.text.size()) {
      const std::size_t end = std::min(file_.text.find('\n', at), file_.text.size());
      add(at, std::string_view(file_.text).substr(at, end - at));
      at = end + 1;
    }
    check_all_made();
    return std::move(merges_);
  }

 private:
  /// A merge file that was cut off would go unnoticed: texts would only take more tokens.
  void check_all_made() const {
    for (std::size_t id = 0; id < made_.size(); ++id) {
      if (made_[id] || is_special(tokens_[id])) continue;
      const std::string& token = tokens_[id];
      const bool text = first_invalid_utf8(token) == token.size();
      file_.fail_at(file_.text.size(),
                    "ends before any merge makes the token {}with id {}: cut off, or of another vocabulary, or, if it "
                    "is an added token, write it as <...>",
                    text ? fmt::format("\"{}\" ", shown(token)) : "", id);
    }
  }

  void add(std::size_t at, std::string_view line) {
    if (merges_.size() == kMostTokens) file_.fail_at(at, "more than {} merges", kMostTokens);
    if (line.ends_with('\r')) file_.fail_at(at, "the line ends with CR LF; convert the file to plain newlines");
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      file_.fail_at(at, "expected two tokens with one space between them, found \"{}\"", shown(line));
    }
    const TokenIndex::Entry &left = part(at, line.substr(0, space)), &right = part(at, line.substr(space + 1));
    const TokenIndex::Entry* const result = ids_.find(left.bytes + right.bytes);
    if (result == nullptr) file_.fail_at(at, "\"{}\" makes a token that the vocabulary lacks", shown(line));
    if (result->bytes == kEndOfText) file_.fail_at(at, "a merge makes {}, which no text may encode to", kEndOfText);
    const std::uint64_t pair = static_cast<std::uint64_t>(left.id) << 32 | static_cast<std::uint64_t>(right.id);
    if (!pairs_.insert(pair).second) file_.fail_at(at, "merge \"{}\" is there twice", shown(line));
    made_[static_cast<std::size_t>(result->id)] = true;
    merges_.push_back({left.id, right.id, result->id});
  }

  const TokenIndex::Entry& part(std::size_t at, std::string_view written) {
    const std::optional<std::string> bytes = alphabet_.bytes_of(written);
    const TokenIndex::Entry* const found = bytes ? ids_.find(*bytes) : nullptr;
    if (found == nullptr) file_.fail_at(at, "\"{}\" is no token of the vocabulary", shown(written));
    if (!made_[static_cast<std::size_t>(found->id)]) {
      file_.fail_at(at, "\"{}\" is neither a byte nor made by a merge before this one: merges in a wrong order",
                    shown(written));
    }
    return *found;
  }

  const NamedText& file_;
  const TokenIndex& ids_;
  const std::vector<std::string>& tokens_;
  ByteAlphabet alphabet_;
  std::vector<bool> made_;  // which tokens are a byte or the result of a merge so far
  std::unordered_set<std::uint64_t> pairs_;
  std::vector<BpeMerge> merges_;
};

}  // namespace

BpeVocabulary read_bpe_vocabulary(const std::string& vocab_file, const std::string& merge_file) {
  NamedText vocab = read_file(vocab_file), merges = read_file(merge_file);
  const TokenIndex ids = read_ids(vocab);
  BpeVocabulary vocabulary;
  vocabulary.tokens = by_id(vocab, ids);
  const TokenIndex::Entry* const end_of_text = ids.find(kEndOfText);
  if (end_of_text == nullptr) {
    vocab.fail_at(0, "no token {}, which ends documents; add it with the next free id, {}", kEndOfText,
                  ids.entries().size());
  }
  vocabulary.end_of_text = end_of_text->id;
  vocabulary.merges = MergeReader(merges, ids, vocabulary.tokens).read();
  vocabulary.vocab_text = std::move(vocab.text);
  vocabulary.merge_text = std::move(merges.text);
  return vocabulary;
}

}  // namespace megatron
