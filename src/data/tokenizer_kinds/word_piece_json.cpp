// tokenizer.json of type WordPiece: read, and written.
#include <nlohmann/json.hpp>
#include <optional>

#include "data/tokenizer/added_token_json.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/json_members.h"
#include "data/tokenizer/tokenizer_pipeline.h"
#include "data/tokenizer_kinds/word_piece_builder.h"

namespace megatron {

namespace {

using nlohmann::ordered_json;

class WordPieceJson {
 public:
  WordPieceJson(NamedText file, std::int64_t rows)
      : file_(without_tokens_beyond(std::move(file), rows)), builder_(file_) {}

  WordPieceVocabulary read(std::int64_t extra_ids) {
    try {
      JsonReader json(file_.text);
      read_root(json);
      json.expect_end();
      return build(extra_ids);
    } catch (const JsonError& error) {
      file_.fail_json(error, "not a tokenizer.json", offset_);
    }
  }

 private:
  [[noreturn]] void refuse(std::size_t at, std::string_view what) const {
    file_.fail_at(at, "asks for {}, which this program does not have for WordPiece", what);
  }
  std::string_view raw(JsonReader& json) const { return raw_value(json, file_.text); }
  /// Refuses any value but this one.
  void expect(JsonReader& json, const std::string& name, std::string_view good) const {
    const std::size_t at = json.position();
    if (const std::string_view value = raw(json); value != good) refuse(at, fmt::format("{} = {}", name, shown(value)));
  }
  template <class Read>
  auto read_step(JsonReader& json, const Read& read) const {
    const std::size_t at = json.position();
    try {
      return read(raw(json));
    } catch (const UnsupportedStep& step) {
      refuse(at, shown(step.what));
    }
  }

  void read_root(JsonReader& json) {
    for_each_member(json, [&](const std::string& key, JsonReader& value) {
      if (key == "version") return value.skip_value();
      if (key == "truncation" || key == "padding") return value.skip_value();  // for batches, not for a text
      if (key == "normalizer") return void(normalizer_ = read_step(value, read_bert_normalizer));
      if (key == "pre_tokenizer") return has_pre_tokenizer_ = true, read_step(value, check_bert_pre_tokenizer);
      if (key == "post_processor") return read_step(value, check_post_processor);
      if (key == "decoder") return void(close_up_ = read_step(value, read_word_piece_decoder));
      if (key == "added_tokens") return for_each_element(value, [&](JsonReader& token) { add_token(token); });
      if (key == "model") return read_model(value);
      refuse(value.position(), fmt::format("\"{}\"", shown(key)));
    });
  }

  PlacedToken placed_token(JsonReader& json) const {
    const std::size_t at = json.position();
    try {
      return read_added_token(json, file_.text);
    } catch (const UnsupportedStep& step) {
      refuse(at, shown(step.what));
    }
  }

  void add_token(JsonReader& json) {
    auto [at, id, token] = placed_token(json);
    if (token.content.empty() || id >= kMostTokens)
      file_.fail_at(at, "an added token without content or with id {}", id);
    token.id = static_cast<std::int32_t>(id);
    added_.push_back({at, id, std::move(token)});
  }

  void read_model(JsonReader& json) {
    for_each_member(json, [&](const std::string& key, JsonReader& value) {
      if (key == "type") return expect(value, "model.type", "\"WordPiece\"");
      if (key == "unk_token") return expect(value, "model.unk_token", "\"[UNK]\"");
      if (key == "continuing_subword_prefix") return expect(value, "model.continuing_subword_prefix", "\"##\"");
      if (key == "max_input_chars_per_word") return void(longest_word_ = value.integer());
      if (key != "vocab") refuse(value.position(), fmt::format("model.{}", shown(key)));
      vocab_at_ = value.position();
      value.skip_value();
    });
  }

  WordPieceVocabulary build(std::int64_t extra_ids) {
    if (!vocab_at_) file_.fail_at(0, "no model with a vocab");
    if (!normalizer_ || !has_pre_tokenizer_) file_.fail_at(0, "no normalizer or no pre_tokenizer; BERT has both");
    offset_ = *vocab_at_;
    JsonReader vocab(std::string_view(file_.text).substr(offset_));
    for_each_entry(vocab, [&](const std::string& token, JsonReader& value) {
      const std::size_t at = offset_ + value.position();
      builder_.add(at, token, value.integer());
    });
    for (const auto& [at, id, token] : added_) {
      const std::int32_t known = builder_.id_of(token.content);
      if (known != token.id) builder_.add_whole(at, token.content, static_cast<std::uint64_t>(token.id));
    }
    const std::vector<std::string> more = builder_.complete(extra_ids);
    WordPieceVocabulary made = builder_.finish();
    for (auto& [at, id, token] : added_) made.added.push_back(std::move(token));
    for (AddedToken& token : made.added) token.special = token.special || token.id == made.special.eos;
    made.file = kTokenizerFile;
    made.text = std::move(file_.text);
    if (!more.empty()) add_to_text(made, more);
    made.clean = normalizer_->clean, made.ideographs = normalizer_->ideographs;
    made.strip_accents = normalizer_->strip_accents, made.lower_case = normalizer_->lower_case;
    made.close_up = close_up_, made.longest_word = longest_word_;
    return made;
  }

  /// Into the file that is kept, as added tokens.
  void add_to_text(WordPieceVocabulary& made, const std::vector<std::string>& more) const {
    for (const std::string& name : more) {
      made.added.push_back({.content = name, .id = builder_.id_of(name), .special = true});
    }
    made.text = with_added_tokens(made.text, std::span(made.added).last(more.size()));
  }

  NamedText file_;
  WordPieceBuilder builder_;
  std::size_t offset_ = 0;  // where the part begins that is being read, for errors
  std::vector<PlacedToken> added_;
  std::optional<std::size_t> vocab_at_;
  std::optional<BertNormalizer> normalizer_;
  bool has_pre_tokenizer_ = false, close_up_ = false;  // without a decoder tokens are joined by spaces
  std::size_t longest_word_ = kLongestWord;
};

}  // namespace

WordPieceVocabulary read_word_piece_json(const std::string& path, std::int64_t extra_ids, std::int64_t rows,
                                         const FolderSettings& folder) {
  return parse_word_piece_json(folder.added_to(read_vocabulary_file(path, kWordPieceAdvice)), extra_ids, rows);
}

WordPieceVocabulary parse_word_piece_json(NamedText file, std::int64_t extra_ids, std::int64_t rows) {
  return WordPieceJson(std::move(file), rows).read(extra_ids);
}

std::string write_word_piece_json(const WordPieceVocabulary& vocabulary) {
  ordered_json vocab = ordered_json::object();
  auto& entries = vocab.get_ref<ordered_json::object_t&>();  // [] would search all of them
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) entries.emplace_back(vocabulary.tokens[id], id);
  const auto special = [&](const char* name, std::int32_t id) {
    return ordered_json{{"id", name}, {"ids", ordered_json::array({id})}, {"tokens", ordered_json::array({name})}};
  };
  const auto token = [](const char* name, int type) {
    return ordered_json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  const auto sequence = [](const char* name, int type) {
    return ordered_json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  const ordered_json one = ordered_json::array({token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0)});
  ordered_json two = one;
  two.push_back(sequence("B", 1));
  two.push_back(token("[SEP]", 1));
  const ordered_json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", ordered_json::array()},
      {"normalizer",
       {{"type", "BertNormalizer"},
        {"clean_text", vocabulary.clean},
        {"handle_chinese_chars", vocabulary.ideographs},
        {"strip_accents", vocabulary.strip_accents},
        {"lowercase", vocabulary.lower_case}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", one},
        {"pair", two},
        {"special_tokens",
         {{"[CLS]", special("[CLS]", vocabulary.special.cls)}, {"[SEP]", special("[SEP]", vocabulary.special.sep)}}}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", vocabulary.close_up}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", "[UNK]"},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", vocabulary.longest_word},
        {"vocab", vocab}}}};
  return with_added_tokens(file.dump() + "\n", vocabulary.added);
}

}  // namespace megatron
