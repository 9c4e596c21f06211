#include "tokenizer/tokenizer_json.h"

#include <functional>
#include <optional>

#include "base/json_reader.h"
#include "tokenizer/vocabulary_file.h"

namespace megatron {

namespace {

class TokenizerJson {
 public:
  explicit TokenizerJson(const std::string& path) : file_(read_vocabulary_file(path)), builder_(file_) {}

  BpeVocabulary read() {
    try {
      JsonReader json(file_.text);
      read_root(json);
      json.expect_end();
      return build();
    } catch (const JsonError& error) {
      const std::size_t at = offset_ + error.at;
      file_.fail_at(at, "not a tokenizer.json (byte {} of the file): {}", at + 1, error.reason);
    }
  }

 private:
  struct AddedToken {
    std::size_t at = 0;
    std::string content;
    std::uint64_t id = 0;
    bool special = false, normalized = false;
  };

  [[noreturn]] void refuse(std::size_t at, std::string_view what) const {
    file_.fail_at(at, "asks for {}, which this program does not have", what);
  }

  /// Calls visit(key, json) for each member; it must read the value.
  template <class Visit>
  static void for_each_member(JsonReader& json, const Visit& visit) {
    json.expect('{', "an object");
    if (json.take('}')) return;
    do {
      std::string buffer;
      const std::string key(json.string(buffer));
      json.expect(':', "':' behind a key");
      json.peek();
      visit(key, json);
    } while (json.take(','));
    json.expect('}', "',' or '}'");
  }
  template <class Visit>
  static void for_each_element(JsonReader& json, const Visit& visit) {
    json.expect('[', "an array");
    if (json.take(']')) return;
    do {
      json.peek();
      visit(json);
    } while (json.take(','));
    json.expect(']', "',' or ']'");
  }

  /// The value that comes next, as it is written.
  std::string_view raw(JsonReader& json) const {
    json.peek();
    const std::size_t begin = json.position();
    json.skip_value();
    return std::string_view(file_.text).substr(begin, json.position() - begin);
  }
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
  /// null, or an object of type ByteLevel; `member` is called with its other members.
  template <class Member>
  void read_byte_level(JsonReader& json, const std::string& name, const Member& member) {
    if (json.peek() == 'n') return expect_one_of(json, name, {"null"});
    for_each_member(json, [&](const std::string& key, JsonReader& value) {
      if (key == "type") return expect_one_of(value, name + ".type", {"\"ByteLevel\""});
      member(key, value);
    });
  }

  void read_root(JsonReader& json) {
    for_each_member(json, [&](const std::string& key, JsonReader& value) {
      const auto skip = [](const std::string&, JsonReader& unused) { unused.skip_value(); };
      if (key == "version") return value.skip_value();
      if (key == "truncation" || key == "padding") return expect_one_of(value, key, {"null"});
      if (key == "normalizer") return read_normalizer(value);
      if (key == "added_tokens") return for_each_element(value, [&](JsonReader& token) { read_added_token(token); });
      if (key == "pre_tokenizer") return read_pre_tokenizer(value);
      if (key == "decoder" || key == "post_processor") return read_byte_level(value, key, skip);
      if (key == "model") return read_model(value);
      file_.fail_at(value.position(),
                    "\"{}\" is no part of a tokenizer.json that this program knows (a vocab.json needs "
                    "its merges.txt)",
                    shown(key));
    });
  }

  void read_normalizer(JsonReader& json) {
    if (json.peek() == 'n') return expect_one_of(json, "normalizer", {"null"});
    for_each_member(json, [&](const std::string& key, JsonReader& value) {
      if (key == "type") refuse(value.position(), fmt::format("a normalizer of type {}", shown(raw(value))));
      value.skip_value();
    });
    refuse(json.position(), "a normalizer");
  }

  void read_pre_tokenizer(JsonReader& json) {
    has_pre_tokenizer_ = json.peek() != 'n';  // null is as good as none
    read_byte_level(json, "pre_tokenizer", [&](const std::string& key, JsonReader& value) {
      if (key == "trim_offsets") return value.skip_value();
      if (key == "use_regex") return expect_one_of(value, "pre_tokenizer.use_regex", {"true"});
      if (key != "add_prefix_space") refuse(value.position(), fmt::format("pre_tokenizer.{}", shown(key)));
      add_prefix_space_ = is_true(value);
    });
  }

  void read_added_token(JsonReader& json) {
    AddedToken token;
    json.peek();
    token.at = json.position();
    std::string buffer;
    std::string trouble;
    for_each_member(json, [&](const std::string& key, JsonReader& value) {
      if (key == "content") {
        token.content = value.string(buffer);
      } else if (key == "id") {
        token.id = value.integer();
      } else if (key == "special") {
        token.special = is_true(value);
      } else if (key == "normalized") {
        token.normalized = is_true(value);  // there is no normalizer, but these are looked for after the others
      } else if (key == "single_word" || key == "lstrip" || key == "rstrip") {
        if (is_true(value)) trouble = key;
      } else {
        value.skip_value();
      }
    });
    // A special token is never looked for in a text, so how it would be looked for does not matter.
    if (!token.special && !trouble.empty()) {
      refuse(token.at, fmt::format("{} of the added token \"{}\"", trouble, shown(token.content)));
    }
    added_.push_back(std::move(token));
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
      if (key == "byte_fallback" || key == "ignore_merges") return expect_one_of(value, "model." + key, {"false"});
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
    if (!has_pre_tokenizer_) file_.fail_at(0, "no pre_tokenizer; ByteLevel is the one that this program has");
    std::string buffer;
    JsonReader vocab = reader_at(*vocab_at_);
    for_each_member(vocab, [&](const std::string& token, JsonReader& value) {
      builder_.add_token(*vocab_at_ + value.position(), token, value.integer());
    });
    std::vector<bool> whole;
    std::vector<std::pair<std::string, std::int32_t>> found[2];
    for (const AddedToken& token : added_) {
      if (builder_.ids().find(token.content) == nullptr || !same_id(token)) {
        builder_.add_whole_token(token.at, token.content, token.id);
      }
      if (token.id >= whole.size()) whole.resize(token.id + 1);
      whole[token.id] = true;
      if (!token.special && token.content != kEndOfText) {
        found[token.normalized ? 1 : 0].emplace_back(token.content, static_cast<std::int32_t>(token.id));
      }
    }
    builder_.end_tokens();
    JsonReader merges = reader_at(*merges_at_);
    for_each_element(merges, [&](JsonReader& merge) { read_merge(merge); });
    BpeVocabulary vocabulary = builder_.finish(whole);
    vocabulary.add_prefix_space = add_prefix_space_;
    for (int i = 0; i < 2; ++i) vocabulary.found_in_text[i] = std::move(found[i]);
    vocabulary.tokenizer_text = std::move(file_.text);
    return vocabulary;
  }

  /// Whether the vocabulary has the added token under its id already.
  bool same_id(const AddedToken& token) const {
    return static_cast<std::uint64_t>(builder_.ids().find(token.content)->id) == token.id;
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
  std::size_t offset_ = 0;  // of what is being read, for errors
  std::vector<AddedToken> added_;
  std::optional<std::size_t> vocab_at_, merges_at_;
  bool has_pre_tokenizer_ = false, add_prefix_space_ = false;
};

}  // namespace

BpeVocabulary read_tokenizer_json(const std::string& path) {
  return TokenizerJson(path).read();
}

}  // namespace megatron
