#include "data/tokenizer_kinds/hugging_face_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/core/error.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/vocabulary_file.h"
#include "data/tokenizer_kinds/rank_file.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

namespace {

using Json = nlohmann::json;

/// null where there is no such file, or something else in its place, which its reader will say.
Json json_of(const std::string& path) {
  if (!tokenizer_file_exists(path)) return nullptr;
  try {
    const Json read = Json::parse(read_vocabulary_file(path).text, nullptr, /*allow_exceptions=*/false);
    return read.is_discarded() ? Json() : read;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    return nullptr;
  }
}

Json at(const Json& file, const char* pointer) {
  const Json::json_pointer place(pointer);
  return file.is_object() && file.contains(place) ? file.at(place) : Json();
}

std::string bert_by_case(const std::string& folder) {
  return at(read_folder_json(folder + kTokenizerConfigFile), "/do_lower_case") == false ? "bert-cased" : "bert-uncased";
}

/// How many sentinels transformers adds to a model of SentencePiece.
std::int64_t extra_ids_of(const std::string& folder) {
  constexpr std::int64_t kOfT5 = 100;
  const Json extra_ids = at(read_folder_json(folder + kTokenizerConfigFile), "/extra_ids");
  if (extra_ids.is_number_integer()) return extra_ids.get<std::int64_t>();
  const std::string name = tokenizer_class_of(folder);
  const Json model = name.empty() ? at(json_of(folder + "config.json"), "/model_type") : Json();
  return name == "T5Tokenizer" || model == "t5" || model == "mt5" ? kOfT5 : 0;
}

/// The name of the tokenizer that a tokenizer.json is for, by its model; what is not JSON is told by its reader.
std::string name_of_json(const std::string& path) {
  const Json file = json_of(path);
  if (at(file, "/model/type") == "Unigram") return "unigram";
  if (at(file, "/model/type") != "WordPiece") return "gpt2";
  return at(file, "/normalizer/lowercase") == false ? "bert-cased" : "bert-uncased";
}

/// Types that a tokenizer.json may name for its parts, so that another file of the folder can be its equal.
struct SameAs {
  const char *model, *normalizer, *pre_tokenizer;
};

bool contradicts(const Json& whole, const SameAs& same) {
  const auto other = [&](const char* type, const char* expected) {
    const Json found = at(whole, type);
    return found.is_string() && found != expected;
  };
  return other("/model/type", same.model) || other("/normalizer/type", same.normalizer) ||
         other("/pre_tokenizer/type", same.pre_tokenizer);
}

/// Classes whose vocab.json and merges.txt are read by GPT-2's rules.
constexpr std::string_view kGpt2Classes[] = {"GPT2Tokenizer",    "RobertaTokenizer",    "BartTokenizer",
                                             "LEDTokenizer",     "LongformerTokenizer", "CodeGenTokenizer",
                                             "DebertaTokenizer", "BlenderbotTokenizer"};

void require_gpt2_class(const std::string& folder) {
  const std::string base = tokenizer_class_of(folder);
  if (base.empty()) return;
  verify(std::find(std::begin(kGpt2Classes), std::end(kGpt2Classes), base) != std::end(kGpt2Classes), ErrorKind::data,
         "{}{}: its class {} finds words by other rules than GPT-2's, which vocab.json does not say; the model's "
         "tokenizer.json is needed",
         folder, kVocabFile, shown(base));
}

/// Files that a folder has. Without `same_as` they say all of what is done to a text.
struct Candidate {
  std::string vocab_file, merge_file = {};
  std::optional<SameAs> same_as = {};
};

std::vector<Candidate> candidates_of(const std::string& folder) {
  const auto exists = [&](const char* name) { return tokenizer_file_exists(folder + name); };
  std::vector<Candidate> found;
  if (exists(kTokenizerFile)) found.push_back({folder + kTokenizerFile});
  if (exists(kVocabFile) && exists(kMergeFile)) {
    found.push_back({folder + kVocabFile, folder + kMergeFile, SameAs{"BPE", "", "ByteLevel"}});
  }
  if (exists(kWordPieceFile)) {
    found.push_back({folder + kWordPieceFile, "", SameAs{"WordPiece", "BertNormalizer", "BertPreTokenizer"}});
  }
  for (const char* model : {kSentencePieceFile, "spiece.model", "qwen.tiktoken", "tekken.json"}) {
    if (exists(model)) found.push_back({folder + model});
  }
  return found;
}

/// A special token by its name, as an entry or an object of tokenizer_config.json.
std::optional<std::int32_t> id_of(const Tokenizer& tokenizer, const Json& named) {
  const Json name = named.is_object() ? named.value("content", Json()) : named;
  if (!name.is_string()) return std::nullopt;
  if (name == tokenizer.eod_text()) return tokenizer.eod_id();
  std::vector<std::int32_t> ids;
  tokenizer.make_encoder(SpecialTokens::tokens)->encode(name.get<std::string>(), ids);
  return ids.size() == 1 ? std::optional(ids.front()) : std::nullopt;
}

enum class TemplatePlace { first, last };

/// The token that a post-processor puts in front of a text, or after it.
std::optional<std::int32_t> token_of_template(const Json& post, TemplatePlace place) {
  const Json steps = at(post, "/type") == "Sequence" ? at(post, "/processors") : Json::array({post});
  for (const Json& step : steps) {
    const Json single = at(step, "/single");
    if (!single.is_array() || single.empty()) continue;
    const Json name = at(place == TemplatePlace::first ? single.front() : single.back(), "/SpecialToken/id");
    if (!name.is_string()) continue;
    const Json special = at(step, "/special_tokens");
    const Json ids = special.is_object() ? at(special.value(name.get<std::string>(), Json()), "/ids") : Json();
    if (ids.is_array() && !ids.empty() && ids.front().is_number_integer()) return ids.front().get<std::int32_t>();
  }
  return std::nullopt;
}

/// Classes of transformers that begin texts, whatever tokenizer.json says.
constexpr std::string_view kBeginningClasses[] = {"LlamaTokenizer",     "LlamaTokenizerFast", "CodeLlamaTokenizer",
                                                  "GemmaTokenizerFast", "GemmaTokenizer",     "CodeLlamaTokenizerFast"};

}  // namespace

std::optional<BeginToken> begin_token_of_folder(const std::string& folder, const Tokenizer& tokenizer, bool usual) {
  const Json config = json_of(folder + kTokenizerConfigFile), whole = json_of(folder + kTokenizerFile);
  const std::optional<std::int32_t> put = token_of_template(at(whole, "/post_processor"), TemplatePlace::first);
  std::optional<std::int32_t> id = id_of(tokenizer, at(config, "/bos_token"));
  if (!id) id = put;
  const SpecialIds special = tokenizer.special_ids();
  if (!id && special.bos != special.pad) id = special.bos;
  if (!id || *id < 0 || *id >= tokenizer.vocab_size()) return std::nullopt;
  const Json told = at(config, "/add_bos_token"), name = at(config, "/tokenizer_class");
  if (told.is_boolean()) return BeginToken{*id, told.get<bool>()};
  if (name.is_string() && std::find(std::begin(kBeginningClasses), std::end(kBeginningClasses),
                                    name.get<std::string>()) != std::end(kBeginningClasses)) {
    return BeginToken{*id, true};
  }
  return BeginToken{*id, whole.is_null() ? usual && name.is_null() : put.has_value()};
}

SurroundingTokens surrounding_tokens(const std::string& path, const Tokenizer& tokenizer) {
  const auto known = [&](std::int64_t id) {
    return id >= 0 && id < tokenizer.vocab_size() ? std::optional(static_cast<std::int32_t>(id)) : std::nullopt;
  };
  const Json whole = json_of(path);
  if (whole.is_null()) {
    const SpecialIds special = tokenizer.special_ids();
    if (special.cls >= 0 && special.sep >= 0) return {known(special.cls), known(special.sep)};
    return {std::nullopt, known(special.eos)};
  }
  const Json post = at(whole, "/post_processor");
  const Json first = at(post, "/cls/1"), last = at(post, "/sep/1");  // as BERT's and RoBERTa's processors have them
  if (first.is_number_integer() && last.is_number_integer()) {
    return {known(first.get<std::int64_t>()), known(last.get<std::int64_t>())};
  }
  const auto put = [&](TemplatePlace place) { return known(token_of_template(post, place).value_or(-1)); };
  return {put(TemplatePlace::first), put(TemplatePlace::last)};
}

FolderTokenizer hugging_face_tokenizer(const std::string& folder, std::int64_t rows) {
  FolderTokenizer made;
  const Json whole = json_of(folder + kTokenizerFile);
  for (const Candidate& candidate : candidates_of(folder)) {
    if (candidate.same_as && contradicts(whole, *candidate.same_as)) continue;
    try {
      TokenizerChoice choice = choice_of_file(candidate.vocab_file, candidate.merge_file);
      if (!choice.merge_file.empty()) require_gpt2_class(folder);
      made.tokenizer = make_tokenizer(choice);
      if (const std::int64_t all = made.tokenizer->vocab_size(); rows > 0 && all > rows) {
        choice.rows = rows;
        made.tokenizer = make_tokenizer(choice);
        made.left_out = all - made.tokenizer->vocab_size();
      }
      made.file = choice.vocab_file;
      return made;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::filesystem) throw;
      made.refused += (made.refused.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  return made;
}

TokenizerChoice choice_of_file(const std::string& vocab_file, const std::string& merge_file) {
  const std::string folder = folder_part(vocab_file);
  if (!merge_file.empty() || vocab_file.ends_with(kVocabFile)) return {"gpt2", vocab_file, merge_file};
  if (is_rank_file(vocab_file)) return {"gpt2", vocab_file, ""};
  if (vocab_file.ends_with(".model")) return {"sentencepiece", vocab_file, "", extra_ids_of(folder)};
  if (vocab_file.ends_with(".txt")) return {bert_by_case(folder), vocab_file, ""};
  if (vocab_file.ends_with(".json")) return {name_of_json(vocab_file), vocab_file, ""};
  fail(ErrorKind::configuration,
       "--vocab-file {}: its name does not tell the kind; a tokenizer.json, vocab.json, vocab.txt, .model or .tiktoken "
       "file is right",
       vocab_file);
}

}  // namespace megatron
