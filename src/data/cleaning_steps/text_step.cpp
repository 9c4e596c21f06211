// text: repairs and judges the text of documents. Its parts are played in the order of TextStep::apply(); keys and
// rules come from the tables of data/cleaning.
#include <algorithm>
#include <deque>
#include <utility>

#include "base/core/error.h"
#include "data/cleaning/encoding_repair.h"
#include "data/cleaning/language.h"
#include "data/cleaning/quality_rules.h"
#include "data/cleaning/white_space.h"
#include "data/cleaning_steps/step.h"
#include "data/preprocess/json_text.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

namespace {

constexpr KeyRow kOwnKeys[] = {
    {"repair", KeyKind::flag, "true", "true|false", "repair damaged encodings, by the keys repair_NAME"},
    {"white_space", KeyKind::text, "tidy", "tidy|megatron|none",
     "tidy: runs of spaces become one, and several blank lines one; megatron: as its general_cleaning", "none"},
    {"languages", KeyKind::text, "", "L,...",
     "documents of other languages are removed, such as en or en,de; default: all are kept", "en"},
    {"min_language_share", KeyKind::number, "0", "F", "least share of that language in the text, from 0 to 1"},
    {"gopher", KeyKind::flag, "true", "true|false", "judge by Gopher's rules of quality and repetition, the keys below",
     "false"},
    {"max_characters", KeyKind::threshold, "off", "N|off", "most characters"},
    {"max_tokens", KeyKind::threshold, "off", "N|off", "most tokens"},
    {"tokenizer", KeyKind::text, "byte", "NAME", "whose tokens are counted, by the names of megatron_preprocess"},
    {"vocab_file", KeyKind::file, "", "FILE", "its vocabulary"},
    {"merge_file", KeyKind::file, "", "FILE", "gpt2: its merges; default: merges.txt next to vocab.json"},
};

std::string repair_key(const RepairRow& row) {
  return "repair_" + std::string(row.name);
}

/// The step's own keys, one for each repair, and one for each rule of quality.
std::span<const KeyRow> text_keys() {
  static std::deque<std::string> texts;  // that the rows are views of
  static const std::vector<KeyRow> keys = [] {
    std::vector<KeyRow> all(std::begin(kOwnKeys), std::end(kOwnKeys));
    for (const RepairRow& row : repair_rows()) {
      all.push_back(
          {texts.emplace_back(repair_key(row)), KeyKind::flag, row.on ? "true" : "false", "true|false", row.help});
    }
    for (const QualityRule& rule : quality_rules()) {
      const std::string& threshold = texts.emplace_back(fmt::format("{}", rule.threshold));
      const std::string& help =
          texts.emplace_back(fmt::format("{} {}; on: {}", rule.least ? "least" : "most", rule.help, threshold));
      all.push_back({rule.name, KeyKind::threshold, rule.on ? std::string_view(threshold) : "off", "N|on|off", help,
                     rule.name == "min_tokens" ? std::string_view(threshold) : std::string_view()});
    }
    return all;
  }();
  return keys;
}

class TokenCounter {
 public:
  explicit TokenCounter(const StepKeys& keys)
      : tokenizer_(make_tokenizer({.name = keys.text("tokenizer"),
                                   .vocab_file = keys.text("vocab_file"),
                                   .merge_file = keys.text("merge_file")})),
        encoder_(tokenizer_->make_encoder(SpecialTokens::text)) {}

  std::size_t count(std::string_view text) {
    ids_.clear();
    try {
      encoder_->encode(text, ids_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      throw BadDocument{error.what()};
    }
    return ids_.size();
  }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<std::int32_t> ids_;
};

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

EncodingRepair::Choice choice_of(const StepKeys& keys) {
  EncodingRepair::Choice choice{};
  for (const RepairRow& row : repair_rows()) {
    choice[static_cast<std::size_t>(row.repair)] = keys.flag("repair") && keys.flag(repair_key(row));
  }
  return choice;
}

class TextStep final : public Step {
 public:
  TextStep(const StepKeys& keys, const StepSettings& settings)
      : text_key_(settings.text_key),
        repairs_(keys.flag("repair")),
        white_space_(keys.text("white_space")),
        languages_(words_of(keys.text("languages"))),
        least_share_(keys.number("min_language_share")),
        most_characters_(keys.threshold("max_characters", 0)),
        most_tokens_(keys.threshold("max_tokens", 0)),
        repair_(choice_of(keys)),
        tokens_(keys) {
    verify(white_space_ == "tidy" || white_space_ == "megatron" || white_space_ == "none", ErrorKind::configuration,
           "white_space '{}': choose one of: tidy megatron none", white_space_);
    for (const QualityRule& rule : quality_rules()) {
      const bool asked = rule.group == RuleGroup::megatron || keys.flag("gopher");
      thresholds_.push_back(asked ? keys.threshold(rule.name, rule.threshold) : std::nullopt);
      measures_ = measures_ || thresholds_.back();
      guesses_ = guesses_ || (rule.name == "min_foreign_characters" && thresholds_.back());
    }
    measures_ = measures_ || most_characters_;
    for (const std::string& language : languages_) {
      verify(is_language(language), ErrorKind::configuration,
             "languages: '{}' is no language's code; give codes such as en, de, zh or zh-Hant", language);
    }
    guesses_ = guesses_ || !languages_.empty();
    if (guesses_) guess_language("");  // an error if there is no way to guess
  }

  std::vector<MemberName> members() const override { return {{text_key_}}; }
  std::vector<Rule> rules() const override {
    std::vector<Rule> rules;
    for (const RepairRow& row : repair_rows()) rules.push_back({repair_key(row), false});
    rules.push_back({"white_space", false});
    for (const char* name : {"languages", "max_characters", "max_tokens"}) rules.push_back({name});
    for (const QualityRule& rule : quality_rules()) rules.push_back({std::string(rule.name)});
    return rules;
  }
  bool apply(Document& document, RuleListener& listener) override {
    const std::string_view before = document.value(0);
    const std::string_view after = tidied(repaired(before, listener), listener);
    if (const std::optional<std::size_t> rule = broken_rule(after)) {
      listener.met(*rule);
      return false;
    }
    if (after.data() != before.data() || after.size() != before.size()) document.replace(0, std::string(after));
    return true;
  }

 private:
  static constexpr std::size_t kWhiteSpace = kRepairs, kLanguages = kRepairs + 1, kMostCharacters = kRepairs + 2,
                               kMostTokens = kRepairs + 3, kFirstQuality = kRepairs + 4;  // places in rules()

  std::string_view repaired(std::string_view text, RuleListener& listener) {
    if (!repairs_) return text;
    const auto counts = repair_.changed_lines();
    const std::string_view result = repair_.repaired(text, repaired_);
    for (std::size_t i = 0; i < kRepairs; ++i) {
      if (repair_.changed_lines()[i] > counts[i]) listener.met(i);
    }
    return result;
  }

  std::string_view tidied(std::string_view text, RuleListener& listener) {
    if (white_space_ == "none") return text;
    std::string_view result;
    if (white_space_ == "tidy") {
      result = tidied_white_space(text, tidied_);
    } else {
      tidied_ = megatron_white_space(text);
      result = tidied_;
    }
    if (result == text) return text;
    listener.met(kWhiteSpace);
    return result;
  }

  /// The first rule that removes the text.
  std::optional<std::size_t> broken_rule(std::string_view text) {
    LanguageGuess guess;
    if (guesses_) guess = guess_language(text);
    const auto is_guessed = [&](const std::string& language) { return language == guess.code; };
    if (!languages_.empty() &&
        (std::none_of(languages_.begin(), languages_.end(), is_guessed) || guess.share < least_share_)) {
      return kLanguages;
    }
    if (measures_) {
      DocumentMeasures measures = meter_.measure(text);
      if (guesses_) measures.language = guess.code;
      measures.tokens = [&] { return tokens_.count(text); };
      if (most_characters_ && static_cast<double>(measures.characters) > *most_characters_) return kMostCharacters;
      if (const std::optional<Violation> violation = first_violation(measures, thresholds_)) {
        return kFirstQuality + static_cast<std::size_t>(violation->rule - quality_rules().data());
      }
    }
    if (most_tokens_ && static_cast<double>(tokens_.count(text)) > *most_tokens_) return kMostTokens;
    return std::nullopt;
  }

  std::string text_key_;
  bool repairs_, measures_ = false, guesses_ = false;
  std::string white_space_;
  std::vector<std::string> languages_;
  double least_share_;
  std::optional<double> most_characters_, most_tokens_;
  EncodingRepair repair_;
  TokenCounter tokens_;
  DocumentMeter meter_;
  std::vector<std::optional<double>> thresholds_;
  std::string repaired_, tidied_;
};

}  // namespace

StepRow text_step() {
  return {"text", "repairs the text of documents, and removes documents by what it is like", text_keys(),
          InputKind::documents,
          [](const StepKeys& keys, const StepSettings& settings) -> std::unique_ptr<Step> {
            return std::make_unique<TextStep>(keys, settings);
          },
          // Words, lines and the table of their hashes, or copies of four bytes a character.
          [](const StepKeys&, std::uint64_t longest) { return 48 * longest; }};
}

}  // namespace megatron
