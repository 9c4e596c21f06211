#include "data/tokenizer_kinds/rank_file.h"

#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/system/regular_file.h"
#include "data/tokenizer/base64.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/json_members.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_export.h"
#include "data/tokenizer/tokenizer_pipeline.h"
#include "data/tokenizer/vocabulary_file.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

namespace {

using Json = nlohmann::json;

constexpr const char* kRankFileAdvice =
    "known are qwen.tiktoken, Whisper's gpt2.tiktoken and multilingual.tiktoken, cl100k_base, o200k_base, p50k_base "
    "and "
    "r50k_base, a tokenizer.model of ranks next to its tokenizer_config.json, and tekken.json";

constexpr std::uint64_t kMostSquares = 1'000'000'000;  ///< some 100 times those of the published files

using Names = std::vector<std::string>;

/// `names` with `count` more, NAME_0 ... of a format with one place for the number.
Names numbered(Names names, const char* format, int count) {
  for (int i = 0; i < count; ++i) names.push_back(fmt::format(fmt::runtime(format), i));
  return names;
}

Names qwen_names() {
  return numbered({"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, "<|extra_{}|>", 205);
}

Names whisper_names() {
  constexpr std::string_view kLanguages =  // the 99 of all models but large-v3
      "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi "
      "ml "
      "cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu "
      "am "
      "yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su ";
  Names names = {"<|endoftext|>", "<|startoftranscript|>"};
  for (std::size_t at = 0; at < kLanguages.size();) {
    const std::size_t end = kLanguages.find(' ', at);
    names.push_back(fmt::format("<|{}|>", kLanguages.substr(at, end - at)));
    at = end + 1;
  }
  for (const char* task : {"translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"}) {
    names.push_back(fmt::format("<|{}|>", task));
  }
  for (int i = 0; i <= 1500; ++i) names.push_back(fmt::format("<|{:.2f}|>", i * 0.02));
  return names;
}

/// Facts that a file of ranks does not say, known by its name.
struct KnownRanks {
  std::string_view name;
  SplitPattern pattern;
  bool nfc = false;
  Names (*names)() = nullptr;                                     ///< special tokens with the ids after the ranks
  std::vector<std::pair<std::int32_t, std::string>> placed = {};  ///< special tokens with ids of their own
};

const std::vector<KnownRanks>& known_ranks() {
  static const std::vector<KnownRanks> known = {
      {"qwen.tiktoken", SplitPattern::qwen2, true, qwen_names},
      {"gpt2.tiktoken", SplitPattern::gpt2, false, whisper_names},
      {"multilingual.tiktoken", SplitPattern::gpt2, false, whisper_names},
      {"r50k_base.tiktoken", SplitPattern::gpt2, false, nullptr, {{50256, "<|endoftext|>"}}},
      {"p50k_base.tiktoken", SplitPattern::gpt2, false, nullptr, {{50256, "<|endoftext|>"}}},
      {"cl100k_base.tiktoken",
       SplitPattern::cl100k,
       false,
       nullptr,
       {{100257, "<|endoftext|>"},
        {100258, "<|fim_prefix|>"},
        {100259, "<|fim_middle|>"},
        {100260, "<|fim_suffix|>"},
        {100276, "<|endofprompt|>"}}},
      {"o200k_base.tiktoken",
       SplitPattern::o200k,
       false,
       nullptr,
       {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}}},
      {kSentencePieceFile, SplitPattern::cl100k},
  };
  return known;
}

/// "base64 rank", the first line of a rank file.
bool is_rank_line(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0 || line.size() == text.size()) return false;
  const std::string_view rank = line.substr(space + 1);
  return from_base64(line.substr(0, space)).has_value() && rank.find_first_not_of("0123456789\r") == rank.npos;
}

/// mistral-common's form has an object "config", which no tokenizer.json and no vocab.json has. It comes first, so that
/// a file that is cut off is told too.
bool is_tekken(std::string_view text) {
  bool found = false;
  try {
    JsonReader reader(text);
    for_each_entry(reader, [&](const std::string& key, JsonReader& value) {
      found = found || (key == "config" && value.peek() == '{');
      value.skip_value();
    });
  } catch (const JsonError&) {  // the file's reader says what is wrong
  }
  return found;
}

class RankReader {
 public:
  RankReader(const std::string& path, std::int64_t rows)
      : file_(read_vocabulary_file(path, kRankFileAdvice)), builder_(file_, MergeOrder::any), rows_(rows) {}

  BpeVocabulary read() {
    if (file_.text.starts_with('{')) {
      read_tekken();
    } else {
      read_lines();
    }
    return build();
  }

 private:
  void read_lines() {
    const std::string name = file_part(file_.path);
    const auto known = std::find_if(known_ranks().begin(), known_ranks().end(),
                                    [&](const KnownRanks& each) { return each.name == name; });
    if (known == known_ranks().end())
      file_.fail_at(0, "the split pattern and special tokens of {} are not known", name);
    std::int32_t next = 0;  // the id after the ranks
    for (std::size_t at = 0; at < file_.text.size();) {
      const std::size_t end = std::min(file_.text.find('\n', at), file_.text.size());
      next = std::max(next, read_line(at, std::string_view(file_.text).substr(at, end - at)) + 1);
      at = end + 1;
    }
    pattern_ = known->pattern;
    if (known->nfc) normalizer_.push_back({.kind = NormalizerStep::Kind::nfc});
    std::vector<AddedToken> folder = folder_settings(folder_part(file_.path)).added;
    if (!folder.empty()) return void(special_ = std::move(folder));
    for (const auto& [id, content] : known->placed) add_special(content, id);
    for (const std::string& content : known->names == nullptr ? Names() : known->names()) add_special(content, next++);
    if (special_.empty()) file_.fail_at(0, "its special tokens are in no file: tokenizer_config.json is missing");
  }

  /// The rank.
  std::int32_t read_line(std::size_t at, std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t space = std::min(line.find(' '), line.size());
    std::uint64_t rank = kMostTokens;
    const char* const end = line.data() + line.size();
    const bool whole = space < line.size() && std::from_chars(line.data() + space + 1, end, rank).ptr == end;
    if (!whole || rank >= kMostTokens) file_.fail_at(at, "expected \"base64 rank\", found \"{}\"", shown(line));
    const std::string_view written = line.substr(0, space);
    if (written == "=") return static_cast<std::int32_t>(rank);  // no token: Whisper's files have one of these
    std::optional<std::string> bytes = from_base64(written);
    if (!bytes) file_.fail_at(at, "\"{}\" is no base64", shown(written));
    builder_.add_whole_token(at, std::move(*bytes), rank);
    return static_cast<std::int32_t>(rank);
  }

  void read_tekken() try {
    const Json file = Json::parse(file_.text);
    const Json& config = file.at("config");
    const auto pattern = pattern_of_regex(config.at("pattern").get<std::string>());
    if (!pattern) file_.fail_at(0, "its split pattern {} is not known", shown(config.at("pattern").dump()));
    pattern_ = *pattern;
    const std::uint64_t size = whole_number(config, "default_vocab_size");
    const std::uint64_t special = whole_number(config, "default_num_special_tokens");
    if (special < 1 || size <= special || size > kMostTokens) {
      file_.fail_at(0, "{} tokens with {} special ones", size, special);
    }
    read_tekken_special(file.value("special_tokens", Json()), static_cast<std::int32_t>(special));
    for (const Json& token : file.at("vocab")) {
      const std::uint64_t rank = whole_number(token, "rank");
      if (rank >= size - special) continue;  // a longer list than the model has rows
      std::optional<std::string> bytes = from_base64(token.at("token_bytes").get<std::string>());
      if (!bytes) file_.fail_at(0, "the token of rank {} is no base64", rank);
      builder_.add_whole_token(0, std::move(*bytes), rank + special);
    }
  } catch (const Json::exception& error) {
    file_.fail_at(0, "no tekken.json: {}", shown(error.what()));
  }

  std::uint64_t whole_number(const Json& in, const char* key) const {
    const Json& number = in.at(key);
    if (!number.is_number_unsigned()) {
      file_.fail_at(0, "\"{}\" is {}, where a whole number is right", key, shown(number.dump()));
    }
    return number.get<std::uint64_t>();
  }

  /// Adds the file's special tokens, or those of the versions that named none, and as many more as the model has.
  void read_tekken_special(const Json& listed, std::int32_t count) {
    Names names = {"<unk>",
                   "<s>",
                   "</s>",
                   "[INST]",
                   "[/INST]",
                   "[AVAILABLE_TOOLS]",
                   "[/AVAILABLE_TOOLS]",
                   "[TOOL_RESULTS]",
                   "[/TOOL_RESULTS]",
                   "[TOOL_CALLS]",
                   "[IMG]",
                   "<pad>",
                   "[IMG_BREAK]",
                   "[IMG_END]",
                   "[PREFIX]",
                   "[MIDDLE]",
                   "[SUFFIX]",
                   "[SYSTEM_PROMPT]",
                   "[/SYSTEM_PROMPT]",
                   "[TOOL_CONTENT]"};
    if (!listed.is_null()) {
      names.assign(listed.size(), "");
      for (const Json& token : listed) {
        const std::uint64_t rank = whole_number(token, "rank");
        if (rank >= names.size()) file_.fail_at(0, "a special token of rank {}, and there are {}", rank, names.size());
        names[rank] = token.at("token_str").get<std::string>();
      }
    }
    for (std::int32_t id = 0; id < count; ++id) {
      const auto place = static_cast<std::size_t>(id);
      add_special(place < names.size() ? names[place] : fmt::format("<SPECIAL_{}>", id), id);
    }
  }

  void add_special(const std::string& content, std::int32_t id) {
    special_.push_back({.content = content, .id = id, .special = true});
  }

  BpeVocabulary build() {
    TokenIndex whole = builder_.ids();
    if (rows_ > 0) std::erase_if(special_, [&](const AddedToken& token) { return token.id >= rows_; });
    refuse_ambiguous_names(whole);
    for (const AddedToken& token : special_) {
      builder_.add_whole_token(0, token.content, static_cast<std::uint64_t>(token.id));
    }
    for (const std::int32_t id : builder_.unused_ids()) {
      add_special(BpeBuilder::unused_name(id), id);
      builder_.add_whole_token(0, special_.back().content, static_cast<std::uint64_t>(id));
    }
    // Hugging Face numbers those that follow the vocabulary in the order in which it reads them.
    std::sort(special_.begin(), special_.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    builder_.end_tokens();
    add_merges(whole);
    BpeVocabulary vocabulary = builder_.finish_unchecked();
    vocabulary.pattern = pattern_;
    vocabulary.normalizer = normalizer_;
    vocabulary.ignore_merges = true;
    vocabulary.whole_pieces = std::move(whole);
    vocabulary.added = std::move(special_);
    vocabulary.tokenizer_text = write_tokenizer_json(vocabulary);
    return vocabulary;
  }

  /// A special token before the last rank has its name in the vocabulary of tokenizer.json, where "é" is byte 0xE9.
  void refuse_ambiguous_names(const TokenIndex& whole) const {
    std::int32_t last = -1;
    for (const TokenIndex::Entry& entry : whole.entries()) last = std::max(last, entry.id);
    for (const AddedToken& token : special_) {
      if (token.id > last || ByteAlphabet().bytes_of(token.content).value_or(token.content) == token.content) continue;
      file_.fail_at(0, "its special token \"{}\" is written as a token of other bytes is in a tokenizer.json",
                    shown(token.content));
    }
  }

  /// By the rank of the token that is made, then by those of its parts. Looking up a token's cuts takes the square of
  /// its length.
  void add_merges(const TokenIndex& whole) {
    std::uint64_t squares = 0;
    for (const TokenIndex::Entry& entry : whole.entries()) squares += entry.bytes.size() * entry.bytes.size();
    if (squares > kMostSquares) file_.fail_at(0, "too many long tokens: the squares of their bytes sum to {}", squares);
    std::vector<const TokenIndex::Entry*> by_rank;
    for (const TokenIndex::Entry& entry : whole.entries()) by_rank.push_back(&entry);
    std::sort(by_rank.begin(), by_rank.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
    const ByteAlphabet alphabet;
    std::vector<std::pair<const TokenIndex::Entry*, const TokenIndex::Entry*>> cuts;
    for (const TokenIndex::Entry* const token : by_rank) {
      const std::string_view bytes = token->bytes;
      cuts.clear();
      for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
        const auto *const left = whole.find(bytes.substr(0, cut)), *const right = whole.find(bytes.substr(cut));
        if (left != nullptr && right != nullptr) cuts.emplace_back(left, right);
      }
      std::sort(cuts.begin(), cuts.end(), [](const auto& a, const auto& b) {
        return std::pair(a.first->id, a.second->id) < std::pair(b.first->id, b.second->id);
      });
      for (const auto& [left, right] : cuts) {
        builder_.add_merge(0, alphabet.written(left->bytes), alphabet.written(right->bytes));
      }
    }
  }

  NamedText file_;
  BpeBuilder builder_;
  std::int64_t rows_;
  SplitPattern pattern_ = SplitPattern::gpt2;
  std::vector<NormalizerStep> normalizer_;
  std::vector<AddedToken> special_;
};

}  // namespace

bool is_rank_file(const std::string& path) {
  const std::string name = file_part(path);
  if (name.ends_with(".tiktoken")) return true;
  const bool is_json = name.ends_with(".json");
  if ((!is_json && !name.ends_with(".model")) || !tokenizer_file_exists(path)) return false;
  if (is_json) return is_tekken(read_vocabulary_file(path).text);
  const RegularFile file(path, ErrorKind::data);
  std::string beginning(std::min<std::uint64_t>(file.bytes(), 256), '\0');
  file.read(0, beginning.data(), beginning.size());
  return is_rank_line(beginning);
}

BpeVocabulary read_rank_file(const std::string& path, std::int64_t rows) {
  return RankReader(path, rows).read();
}

}  // namespace megatron
