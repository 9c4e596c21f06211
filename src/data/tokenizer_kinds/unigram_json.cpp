// tokenizer.json of type Unigram: read, and written.
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "data/tokenizer/added_token_json.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/json_members.h"
#include "data/tokenizer/special_names.h"
#include "data/tokenizer/tokenizer_pipeline.h"
#include "data/tokenizer/unigram_vocabulary.h"
#include "data/tokenizer/vocabulary_file.h"
#include "data/tokenizer_kinds/best_pieces.h"

namespace megatron {

namespace {

using nlohmann::ordered_json;

constexpr const char* kUnigramAdvice =
    "a tokenizer.json with a Unigram model is right, as T5 has it, or one that `megatron_preprocess train-tokenizer "
    "--type unigram` makes; for a .model file of SentencePiece choose --tokenizer sentencepiece";
constexpr std::size_t kMostPieceBytes = 16 << 20;  ///< all pieces together

class UnigramJson {
 public:
  explicit UnigramJson(NamedText file) : file_(std::move(file)) {}

  UnigramVocabulary read(std::int64_t extra_ids) {
    try {
      JsonReader json(file_.text);
      read_root(json);
      json.expect_end();
      return build(extra_ids);
    } catch (const JsonError& error) {
      file_.fail_json(error, "not a tokenizer.json");
    }
  }

 private:
  [[noreturn]] void refuse(std::size_t at, std::string_view what) const {
    file_.fail_at(at, "asks for {}, which this program does not have for Unigram", what);
  }
  std::string_view raw(JsonReader& json) const { return raw_value(json, file_.text); }
  template <class Read>
  auto read_step(JsonReader& json, const Read& read) const {
    const std::size_t at = json.position();
    try {
      return read(json);
    } catch (const UnsupportedStep& step) {
      refuse(at, shown(step.what));
    }
  }

  void read_root(JsonReader& json) {
    for_each_member(json, [&](const std::string& key, JsonReader& value) {
      const auto step = [&](const auto& read) { return [&](JsonReader& it) { return read(raw(it)); }; };
      if (key == "version") return value.skip_value();
      if (key == "truncation" || key == "padding") return value.skip_value();  // for batches, not for a text
      if (key == "normalizer") return void(made_.normalizer = read_step(value, step(read_unigram_normalizer)));
      if (key == "pre_tokenizer") return void(metaspace_ = read_step(value, step(read_metaspace)));
      if (key == "post_processor") return read_step(value, step(check_post_processor));
      if (key == "decoder") return read_step(value, step(check_unigram_decoder));
      if (key == "added_tokens") {
        return for_each_element(value, [&](JsonReader& token) {
          added_.push_back(read_step(token, [&](JsonReader& it) { return read_added_token(it, file_.text); }));
        });
      }
      if (key == "model") return read_model(value);
      refuse(value.position(), fmt::format("\"{}\"", shown(key)));
    });
  }

  void read_model(JsonReader& json) {
    for_each_member(json, [&](const std::string& key, JsonReader& value) {
      const std::size_t at = value.position();
      if (key == "type") {
        if (const std::string_view type = raw(value); type != "\"Unigram\"") {
          refuse(at, fmt::format("model.type = {}", shown(type)));
        }
      } else if (key == "unk_id") {
        if (value.peek() == 'n') return value.skip_value();
        unk_ = value.integer();
      } else if (key == "byte_fallback") {
        made_.byte_fallback = raw(value) == "true";
      } else if (key == "vocab") {
        for_each_element(value, [&](JsonReader& piece) { read_piece(piece); });
      } else {
        refuse(at, fmt::format("model.{}", shown(key)));
      }
    });
  }

  void read_piece(JsonReader& json) {
    const std::size_t at = json.position();
    std::string buffer;
    json.expect('[', "a piece, as [\"text\", score]");
    std::string text(json.string(buffer));
    json.expect(',', "the score of a piece");
    const std::string_view written = raw(json);
    json.expect(']', "the end of a piece");
    double score = 0;
    const auto end = written.data() + written.size();
    const auto [stop, error] = std::from_chars(written.data(), end, score);
    if (error != std::errc() || stop != end || !(std::abs(score) <= kLargestPieceScore)) {
      file_.fail_at(at, "piece {} has the score {}", made_.scores.size(), shown(written));
    }
    bytes_ += text.size();
    if (bytes_ > kMostPieceBytes) file_.fail_at(at, "pieces of more than {} bytes in all", kMostPieceBytes);
    add(at, std::move(text));
    made_.scores.push_back(score + 0.0);  // -0 is 0, also where another writer of JSON drops its sign
  }

  void add(std::size_t at, std::string token) {
    const std::size_t id = made_.tokens.size();
    if (id >= kMostTokens) file_.fail_at(at, "more than {} tokens", kMostTokens);
    if (token.empty() || token.size() > kLongestToken) {
      file_.fail_at(at, "token {} has {} bytes", id, token.size());
    }
    if (const TokenIndex::Entry* const same = ids_.find(token)) {
      file_.fail_at(at, "token \"{}\" is there twice, with ids {} and {}", shown(token), same->id, id);
    }
    ids_.add(token, static_cast<std::int32_t>(id));
    made_.tokens.push_back(std::move(token));
  }

  std::int32_t id_of(std::string_view token) const {
    const TokenIndex::Entry* const found = ids_.find(token);
    return found == nullptr ? -1 : found->id;
  }

  void read_added() {
    std::unordered_set<std::int32_t> seen;
    for (PlacedToken& read : added_) {
      const std::int32_t known = id_of(read.token.content);
      if (known < 0 && read.id == made_.tokens.size()) {
        add(read.at, read.token.content);
      } else if (known < 0 || read.id != static_cast<std::uint64_t>(known)) {
        file_.fail_at(read.at, "the added token \"{}\" has id {}: expected {}", shown(read.token.content), read.id,
                      known < 0 ? made_.tokens.size() : static_cast<std::size_t>(known));
      }
      read.token.id = id_of(read.token.content);
      if (!seen.insert(read.token.id).second) {
        file_.fail_at(read.at, "the added token with id {} is there twice", read.token.id);
      }
      if (read.token.special) special_.insert(read.token.id);
      made_.added.push_back(read.token);
    }
  }

  SpecialIds special_ids() const {
    SpecialIds special = find_special_ids([&](std::string_view name) {
      const std::int32_t id = id_of(name);
      return special_.contains(id) ? id : -1;
    });
    special.unk = static_cast<std::int32_t>(*unk_);
    if (special.eos < 0) {
      file_.fail_at(file_.text.size(), "has no special added token that ends documents (</s>, <eos>, [EOS])");
    }
    if (special.eos == special.unk) file_.fail_at(0, "the unknown piece {} also ends documents", special.unk);
    return special;
  }

  UnigramVocabulary build(std::int64_t extra_ids) {
    if (made_.tokens.empty()) file_.fail_at(0, "no model with a vocab");
    if (!metaspace_) file_.fail_at(0, "no pre_tokenizer");
    if (!unk_ || *unk_ >= made_.scores.size()) file_.fail_at(0, "no unknown piece (model.unk_id)");
    made_.split_at_spaces = metaspace_->split_at_spaces;
    made_.drop_spaces = metaspace_->drop_spaces;
    made_.prefix = metaspace_->prefix;
    read_added();
    made_.special = special_ids();
    made_.text = std::move(file_.text);
    const std::vector<std::string> more = missing_sentinels(made_.special, extra_ids, file_);
    if (!more.empty()) add_sentinels(more);
    return std::move(made_);
  }

  /// Into the file that is kept as well.
  void add_sentinels(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      add(0, name);
      made_.added.push_back({.content = name, .id = id_of(name), .special = true});
      special_.insert(id_of(name));
    }
    made_.text = with_added_tokens(made_.text, std::span(made_.added).last(names.size()));
    made_.special = special_ids();
  }

  NamedText file_;
  UnigramVocabulary made_;
  TokenIndex ids_;
  std::size_t bytes_ = 0;
  std::vector<PlacedToken> added_;
  std::unordered_set<std::int32_t> special_;  // ids of those
  std::optional<std::uint64_t> unk_;
  std::optional<Metaspace> metaspace_;
};

}  // namespace

UnigramVocabulary read_unigram_json(const std::string& path, std::int64_t extra_ids, std::int64_t rows,
                                    const FolderSettings& folder) {
  NamedText file = folder.added_to(read_vocabulary_file(path, kUnigramAdvice));
  return UnigramJson(without_tokens_beyond(std::move(file), rows)).read(extra_ids);
}

std::string write_unigram_json(const std::vector<std::pair<std::string, double>>& pieces, std::int64_t extra_ids) {
  ordered_json vocab = ordered_json::array();
  std::vector<AddedToken> added;
  const auto add_special = [&](const std::string& name) {
    added.push_back({.content = name, .id = static_cast<std::int32_t>(vocab.size()), .special = true});
    vocab.push_back({name, 0.0});
  };
  for (const char* name : {"<pad>", "</s>", "<unk>"}) add_special(name);
  for (const auto& [piece, score] : pieces) vocab.push_back({piece, score});
  for (std::int64_t i = extra_ids; i-- > 0;) add_special(sentinel_name(i));
  const ordered_json metaspace = {
      {"type", "Metaspace"}, {"replacement", kSpaceMark}, {"prepend_scheme", "always"}, {"split", true}};
  const ordered_json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
                     second = {{"Sequence", {{"id", "B"}, {"type_id", 0}}}},
                     end = {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}};
  const ordered_json ends = {
      {"id", "</s>"}, {"ids", ordered_json::array({1})}, {"tokens", ordered_json::array({"</s>"})}};
  const ordered_json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", ordered_json::array()},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({{{"type", "WhitespaceSplit"}}, metaspace})}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", ordered_json::array({text, end})},
        {"pair", ordered_json::array({text, end, second, end})},
        {"special_tokens", {{"</s>", ends}}}}},
      {"decoder", metaspace},
      {"model", {{"type", "Unigram"}, {"unk_id", 2}, {"vocab", vocab}, {"byte_fallback", false}}}};
  return with_added_tokens(file.dump() + "\n", added);
}

}  // namespace megatron
