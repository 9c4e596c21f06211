#include "data/tokenizer/bpe_vocabulary.h"

#include <algorithm>

#include "base/text/json_reader.h"
#include "data/tokenizer/vocabulary_file.h"

namespace megatron {

namespace {

void read_tokens(const NamedText& file, BpeBuilder& builder) {
  std::string buffer;
  try {
    JsonReader json(file.text);
    json.expect('{', "an object {\"token\": id, ...}");
    if (!json.take('}')) {
      do {
        json.peek();
        const std::size_t at = json.position();
        const std::string_view written = json.string(buffer);
        json.expect(':', "':' after a token");
        builder.add_token(at, written, json.integer());
      } while (json.take(','));
      json.expect('}', "',' or '}'");
    }
    json.expect_end();
  } catch (const JsonError& error) {
    file.fail_json(error, "not valid JSON");
  }
}

void read_merge(const NamedText& file, std::size_t at, std::string_view line, BpeBuilder& builder) {
  if (line.ends_with('\r')) file.fail_at(at, "the line ends with CR LF; convert the file to plain newlines");
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos) {
    file.fail_at(at, "expected two tokens with one space between them, found \"{}\"", shown(line));
  }
  builder.add_merge(at, line.substr(0, space), line.substr(space + 1));
}

void read_merges(const NamedText& file, BpeBuilder& builder) {
  std::size_t at = 0;
  if (file.text.starts_with("#version")) at = std::min(file.text.find('\n'), file.text.size() - 1) + 1;
  while (at < file.text.size()) {
    const std::size_t end = std::min(file.text.find('\n', at), file.text.size());
    read_merge(file, at, std::string_view(file.text).substr(at, end - at), builder);
    at = end + 1;
  }
}

}  // namespace

BpeVocabulary read_bpe_vocabulary(const std::string& vocab_file, const std::string& merge_file) {
  NamedText vocab = read_vocabulary_file(vocab_file), merges = read_vocabulary_file(merge_file);
  BpeBuilder builder(vocab);
  read_tokens(vocab, builder);
  builder.end_tokens();
  builder.continue_with(merges);
  read_merges(merges, builder);
  BpeVocabulary vocabulary = builder.finish();
  const std::string& end = vocabulary.tokens[static_cast<std::size_t>(vocabulary.end_of_text)];
  vocabulary.added.push_back({.content = end, .id = vocabulary.end_of_text, .special = true});
  vocabulary.vocab_text = std::move(vocab.text);
  vocabulary.merge_text = std::move(merges.text);
  return vocabulary;
}

void write_files(BpeVocabulary& vocabulary) {
  const ByteAlphabet alphabet;
  const auto written = [&](std::int32_t id) {
    return alphabet.written(vocabulary.tokens[static_cast<std::size_t>(id)]);
  };
  std::string& vocab = vocabulary.vocab_text = "{";
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    vocab += id == 0 ? "\"" : ",\n\"";
    for (const char c : written(static_cast<std::int32_t>(id))) {
      if (c == '"' || c == '\\') vocab += '\\';
      vocab += c;
    }
    vocab += fmt::format("\":{}", id);
  }
  vocab += "}\n";
  std::string& merges = vocabulary.merge_text = "#version: 0.2\n";
  for (const BpeMerge& merge : vocabulary.merges) merges += written(merge.left) + ' ' + written(merge.right) + '\n';
}

}  // namespace megatron
