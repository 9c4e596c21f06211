#include "programs/train_tokenizer.h"

#include <chrono>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/system/file_lock.h"
#include "base/text/byte_text.h"
#include "data/preprocess/text_corpus.h"
#include "data/shards/shard_files.h"
#include "data/tokenizer/unigram_vocabulary.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "data/tokenizer_training/bpe_trainer.h"
#include "data/tokenizer_training/unigram_trainer.h"
#include "data/tokenizer_training/word_piece_trainer.h"

namespace megatron {

namespace {

class TrainTokenizer final : public PreprocessTool {
 public:
  TrainTokenizer() {
    option("type", &type_, "bpe|wordpiece|unigram (=bpe)", "byte-level BPE, BERT's WordPiece or T5's Unigram");
    flag("cased", &cased_, "wordpiece: keep case and accents");
    list("input", &inputs_.paths, "FILE...", "text to learn from, also gzip; a folder stands for all files in it");
    option("output", &output_, "FOLDER", "where vocab.json and merges.txt, vocab.txt or tokenizer.json go");
    option("vocab-size", &vocab_size_, "N (=32768)",
           "tokens, with the 256 bytes and <|endoftext|>, or [PAD] ... [MASK], or <pad> </s> <unk> and --extra-ids");
    option("extra-ids", &extra_ids_, "N (=0)", "unigram: sentinels <extra_id_0> ...; T5 has 100");
    option("least-count", &least_count_, "N (=2)", "how often a pair, or for unigram a substring, must occur");
    option("format", &inputs_.format, "jsonl|text", "by the extension if not given");
    option("json-key", &inputs_.json_key, "KEY (=text)", "the text's key in each JSON object");
    flag("skip-bad", &inputs_.skip_bad, "leave bad documents out");
    flag("overwrite", &overwrite_, "replace another vocabulary that is in this folder (an equal one always may be)");
  }
  std::string_view name() const override { return "train-tokenizer"; }
  std::string_view arguments() const override { return "--input FILE... --output FOLDER [--type TYPE]"; }
  std::string_view about() const override {
    return "Makes a vocabulary from text: byte-level BPE in the files of GPT-2's (--tokenizer gpt2 --vocab-file "
           "FOLDER/vocab.json), BERT's WordPiece (--tokenizer bert-uncased --vocab-file FOLDER/vocab.txt), or T5's "
           "Unigram (--tokenizer unigram --vocab-file FOLDER/tokenizer.json)";
  }
  std::string run() override {
    const auto start = std::chrono::steady_clock::now();
    TextCorpus corpus(inputs_);
    const Type& type = this->type();
    const std::string first_file = output_ + "/" + type.file;
    check_prefix(first_file, "--output");
    const TargetLock lock(first_file);
    std::string text = (this->*type.train)(corpus);
    text +=
        fmt::format(" in {:.1f} s", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (made_ < vocab_size_) {
      text += type_ == "unigram"
                  ? "\nno further piece makes the text more probable: more text would make more tokens"
                  : fmt::format("\nno further pair occurs {} times: more text would make more tokens", least_count_);
    }
    if (bad_ > 0) text += fmt::format("\n{} bad document{} left out (--skip-bad)", bad_, bad_ == 1 ? "" : "s");
    return text;
  }

 private:
  void check() const override {
    verify(!inputs_.paths.empty() && !output_.empty() && names_.empty(), ErrorKind::configuration,
           "train-tokenizer: give --input FILE... and --output FOLDER; see --help");
    verify(type_ == "wordpiece" || !cased_, ErrorKind::configuration,
           "--cased: {} keeps case anyway; it is for --type wordpiece", type_);
    verify(type_ == "unigram" || extra_ids_ == 0, ErrorKind::configuration,
           "--extra-ids {}: sentinels are made with --type unigram; for others, megatron_preprocess adds them",
           extra_ids_);
    verify(extra_ids_ >= 0 && extra_ids_ <= kMostExtraIds, ErrorKind::configuration,
           "--extra-ids {}: at least 0, at most {}", extra_ids_, kMostExtraIds);
    const Type& type = this->type();
    verify(vocab_size_ >= type.smallest + extra_ids_ && vocab_size_ <= kMost, ErrorKind::configuration,
           "--vocab-size {}: at least {}{}, at most {}", vocab_size_, type.smallest + extra_ids_, type.what, kMost);
    verify(least_count_ > 0, ErrorKind::configuration, "--least-count {}: at least 1", least_count_);
  }

  struct Type {
    const char *name, *file;
    std::int64_t smallest;
    const char* what;  ///< the smallest is
    std::string (TrainTokenizer::*train)(TextCorpus& corpus);
  };
  const Type& type() const {
    static constexpr Type kTypes[] = {
        {"bpe", kVocabFile, 258, " (the bytes, <|endoftext|> and one more)", &TrainTokenizer::train_bpe},
        {"wordpiece", kWordPieceFile, kSmallestWordPieceVocabulary, "", &TrainTokenizer::train_word_piece},
        {"unigram", kTokenizerFile, kSmallestUnigramVocabulary, " (with --extra-ids)", &TrainTokenizer::train_unigram}};
    for (const Type& row : kTypes) {
      if (type_ == row.name) return row;
    }
    fail(ErrorKind::configuration, "--type {}: choose one of: bpe wordpiece unigram", type_);
  }

  template <class Trainer>
  void read(TextCorpus& corpus, Trainer& trainer) {
    const std::vector<std::uint64_t> bytes = corpus.file_bytes();
    for (std::size_t file = 0; file < bytes.size(); ++file) {
      bad_ += corpus.visit({file, 0, bytes[file]}, [&](std::string_view text) { trainer.add_text(text); });
    }
  }
  void require_words(std::uint64_t words) const {
    verify(words > 0, ErrorKind::data, "{}{}: no text was found to learn from", inputs_.paths.front(),
           inputs_.paths.size() > 1 ? " and the other inputs" : "");
  }

  std::string train_bpe(TextCorpus& corpus) {
    BpeTrainer trainer;
    read(corpus, trainer);
    const std::uint64_t words = trainer.distinct_pieces(), bytes = trainer.bytes();
    require_words(words);
    const BpeVocabulary vocabulary = trainer.train(vocab_size_, least_count_);
    made_ = static_cast<std::int64_t>(vocabulary.tokens.size());
    write({{kVocabFile, vocabulary.vocab_text}, {kMergeFile, vocabulary.merge_text}});
    return fmt::format("{}: {} tokens, {} merges from {} of text with {} different words", output_, made_,
                       vocabulary.merges.size(), format_bytes(static_cast<double>(bytes)), words);
  }

  std::string train_word_piece(TextCorpus& corpus) {
    WordPieceTrainer trainer(!cased_);
    read(corpus, trainer);
    const std::uint64_t words = trainer.distinct_words(), bytes = trainer.bytes();
    require_words(words);
    std::string lines;
    for (const std::string& token : trainer.train(vocab_size_, least_count_)) {
      lines += token + "\n";
      ++made_;
    }
    write({{kWordPieceFile, lines}});
    return fmt::format("{}: {} tokens ({}) from {} of text with {} different words", output_, made_,
                       cased_ ? "for bert-cased" : "for bert-uncased", format_bytes(static_cast<double>(bytes)), words);
  }

  std::string train_unigram(TextCorpus& corpus) {
    constexpr std::int64_t kSpecialTokens = 3;
    UnigramTrainer trainer;
    read(corpus, trainer);
    const std::uint64_t words = trainer.distinct_words(), bytes = trainer.bytes();
    require_words(words);
    const auto pieces = trainer.train(vocab_size_ - kSpecialTokens - extra_ids_, least_count_);
    made_ = static_cast<std::int64_t>(pieces.size()) + kSpecialTokens + extra_ids_;
    const std::string json = write_unigram_json(pieces, extra_ids_);
    write({{kTokenizerFile, json}});
    return fmt::format("{}: {} tokens ({} sentinels) from {} of text with {} different words", output_, made_,
                       extra_ids_, format_bytes(static_cast<double>(bytes)), words);
  }

  void write(const std::vector<TokenizerFile>& contents) const {
    Publication files;
    std::vector<std::string> names;
    for (const TokenizerFile& file : contents) {
      names.push_back(output_ + "/" + file.name);
      files.write(names.back(), file.contents);
    }
    for (const std::string& name : names) {
      verify(overwrite_ || replaces_nothing_else(temporary_name(name), name), ErrorKind::configuration,
             "{} is there already, of another vocabulary; add --overwrite to replace it, or choose another folder",
             name);
    }
    files.publish();
    files.commit();
    remove_temporaries(names);
  }

  static constexpr auto kMost = static_cast<std::int64_t>(kMostTokens);
  TextInputs inputs_;
  std::string output_, type_ = "bpe";
  std::int64_t vocab_size_ = 32768, least_count_ = 2, extra_ids_ = 0;
  bool overwrite_ = false, cased_ = false;
  std::int64_t made_ = 0;  // tokens
  std::uint64_t bad_ = 0;  // documents
};

}  // namespace

std::unique_ptr<PreprocessTool> make_train_tokenizer() {
  return std::make_unique<TrainTokenizer>();
}

}  // namespace megatron
