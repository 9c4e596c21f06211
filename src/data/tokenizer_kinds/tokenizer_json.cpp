#include "data/tokenizer_kinds/tokenizer_json.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "data/tokenizer/added_token_json.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/json_members.h"
#include "data/tokenizer/tokenizer_pipeline.h"
#include "data/tokenizer/vocabulary_file.h"

namespace megatron {

namespace {

class TokenizerJson {
 public:
  TokenizerJson(NamedText file, std::int64_t rows)
      : file_(without_tokens_beyond(std::move(file), rows)), builder_(file_, MergeOrder::any) {}

  BpeVocabulary read() {
    try {
      JsonReader json(file_.text);
      read_root(json);
      json.expect_end();
      return build();
    } catch (const JsonError& error) {
      file_.fail_json(error, "not a tokenizer.json", offset_);
    }
  }

 private:
  [[noreturn]] void refuse(std::size_t at, std::string_view what) const {
    fail(ErrorKind::data,
         "{}:{}: asks for {}, which this program does not have; supported are byte-level BPE tokenizers as GPT-2, "
         "GPT-NeoX, StarCoder, Llama 3, Qwen2, Qwen3 and GPT-4o have them, and BERT's as --tokenizer bert-uncased or "
         "bert-cased. In place of a file of SentencePiece's kind (Llama 2, Mistral) give the model's tokenizer.model. "
         "For others make ids with the model's own library and bring them with `megatron_preprocess import`",
         file_.path, file_.line_of(at), what);
  }

  std::string_view raw(JsonReader& json) const { return raw_value(json, file_.text); }
  bool is_true(JsonReader& json) const { return raw(json) == "true"; }
  /// Refuses any value but these.
  void expect_one_of(JsonReader& json, const std::string& name, std::initializer_list<std::string_view> good) const {
    json.peek();
    const std::size_t at = json.position();
    const std::string_view value = raw(json);
    for (const std::string_view allowed : good) {
      if (value == allowed) return;
    }
    refuse(at, fmt::format("{} = {}", name, shown(value)));
  }
  /// Gives the part of the pipeline that comes next to `read` (tokenizer_pipeline.h).
  template <class Read>
  auto read_step(JsonReader& json, const Read& read) {
    json.peek();
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
      if (key == "normalizer") return void(normalizer_ = read_step(value, read_normalizer));
      if (key == "added_tokens") return for_each_element(value, [&](JsonReader& token) { read_token(token); });
      if (key == "pre_tokenizer") return void(pre_tokenizer_ = read_step(value, read_pre_tokenizer));
      if (key == "decoder") return read_step(value, check_decoder);
      if (key == "post_processor") return read_step(value, check_post_processor);
      if (key == "model") return read_model(value);
      file_.fail_at(value.position(),
                    "\"{}\" is no part of a tokenizer.json that this program knows (a vocab.json needs "
                    "its merges.txt)",
                    shown(key));
    });
  }

  void read_token(JsonReader& json) {
    const std::size_t at = json.position();
    try {
      added_.push_back(read_added_token(json, file_.text));
    } catch (const UnsupportedStep& step) {
      refuse(at, shown(step.what));
    }
  }

  void read_model(JsonReader& json) {
    for_each_member(json, [&](const std::string& key, JsonReader& value) {
      if (key == "type") return expect_one_of(value, "model.type", {"\"BPE\""});
      if (key == "vocab" || key == "merges") {
        (key == "vocab" ? vocab_at_ : merges_at_) = value.position();
        return value.skip_value();
      }
      if (key == "fuse_unk") return value.skip_value();  // with all bytes in the vocabulary nothing is unknown
      if (key == "unk_token") return value.skip_value();
      if (key == "dropout") return expect_one_of(value, "model.dropout", {"null", "0", "0.0"});
      if (key == "continuing_subword_prefix" || key == "end_of_word_suffix") {
        return expect_one_of(value, "model." + key, {"null", "\"\""});
      }
      if (key == "byte_fallback") return value.skip_value();  // as unk_token
      if (key == "ignore_merges") return void(ignore_merges_ = is_true(value));
      refuse(value.position(), fmt::format("model.{}", shown(key)));
    });
  }

  /// A reader of the value that begins there.
  JsonReader reader_at(std::size_t at) {
    offset_ = at;
    return JsonReader(std::string_view(file_.text).substr(at));
  }

  BpeVocabulary build() {
    if (!vocab_at_ || !merges_at_)
      file_.fail_at(0, "no model with vocab and merges; a vocab.json needs its merges.txt");
    if (!pre_tokenizer_) refuse(0, "no pre_tokenizer");
    read_vocab();
    TokenIndex whole_pieces;
    if (ignore_merges_) whole_pieces = pieces();
    const std::vector<std::int32_t> unused = builder_.unused_ids();
    std::vector<AddedToken> added;
    std::vector<bool> whole;
    const std::size_t listed = builder_.ids().entries().size();
    for (const PlacedToken& read : added_) {
      add_token(read);
      if (read.id >= whole.size()) whole.resize(read.id + 1);
      whole[read.id] = true;
      added.push_back(read.token);
      added.back().id = static_cast<std::int32_t>(read.id);
    }
    const std::size_t tokens = builder_.ids().entries().size();
    if (unused.size() > tokens) file_.fail_at(*vocab_at_, "{} tokens, and {} ids without one", tokens, unused.size());
    for (const std::int32_t id : unused) {
      const auto place = static_cast<std::size_t>(id);
      if (place >= whole.size() || !whole[place]) builder_.add_whole_token(0, BpeBuilder::unused_name(id), place);
    }
    builder_.end_tokens();
    if (!unused.empty()) check_numbers(listed, unused);
    JsonReader merges = reader_at(*merges_at_);
    for_each_element(merges, [&](JsonReader& merge) { read_merge(merge); });
    BpeVocabulary vocabulary = ignore_merges_ ? builder_.finish_unchecked() : builder_.finish(whole);
    vocabulary.normalizer = std::move(normalizer_);
    vocabulary.pattern = pre_tokenizer_->pattern;
    vocabulary.add_prefix_space = pre_tokenizer_->add_prefix_space;
    vocabulary.ignore_merges = ignore_merges_;
    vocabulary.whole_pieces = std::move(whole_pieces);
    vocabulary.added = std::move(added);
    vocabulary.tokenizer_text = std::move(file_.text);
    return vocabulary;
  }

  /// Where the vocabulary leaves ids unused, Hugging Face's library numbers the added tokens that it lacks by itself.
  /// `listed`: how many tokens the vocabulary has.
  void check_numbers(std::size_t listed, const std::vector<std::int32_t>& unused) const {
    std::uint64_t next = listed;
    for (const PlacedToken& read : added_) {
      const bool known = read.id < listed + unused.size() &&
                         !std::binary_search(unused.begin(), unused.end(), static_cast<std::int32_t>(read.id));
      if (!known && read.id != next) {
        file_.fail_at(read.at, "the added token \"{}\" has the id {}, and Hugging Face's library gives it {}",
                      shown(read.token.content), read.id, next);
      }
      next = std::max(next, read.id + 1);
    }
  }

  /// The vocabulary without special tokens: a text that has their names is text.
  TokenIndex pieces() const {
    std::unordered_set<std::uint64_t> special;
    for (const PlacedToken& read : added_) {
      if (read.token.special) special.insert(read.id);
    }
    TokenIndex pieces;
    for (const auto& [bytes, id] : builder_.ids().entries()) {
      if (!special.contains(static_cast<std::uint64_t>(id))) pieces.add(bytes, id);
    }
    return pieces;
  }

  void read_vocab() {
    std::unordered_set<std::string_view> added;
    for (const PlacedToken& read : added_) added.insert(read.token.content);
    JsonReader vocab = reader_at(*vocab_at_);
    for_each_entry(vocab, [&](const std::string& token, JsonReader& value) {
      const std::size_t at = *vocab_at_ + value.position();
      const std::uint64_t id = value.integer();
      if (!added.contains(token)) return builder_.add_token(at, token, id);
      const std::optional<std::string> bytes = ByteAlphabet().bytes_of(token);
      if (bytes && *bytes != token) {
        refuse(at, fmt::format("an added token \"{}\" that is the vocabulary's token of other bytes", shown(token)));
      }
      builder_.add_whole_token(at, token, id);
    });
  }

  /// The vocabulary may have an added token already, as it is written in a text; if it has the same bytes as one of its
  /// own, written in the 256 characters ("Ġ" for a space), the added one is another.
  void add_token(const PlacedToken& read) {
    const std::string& content = read.token.content;
    const TokenIndex::Entry* const known = builder_.ids().find(content);
    if (known == nullptr) return builder_.add_whole_token(read.at, content, read.id);
    if (static_cast<std::uint64_t>(known->id) == read.id) return;
    if (ByteAlphabet().written(content) == content) {
      file_.fail_at(read.at, "token \"{}\" is there twice, with ids {} and {}", shown(content), known->id, read.id);
    }
    builder_.add_second_token(read.at, content, read.id);
  }

  void read_merge(JsonReader& json) {
    const std::size_t at = *merges_at_ + json.position();
    std::string buffer, parts[2];
    std::size_t count = 0;
    if (json.peek() == '[') {
      for_each_element(json, [&](JsonReader& part) {
        const std::string_view text = part.string(buffer);
        if (count < 2) parts[count] = text;
        ++count;
      });
    } else {
      const std::string_view text = json.string(buffer);
      const std::size_t space = text.find(' ');
      count = space == std::string_view::npos ? 1 : 2;
      parts[0] = text.substr(0, space);
      if (count == 2) parts[1] = text.substr(space + 1);
    }
    if (count != 2) file_.fail_at(at, "a merge of {} tokens instead of two", count);
    builder_.add_merge(at, parts[0], parts[1]);
  }

  NamedText file_;
  BpeBuilder builder_;
  std::size_t offset_ = 0;  // where the part begins that is being read, for errors
  std::vector<PlacedToken> added_;
  std::optional<std::size_t> vocab_at_, merges_at_;
  std::optional<PreTokenizer> pre_tokenizer_;
  std::vector<NormalizerStep> normalizer_;
  bool ignore_merges_ = false;
};

}  // namespace

BpeVocabulary read_tokenizer_json(const std::string& path, std::int64_t rows, const FolderSettings& folder) {
  return parse_tokenizer_json(folder.added_to(read_vocabulary_file(path)), rows);
}

BpeVocabulary parse_tokenizer_json(NamedText file, std::int64_t rows) {
  return TokenizerJson(std::move(file), rows).read();
}

}  // namespace megatron
