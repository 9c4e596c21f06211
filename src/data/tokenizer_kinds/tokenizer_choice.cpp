#include "data/tokenizer_kinds/tokenizer_choice.h"

#include <filesystem>
#include <utility>

#include "base/core/error.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/special_names.h"
#include "data/tokenizer/vocabulary_file.h"
#include "data/tokenizer_kinds/byte_tokenizer.h"
#include "data/tokenizer_kinds/gpt2_tokenizer.h"
#include "data/tokenizer_kinds/rank_file.h"
#include "data/tokenizer_kinds/sentence_piece_tokenizer.h"
#include "data/tokenizer_kinds/unigram_tokenizer.h"
#include "data/tokenizer_kinds/word_piece_builder.h"
#include "data/tokenizer_kinds/word_piece_tokenizer.h"

namespace megatron {

namespace {

bool is_bert(std::string_view name) {
  return name == "bert-uncased" || name == "bert-cased";
}
bool has_sentinels(std::string_view name) {
  return is_bert(name) || name == "sentencepiece" || name == "unigram";
}

}  // namespace

bool tokenizer_has_files(std::string_view name) {
  return name == "gpt2" || has_sentinels(name);
}

std::string kept_file_names(std::string_view name, const std::string& before) {
  if (is_bert(name)) return fmt::format("{0}{1} (or {0}{2})", before, kWordPieceFile, kTokenizerFile);
  if (name == "sentencepiece") return before + kSentencePieceFile;
  if (name == "unigram") return before + kTokenizerFile;
  return fmt::format("{0}{1} with {0}{2} (or {0}{3})", before, kVocabFile, kMergeFile, kTokenizerFile);
}

namespace {

/// FOLDER/vocab.json -> FOLDER/merges.txt, books.vocab.json -> books.merges.txt.
std::string default_merge_file(const std::string& vocab_file) {
  const std::string merge_file =
      vocab_file.substr(0, vocab_file.size() - std::string_view(kVocabFile).size()) + kMergeFile;
  verify(tokenizer_file_exists(merge_file), ErrorKind::configuration,
         "--vocab-file {} needs a file of merges, and {} does not exist; give --merge-file, or one tokenizer.json as "
         "--vocab-file",
         vocab_file, merge_file);
  return merge_file;
}

/// Settings of Hugging Face's files next to a vocabulary that has its usual name.
FolderSettings settings_of(const TokenizerChoice& choice) {
  const std::string name = file_part(choice.vocab_file);
  if (choice.alone || (name != kTokenizerFile && name != kVocabFile && name != kWordPieceFile)) return {};
  return folder_settings(folder_part(choice.vocab_file));
}

/// Classes that find words in vocab.txt or a .model by rules of their own: MeCab's words, Jieba's, other spaces, ids
/// that are not those of the pieces.
constexpr std::string_view kOwnRules[] = {
    "BertJapaneseTokenizer", "RoCBertTokenizer",        "GPTSw3Tokenizer",  "CpmTokenizer",     "CamembertTokenizer",
    "XLMRobertaTokenizer",   "MBartTokenizer",          "MBart50Tokenizer", "NllbTokenizer",    "XGLMTokenizer",
    "PegasusTokenizer",      "BigBirdPegasusTokenizer", "PLBartTokenizer",  "BarthezTokenizer", "ErnieMTokenizer",
    "AlbertTokenizer",       "XLNetTokenizer"};

void refuse_own_rules(const TokenizerChoice& choice) {
  const std::string& file = choice.vocab_file;
  if (choice.alone || (!file.ends_with(".model") && file_part(file) != kWordPieceFile)) return;
  const std::string base = tokenizer_class_of(folder_part(file));
  verify(std::find(std::begin(kOwnRules), std::end(kOwnRules), base) == std::end(kOwnRules), ErrorKind::data,
         "{}: its class {} finds words, or numbers them, by rules that this file does not have; make ids with the "
         "model's own library and bring them with `megatron_preprocess import`",
         file, shown(base));
}

std::unique_ptr<Tokenizer> make_bert_tokenizer(const TokenizerChoice& choice) {
  verify(!choice.vocab_file.empty() && choice.merge_file.empty(), ErrorKind::configuration,
         "the {} tokenizer needs --vocab-file, a vocab.txt or a tokenizer.json (`megatron_preprocess train-tokenizer "
         "--type wordpiece` makes a vocab.txt), and no --merge-file",
         choice.name);
  const bool lower_case = choice.name == "bert-uncased", json = choice.vocab_file.ends_with(".json");
  const FolderSettings folder = settings_of(choice);
  WordPieceVocabulary vocabulary =
      json ? read_word_piece_json(choice.vocab_file, choice.extra_ids, choice.rows, folder)
           : read_word_piece_text(choice.vocab_file, lower_case, choice.extra_ids, choice.rows, folder);
  verify(vocabulary.lower_case == lower_case, ErrorKind::configuration, "{} has lowercase = {}; choose --tokenizer {}",
         choice.vocab_file, vocabulary.lower_case, lower_case ? "bert-cased" : "bert-uncased");
  return std::make_unique<WordPieceTokenizer>(std::move(vocabulary));
}

std::unique_ptr<Tokenizer> make_sentence_piece_tokenizer(const TokenizerChoice& choice) {
  verify(!choice.vocab_file.empty() && choice.merge_file.empty(), ErrorKind::configuration,
         "the sentencepiece tokenizer needs --vocab-file, a .model file of SentencePiece, and no --merge-file");
  verify(!is_rank_file(choice.vocab_file), ErrorKind::configuration,
         "{} is a file of ranks, as tiktoken has them; choose --tokenizer gpt2", choice.vocab_file);
  verify(!choice.vocab_file.ends_with(".json"), ErrorKind::configuration,
         "--tokenizer sentencepiece takes a .model file; for {} choose --tokenizer unigram", choice.vocab_file);
  return std::make_unique<SentencePieceTokenizer>(read_sentence_piece_model(choice));
}

std::unique_ptr<Tokenizer> make_unigram_tokenizer(const TokenizerChoice& choice) {
  verify(!choice.vocab_file.empty() && choice.merge_file.empty(), ErrorKind::configuration,
         "the unigram tokenizer needs --vocab-file, a tokenizer.json (`megatron_preprocess train-tokenizer --type "
         "unigram` makes one), and no --merge-file");
  return std::make_unique<UnigramTokenizer>(
      read_unigram_json(choice.vocab_file, choice.extra_ids, choice.rows, settings_of(choice)));
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerChoice& choice) {
  verify(choice.extra_ids >= 0 && choice.extra_ids <= kMostExtraIds, ErrorKind::configuration,
         "--extra-ids {}: at least 0, at most {}", choice.extra_ids, kMostExtraIds);
  verify(choice.extra_ids == 0 || has_sentinels(choice.name), ErrorKind::configuration,
         "--extra-ids: the {} tokenizer has no sentinels; choose bert-uncased, bert-cased, sentencepiece or unigram",
         choice.name);
  refuse_own_rules(choice);
  if (is_bert(choice.name)) return make_bert_tokenizer(choice);
  if (choice.name == "sentencepiece") return make_sentence_piece_tokenizer(choice);
  if (choice.name == "unigram") return make_unigram_tokenizer(choice);
  const bool vocab = !choice.vocab_file.empty(), merges = !choice.merge_file.empty();
  if (choice.name == "byte") {
    verify(!vocab && !merges, ErrorKind::configuration,
           "the byte tokenizer has no vocabulary: leave --vocab-file and --merge-file out, or choose --tokenizer gpt2");
    return std::make_unique<ByteTokenizer>();
  }
  if (choice.name == "gpt2") {
    verify(vocab, ErrorKind::configuration,
           "the gpt2 tokenizer needs --vocab-file: a vocab.json with its merges.txt (scripts/download_vocab.sh fetches "
           "GPT-2's, `megatron_preprocess train-tokenizer` makes others), or a tokenizer.json");
    const bool paired = !merges && choice.vocab_file.ends_with(kVocabFile);
    return std::make_unique<Gpt2Tokenizer>(choice.vocab_file,
                                           paired ? default_merge_file(choice.vocab_file) : choice.merge_file,
                                           choice.rows, settings_of(choice));
  }
  fail(ErrorKind::configuration,
       "there is no tokenizer \"{}\"; choose one of: byte gpt2 bert-uncased bert-cased sentencepiece unigram",
       choice.name);
}

namespace {

/// The choices of files that exist after `before`.
std::vector<TokenizerChoice> kept_tokenizers(const std::string& name, const std::string& before) {
  std::vector<TokenizerChoice> choices;
  const auto add = [&](const char* file, const char* merges = nullptr) {
    if (!tokenizer_file_exists(before + file) || (merges != nullptr && !tokenizer_file_exists(before + merges))) return;
    choices.push_back({.name = name,
                       .vocab_file = before + file,
                       .merge_file = merges == nullptr ? "" : before + merges,
                       .alone = true});
  };
  if (name == "sentencepiece") {
    add(kSentencePieceFile);
    return choices;
  }
  add(kTokenizerFile);
  if (is_bert(name)) add(kWordPieceFile);
  if (name == "gpt2") add(kVocabFile, kMergeFile);
  return choices;
}

}  // namespace

KeptTokenizer find_kept_tokenizer(const std::string& name, std::uint64_t hash, const std::string& before) {
  KeptTokenizer kept;
  for (const TokenizerChoice& choice : kept_tokenizers(name, before)) {
    std::string why;
    try {
      std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(choice);
      if (tokenizer->hash() == hash) return {std::move(tokenizer), ""};
      why = fmt::format("{}{}{}: another vocabulary (hash {:016x})", choice.vocab_file,
                        choice.merge_file.empty() ? "" : " and ", choice.merge_file, tokenizer->hash());
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::filesystem) throw;  // it may be the right one
      why = error.what();
    }
    kept.others += (kept.others.empty() ? "" : "; ") + why;
  }
  return kept;
}

}  // namespace megatron
