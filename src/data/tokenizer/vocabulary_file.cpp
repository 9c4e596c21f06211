#include "data/tokenizer/vocabulary_file.h"

#include <filesystem>
#include <optional>

#include "base/system/errno_text.h"
#include "base/system/regular_file.h"
#include "base/text/foreign_text.h"
#include "base/text/text.h"
#include "base/text/utf8.h"

namespace megatron {

NamedText read_binary_vocabulary_file(const std::string& path, const char* advice) {
  NamedText file{path, "", advice};
  try {
    const RegularFile source(path, ErrorKind::data);
    verify(source.bytes() <= kLargestVocabularyFile, ErrorKind::data,
           "{}: {} bytes are too many for a vocabulary, whose files have at most {}", path, source.bytes(),
           kLargestVocabularyFile);
    file.text.resize(source.bytes());
    source.read(0, file.text.data(), file.text.size());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    fail(ErrorKind::data, "{}; {}", error.what(), advice);
  }
  return file;
}

NamedText read_vocabulary_file(const std::string& path, const char* advice) {
  NamedText file = read_binary_vocabulary_file(path, advice);
  const std::string encoding = encoding_advice(std::string_view(file.text).substr(0, 4));
  verify(encoding.empty(), ErrorKind::data, "{}: {}", path, encoding);
  const std::size_t valid = first_invalid_utf8(file.text);
  if (valid < file.text.size()) file.fail_at(valid, "invalid UTF-8");
  return file;
}

std::string folder_part(const std::string& path) {
  return path.substr(0, path.rfind('/') + 1);
}

std::string file_part(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

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

namespace {

/// <|endoftext|>, <pad>, [MASK]: tokens that no merge makes.
bool looks_special(std::string_view token) {
  return token.size() > 2 &&
         ((token.front() == '<' && token.back() == '>') || (token.front() == '[' && token.back() == ']'));
}

}  // namespace

void BpeBuilder::add_token(std::size_t at, std::string_view written, std::uint64_t id) {
  std::optional<std::string> bytes = alphabet_.bytes_of(written);
  if (!bytes || bytes->empty()) {
    file_->fail_at(at, "token \"{}\" (id {}) is not written in the 256 characters of a byte-level vocabulary",
                   shown(written), id);
  }
  add_whole_token(at, std::move(*bytes), id);
}

void BpeBuilder::add_whole_token(std::size_t at, std::string bytes, std::uint64_t id) {
  check_size(at, bytes, id);
  if (ids_.find(bytes) != nullptr) file_->fail_at(at, "token \"{}\" is there twice", shown(alphabet_.written(bytes)));
  ids_.add(std::move(bytes), static_cast<std::int32_t>(id));
}

void BpeBuilder::add_second_token(std::size_t at, std::string bytes, std::uint64_t id) {
  check_size(at, bytes, id);
  second_.push_back({std::move(bytes), static_cast<std::int32_t>(id)});
}

void BpeBuilder::check_size(std::size_t at, const std::string& bytes, std::uint64_t id) const {
  if (id >= kMostTokens) file_->fail_at(at, "id {}: ids are below {}", id, kMostTokens);
  if (bytes.empty() || bytes.size() > kLongestToken) file_->fail_at(at, "a token of {} bytes", bytes.size());
}

std::vector<std::int32_t> BpeBuilder::unused_ids() const {
  std::vector<bool> used;
  for (const auto& [token, id] : ids_.entries()) {
    const auto place = static_cast<std::size_t>(id);
    if (place >= used.size()) used.resize(place + 1);
    used[place] = true;
  }
  std::vector<std::int32_t> unused;
  for (std::size_t id = 0; id < used.size(); ++id) {
    if (!used[id]) unused.push_back(static_cast<std::int32_t>(id));
  }
  return unused;
}

void BpeBuilder::end_tokens() {
  std::vector<std::string>& tokens = vocabulary_.tokens;
  tokens.resize(ids_.entries().size() + second_.size());
  for (const auto* entries : {&ids_.entries(), &std::as_const(second_)}) {
    for (const auto& [token, id] : *entries) {
      const auto place = static_cast<std::size_t>(id);
      if (place >= tokens.size())
        file_->fail_at(0, "{} tokens, but one has id {}: ids must be 0 .. n-1", tokens.size(), id);
      if (!tokens[place].empty()) file_->fail_at(0, "two tokens have id {}", id);
      tokens[place] = token;
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const bool in_utf8 = byte < 0xC0 || (byte > 0xC1 && byte < 0xF5);
    const TokenIndex::Entry* const token = ids_.find(std::string(1, static_cast<char>(byte)));
    if (token == nullptr && in_utf8) {
      file_->fail_at(0, "byte 0x{:02x} is no token, so that not every text can be encoded", byte);
    }
    vocabulary_.byte_ids[static_cast<std::size_t>(byte)] = token == nullptr ? -1 : token->id;
  }
  const TokenIndex::Entry* end_of_text = nullptr;
  for (const std::string_view name : kEndOfTextNames) {
    if (end_of_text == nullptr) end_of_text = ids_.find(name);
  }
  if (end_of_text == nullptr) {
    file_->fail_at(0, "no token that ends documents ({}); add {} with the next free id, {}",
                   fmt::join(kEndOfTextNames, ", "), kEndOfText, tokens.size());
  }
  vocabulary_.end_of_text = end_of_text->id;
  made_.resize(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) made_[id] = tokens[id].size() == 1;
  pairs_.reserve(tokens.size());
  vocabulary_.merges.reserve(tokens.size());
}

void BpeBuilder::add_merge(std::size_t at, std::string_view left_written, std::string_view right_written) {
  const auto merge = [&] { return shown(std::string(left_written) + " " + std::string(right_written)); };
  if (merges() == kMostTokens) file_->fail_at(at, "more than {} merges", kMostTokens);
  const TokenIndex::Entry &left = part(at, left_written), &right = part(at, right_written);
  const TokenIndex::Entry* const result = ids_.find(left.bytes + right.bytes);
  if (result == nullptr) file_->fail_at(at, "\"{}\" makes a token that the vocabulary lacks", merge());
  if (result->id == vocabulary_.end_of_text)
    file_->fail_at(at, "a merge makes {}, which no text may encode to", result->bytes);
  const std::uint64_t pair = static_cast<std::uint64_t>(left.id) << 32 | static_cast<std::uint64_t>(right.id);
  if (!pairs_.insert(pair).second) file_->fail_at(at, "merge \"{}\" is there twice", merge());
  made_[static_cast<std::size_t>(result->id)] = true;
  vocabulary_.merges.push_back({left.id, right.id, result->id});
}

const TokenIndex::Entry& BpeBuilder::part(std::size_t at, std::string_view written) const {
  const std::optional<std::string> bytes = alphabet_.bytes_of(written);
  const TokenIndex::Entry* const found = bytes ? ids_.find(*bytes) : nullptr;
  if (found == nullptr) file_->fail_at(at, "\"{}\" is no token of the vocabulary", shown(written));
  if (order_ == MergeOrder::made && !made_[static_cast<std::size_t>(found->id)]) {
    if (written.ends_with("</w>")) {
      file_->fail_at(at,
                     "\"{}\" marks the end of a word, as CLIP's and GPT-1's vocabularies do, which this program does "
                     "not have; make ids with the model's own library and bring them with `megatron_preprocess import`",
                     shown(written));
    }
    file_->fail_at(at, "\"{}\" is neither a byte nor made by a merge before this one: merges in a wrong order",
                   shown(written));
  }
  return *found;
}

/// A merge file that was cut off would go unnoticed: texts would only take more tokens.
void BpeBuilder::check_all_made(const std::vector<bool>& whole) const {
  for (std::size_t id = 0; id < made_.size(); ++id) {
    const std::string& token = vocabulary_.tokens[id];
    if (made_[id] || looks_special(token) || (id < whole.size() && whole[id])) continue;
    const bool text = first_invalid_utf8(token) == token.size();
    file_->fail_at(file_->text.size(),
                   "ends before any merge makes the token {}with id {}: cut off, or of another vocabulary, or, if it "
                   "is an added token, write it as <...>",
                   text ? fmt::format("\"{}\" ", shown(token)) : "", id);
  }
}

BpeVocabulary BpeBuilder::finish(const std::vector<bool>& whole) {
  check_all_made(whole);
  return std::move(vocabulary_);
}

bool tokenizer_file_exists(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::status_known(status)) {
    fail(ErrorKind::filesystem, "{}: cannot look at it: {}", path, errno_text(error.value()));
  }
  return std::filesystem::exists(status);
}

}  // namespace megatron
