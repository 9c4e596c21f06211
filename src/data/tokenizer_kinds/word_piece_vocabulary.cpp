#include "data/tokenizer_kinds/word_piece_vocabulary.h"

#include <algorithm>

#include "base/core/error.h"
#include "data/tokenizer/special_names.h"
#include "data/tokenizer_kinds/word_piece_builder.h"

namespace megatron {

void WordPieceBuilder::add(std::size_t at, std::string token, std::uint64_t id) {
  if (token.empty()) file_.fail_at(at, "an empty line instead of a token");
  if (token.size() > kLongestToken) file_.fail_at(at, "a token of {} bytes", token.size());
  if (id >= kMostTokens) file_.fail_at(at, "id {}: ids are below {}", id, kMostTokens);
  if (const TokenIndex::Entry* const same = ids_.find(token)) {
    file_.fail_at(at, "token \"{}\" is there twice, with ids {} and {}", shown(token), same->id, id);
  }
  ids_.add(std::move(token), static_cast<std::int32_t>(id));
}

void WordPieceBuilder::add_whole(std::size_t at, std::string token, std::uint64_t id) {
  add(at, std::move(token), id);
  whole_.insert(static_cast<std::int32_t>(id));
}

std::int32_t WordPieceBuilder::id_of(std::string_view token) const {
  const TokenIndex::Entry* const found = ids_.find(token);
  return found == nullptr ? -1 : found->id;
}

std::vector<std::string> WordPieceBuilder::complete(std::int64_t extra_ids) {
  std::vector<std::string> names = {"[BOS]", "[EOS]"}, added;
  for (std::int64_t i = 0; i < extra_ids; ++i) names.push_back(sentinel_name(i));
  for (std::string& name : names) {
    if (id_of(name) >= 0) continue;
    add_whole(file_.text.size(), name, ids_.entries().size());
    added.push_back(std::move(name));
  }
  for (std::int64_t i = 1; i < extra_ids; ++i) {
    if (id_of(sentinel_name(i)) == id_of(sentinel_name(0)) + i) continue;
    file_.fail_at(0, "{} has id {} and {} has id {}, but sentinels have ids in a row", sentinel_name(0),
                  id_of(sentinel_name(0)), sentinel_name(i), id_of(sentinel_name(i)));
  }
  return added;
}

WordPieceVocabulary WordPieceBuilder::finish() {
  WordPieceVocabulary vocabulary;
  vocabulary.tokens.resize(ids_.entries().size());
  for (const auto& [token, id] : ids_.entries()) {
    const auto place = static_cast<std::size_t>(id);
    if (place >= vocabulary.tokens.size()) {
      file_.fail_at(0, "{} tokens, but one has id {}: ids must be 0 .. n-1", vocabulary.tokens.size(), id);
    }
    if (!vocabulary.tokens[place].empty()) file_.fail_at(0, "two tokens have id {}", id);
    vocabulary.tokens[place] = token;
    if (whole_.contains(id)) continue;
    const bool continues = token.starts_with(kContinuation) && token.size() > kContinuation.size();
    std::string bytes = continues ? token.substr(kContinuation.size()) : token;
    vocabulary.longest = std::max(vocabulary.longest, bytes.size());
    (continues ? vocabulary.continuing : vocabulary.first).add(std::move(bytes), id);
  }
  const auto needed = [&](const char* name) {
    const std::int32_t id = id_of(name);
    if (id < 0) file_.fail_at(file_.text.size(), "has no token {}", name);
    return id;
  };
  SpecialIds& special = vocabulary.special;
  special.cls = needed("[CLS]"), special.sep = needed("[SEP]"), special.mask = needed("[MASK]");
  special.pad = needed("[PAD]"), special.unk = needed("[UNK]");
  special.bos = id_of("[BOS]"), special.eos = id_of("[EOS]");
  special.first_sentinel = id_of(sentinel_name(0));
  while (special.first_sentinel >= 0 &&
         id_of(sentinel_name(special.sentinels)) == special.first_sentinel + special.sentinels) {
    ++special.sentinels;
  }
  return vocabulary;
}

std::vector<AddedToken> special_tokens_of(const WordPieceVocabulary& vocabulary) {
  const SpecialIds& special = vocabulary.special;
  std::vector<std::int32_t> ids = {special.pad,  special.unk, special.cls, special.sep,
                                   special.mask, special.bos, special.eos};
  for (std::int32_t i = 0; i < special.sentinels; ++i) ids.push_back(special.first_sentinel + i);
  std::vector<AddedToken> tokens;
  for (const std::int32_t id : ids) {
    if (id < 0) continue;
    tokens.push_back({.content = vocabulary.tokens[static_cast<std::size_t>(id)], .id = id, .special = true});
  }
  return tokens;
}

WordPieceVocabulary read_word_piece_text(const std::string& path, bool lower_case, std::int64_t extra_ids,
                                         std::int64_t rows, const FolderSettings& folder) {
  NamedText file = read_vocabulary_file(path, kWordPieceAdvice);
  WordPieceBuilder builder(file);
  std::uint64_t id = 0;
  for (std::size_t at = 0; at < file.text.size();) {
    const std::size_t end = std::min(file.text.find('\n', at), file.text.size());
    std::string token = file.text.substr(at, end - at);
    if (token.ends_with('\r')) file.fail_at(at, "the line ends with CR LF; convert the file to plain newlines");
    builder.add(at, std::move(token), id++);
    at = end + 1;
  }
  const bool accents = folder.strip_accents.value_or(lower_case),
             ideographs = folder.tokenize_chinese_chars.value_or(true);
  if (!folder.added.empty() || accents != lower_case || !ideographs) {
    WordPieceVocabulary plain = builder.finish();
    const std::vector<AddedToken> special = special_tokens_of(plain);
    const bool normalizes =
        std::any_of(folder.added.begin(), folder.added.end(), [](const AddedToken& token) { return token.normalized; });
    if (folder.adds_to(special) || normalizes || accents != lower_case || !ideographs) {
      folder.check_ids(path, plain.tokens);
      plain.added = folder.with(special);
      plain.lower_case = lower_case, plain.strip_accents = accents, plain.ideographs = ideographs;
      return parse_word_piece_json({path, write_word_piece_json(plain), kWordPieceAdvice}, extra_ids, rows);
    }
  }
  const std::vector<std::string> more = builder.complete(extra_ids);
  WordPieceVocabulary vocabulary = builder.finish();
  vocabulary.added = special_tokens_of(vocabulary);
  vocabulary.lower_case = vocabulary.strip_accents = lower_case;
  vocabulary.file = kWordPieceFile;
  if (!more.empty() && !file.text.empty() && !file.text.ends_with('\n')) file.text += '\n';
  for (const std::string& token : more) file.text += token + '\n';
  vocabulary.text = std::move(file.text);
  return vocabulary;
}

}  // namespace megatron
