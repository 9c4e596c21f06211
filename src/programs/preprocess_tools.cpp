#include "programs/preprocess_tools.h"

#include <chrono>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "config/suggestions.h"
#include "formats/conversion.h"
#include "preprocess/sample_corpus.h"
#include "preprocess/text_corpus.h"
#include "programs/program.h"
#include "system/durable_file.h"
#include "system/file_lock.h"
#include "text/byte_text.h"
#include "tokenizer/bpe_trainer.h"

namespace megatron {

namespace {

namespace po = boost::program_options;

std::string plural(std::uint64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

class SampleCorpus final : public PreprocessTool {
 public:
  SampleCorpus() {
    option("output", &output_, "FILE", "JSON lines to write");
    option("megabytes", &megabytes_, "N (=8)", "size of the corpus");
    option("seed", &seed_, "S (=1)", "another seed, other stories");
  }
  std::string_view name() const override { return "sample-corpus"; }
  std::string_view arguments() const override { return "--output FILE.jsonl [--megabytes N] [--seed S]"; }
  std::string_view about() const override {
    return "Writes children's stories out of a small grammar, to try things on.";
  }
  std::string run() override {
    const SampleCorpusSummary summary =
        write_sample_corpus(output_, static_cast<std::uint64_t>(megabytes_ * 1e6), seed_);
    return fmt::format("{}: {} stories, {}", output_, summary.stories,
                       format_bytes(static_cast<double>(summary.bytes)));
  }

 private:
  void check() const override {
    verify(!output_.empty() && names_.empty(), ErrorKind::configuration,
           "sample-corpus: give --output FILE; see --help");
    verify(megabytes_ > 0 && megabytes_ <= 1e6, ErrorKind::configuration, "--megabytes {}: more than 0, at most 1e6",
           megabytes_);
  }

  std::string output_;
  double megabytes_ = 8;
  std::uint64_t seed_ = 1;
};

class Import final : public PreprocessTool {
 public:
  Import() {
    option("tokenizer", &tokenizer_.name, "NAME", "whose tokens they are: byte or gpt2; or, without its files,");
    option("vocab-size", &vocab_size_, "N", "the number of ids,");
    option("eod-id", &eod_id_, "ID", "and the one that ends documents");
    option("vocab-file", &tokenizer_.vocab_file, "FILE", "gpt2: vocab.json, or a tokenizer.json alone");
    option("merge-file", &tokenizer_.merge_file, "FILE", "gpt2; default: merges.txt next to vocab.json");
    option(
        "documents", &documents_, "MODE (=exact)",
        "exact: each sequence is a document, and it is an error if Megatron's are not; joined: the sequences of each "
        "document together; sequences: each sequence, whatever the documents are");
    flag("skip-empty", &job_.skip_empty, "leave out documents without tokens, which shards do not hold");
    option("shard-bytes", &job_.shard_bytes, "N (=268435456)", "bytes of SOURCE.bin a shard");
    flag("overwrite", &job_.overwrite, kOverwriteHelp);
    tokenizer_.name.clear();
  }
  std::string_view name() const override { return "import"; }
  std::string_view arguments() const override { return "SOURCE TARGET --tokenizer NAME | --vocab-size N --eod-id ID"; }
  std::string_view about() const override {
    return "Turns Megatron-LM's SOURCE.idx and SOURCE.bin (mmap; also the older TNTIDX) into shards TARGET-00000.h5 "
           "...";
  }
  std::string run() override {
    job_.source = names_[0];
    job_.target = names_[1];
    job_.documents = mode();
    job_.vocabulary = {"ids", 0, vocab_size_, eod_id_};
    if (!tokenizer_.name.empty()) {
      const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(tokenizer_);
      job_.vocabulary = vocabulary_of(*tokenizer);
      job_.files = vocabulary_files_of(*tokenizer);
    }
    const ConversionSummary done = import_indexed(job_);
    std::string text =
        fmt::format("{}: {}, {} ({}) in {}", job_.target, plural(done.documents, "document"),
                    plural(done.tokens, "token"), describe(job_.vocabulary), plural(done.shards, "shard"));
    if (done.empty > 0) text += fmt::format("\n{} left out", plural(done.empty, "empty document"));
    if (done.type != indexed_type_for(job_.vocabulary.size)) {
      text += fmt::format("\n{0} to export the same bytes again: --dtype {0}", name_of(done.type));
    }
    return text;
  }

 private:
  ImportedDocuments mode() const {
    if (documents_ == "exact") return ImportedDocuments::exact;
    if (documents_ == "joined") return ImportedDocuments::joined;
    verify(documents_ == "sequences", ErrorKind::configuration, "--documents {}: choose one of: exact joined sequences",
           documents_);
    return ImportedDocuments::sequences;
  }
  void check() const override {
    if (names_.size() != 2) wrong_usage();
    mode();
    const bool sized = vocab_size_ > 0;
    verify(
        sized == tokenizer_.name.empty(), ErrorKind::configuration,
        "import: the files do not say whose tokens they are: give --tokenizer (and its files), or --vocab-size N and "
        "--eod-id ID");
    verify(!sized || (vocab_size_ <= std::uint64_t{1} << 31 && eod_id_ < vocab_size_), ErrorKind::configuration,
           "--vocab-size {} and --eod-id {}: ids are below 2^31, and the last of a document is one of them",
           vocab_size_, eod_id_);
  }

  ImportJob job_;
  TokenizerChoice tokenizer_;
  std::uint64_t vocab_size_ = 0, eod_id_ = UINT64_MAX;
  std::string documents_ = "exact";
};

class Export final : public PreprocessTool {
 public:
  Export() {
    option("dtype", &dtype_, "TYPE",
           "of the tokens: uint8 int8 int16 uint16 int32 int64; as Megatron chooses if not given: uint16 for "
           "vocabularies below 65500, else int32");
    flag("overwrite", &overwrite_, "replace other files of these names (equal ones always may be)");
  }
  std::string_view name() const override { return "export"; }
  std::string_view arguments() const override { return "SOURCE TARGET [--dtype TYPE] [--overwrite]"; }
  std::string_view about() const override {
    return "Turns shards into Megatron-LM's TARGET.idx and TARGET.bin (mmap). SOURCE: as data.train takes it.";
  }
  std::string run() override {
    std::optional<IndexedType> type;
    if (!dtype_.empty()) type = indexed_type(dtype_);
    const ConversionSummary done = export_indexed(names_[0], names_[1], type, overwrite_);
    return fmt::format("{}: {}, {} ({})", names_[1], plural(done.documents, "document"), plural(done.tokens, "token"),
                       name_of(done.type));
  }

 private:
  void check() const override {
    if (names_.size() != 2) wrong_usage();
    if (!dtype_.empty()) indexed_type(dtype_);
  }

  std::string dtype_;
  bool overwrite_ = false;
};

class Merge final : public PreprocessTool {
 public:
  Merge() {
    option("shard-bytes", &shard_bytes_, "N (=268435456)", "bytes of tokens a shard");
    flag("overwrite", &overwrite_, kOverwriteHelp);
  }
  std::string_view name() const override { return "merge"; }
  std::string_view arguments() const override { return "SOURCE... TARGET"; }
  std::string_view about() const override {
    return "Puts shard sets of one tokenizer into one set, their documents in the order of the sources, each of which "
           "is given as data.train takes it: all with end-of-document tokens or all without. (A blend or a folder as "
           "data.train needs no merging.)";
  }
  std::string run() override {
    const std::string target = names_.back();
    const ConversionSummary done = merge_sets({names_.begin(), names_.end() - 1}, target, shard_bytes_, overwrite_);
    return fmt::format("{}: {}, {} in {}", target, plural(done.documents, "document"), plural(done.tokens, "token"),
                       plural(done.shards, "shard"));
  }

 private:
  void check() const override {
    if (names_.size() < 2) wrong_usage();
  }

  std::uint64_t shard_bytes_ = std::uint64_t{256} << 20;
  bool overwrite_ = false;
};

class TrainTokenizer final : public PreprocessTool {
 public:
  TrainTokenizer() {
    list("input", &inputs_.paths, "FILE...", "text to learn from, also gzip; a folder stands for all files in it");
    option("output", &output_, "FOLDER", "where vocab.json and merges.txt go");
    option("vocab-size", &vocab_size_, "N (=32768)", "tokens, with the 256 bytes and <|endoftext|>");
    option("least-count", &least_count_, "N (=2)", "how often a pair must occur to become a token");
    option("format", &inputs_.format, "F", "jsonl or text; by the extension if not given");
    option("json-key", &inputs_.json_key, "KEY (=text)", "the text's key in each JSON object");
    flag("skip-bad", &inputs_.skip_bad, "leave bad documents out");
    flag("overwrite", &overwrite_, "replace another vocabulary that is in this folder (an equal one always may be)");
  }
  std::string_view name() const override { return "train-tokenizer"; }
  std::string_view arguments() const override { return "--input FILE... --output FOLDER [--vocab-size N]"; }
  std::string_view about() const override {
    return "Makes a byte-level BPE vocabulary from text, in the files of GPT-2's: --tokenizer gpt2 --vocab-file "
           "FOLDER/vocab.json";
  }
  std::string run() override {
    const auto start = std::chrono::steady_clock::now();
    TextCorpus corpus(inputs_);
    prepare_prefix(output_ + "/" + kVocabFile, "--output");
    const TargetLock lock(output_ + "/" + kVocabFile);
    BpeTrainer trainer;
    const std::vector<std::uint64_t> bytes = corpus.file_bytes();
    std::uint64_t bad = 0;
    for (std::size_t file = 0; file < bytes.size(); ++file) {
      bad += corpus.visit({file, 0, bytes[file]}, [&](std::string_view text) { trainer.add_text(text); });
    }
    const std::uint64_t pieces = trainer.distinct_pieces(), text_bytes = trainer.bytes();
    verify(pieces > 0, ErrorKind::data, "{}{}: no text was found to learn from", inputs_.paths.front(),
           inputs_.paths.size() > 1 ? " and the other inputs" : "");
    const BpeVocabulary vocabulary = trainer.train(vocab_size_, least_count_);
    write(vocabulary);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::string text = fmt::format("{}: {} tokens, {} merges from {} of text with {} different words in {:.1f} s",
                                   output_, vocabulary.tokens.size(), vocabulary.merges.size(),
                                   format_bytes(static_cast<double>(text_bytes)), pieces, seconds);
    if (static_cast<std::int64_t>(vocabulary.tokens.size()) < vocab_size_) {
      text += fmt::format("\nno further pair occurs {} times: more text would make more tokens", least_count_);
    }
    if (bad > 0) text += fmt::format("\n{} left out (--skip-bad)", plural(bad, "bad document"));
    return text;
  }

 private:
  void check() const override {
    verify(!inputs_.paths.empty() && !output_.empty() && names_.empty(), ErrorKind::configuration,
           "train-tokenizer: give --input FILE... and --output FOLDER; see --help");
    verify(vocab_size_ > 257 && vocab_size_ <= static_cast<std::int64_t>(kMostTokens), ErrorKind::configuration,
           "--vocab-size {}: more than 257 (the bytes and <|endoftext|>), at most {}", vocab_size_, kMostTokens);
    verify(least_count_ > 0, ErrorKind::configuration, "--least-count {}: at least 1", least_count_);
  }
  void write(const BpeVocabulary& vocabulary) const {
    const std::string vocab = output_ + "/" + kVocabFile, merges = output_ + "/" + kMergeFile;
    Publication files;
    files.write(vocab, vocabulary.vocab_text);
    files.write(merges, vocabulary.merge_text);
    for (const std::string& name : {vocab, merges}) {
      verify(overwrite_ || replaces_nothing_else(temporary_name(name), name), ErrorKind::configuration,
             "{} is there already, of another vocabulary; add --overwrite to replace it, or choose another folder",
             name);
    }
    files.publish();
    files.commit();
    remove_temporaries({vocab, merges});
  }

  TextInputs inputs_;
  std::string output_;
  std::int64_t vocab_size_ = 32768, least_count_ = 2;
  bool overwrite_ = false;
};

template <class Tool>
std::unique_ptr<PreprocessTool> make() {
  return std::make_unique<Tool>();
}
constexpr std::unique_ptr<PreprocessTool> (*kTools[])() = {make<SampleCorpus>, make<Import>, make<Export>, make<Merge>,
                                                           make<TrainTokenizer>};

}  // namespace

void PreprocessTool::parse(int argc, char** argv) {
  po::options_description all;
  all.add(options_).add_options()("name", po::value(&names_));
  po::positional_options_description positional;
  positional.add("name", -1);
  parse_command_line(argc, argv, all, positional);
  check();
}

std::string PreprocessTool::help() const {
  std::ostringstream text;
  text << "Usage: megatron_preprocess " << name() << " " << arguments() << "\n\n" << about() << "\n\n" << options_;
  return text.str();
}

void PreprocessTool::wrong_usage() const {
  fail(ErrorKind::configuration, "usage: megatron_preprocess {} {}; see {} --help", name(), arguments(), name());
}

std::unique_ptr<PreprocessTool> find_preprocess_tool(std::string_view name) {
  for (const auto& make_tool : kTools) {
    if (auto tool = make_tool(); tool->name() == name) return tool;
  }
  return nullptr;
}

std::string suggest_preprocess_tool(const std::string& word) {
  std::vector<std::string> names;
  for (const auto& make_tool : kTools) names.emplace_back(make_tool()->name());
  return suggest_choice(word, names);
}

std::string list_preprocess_tools() {
  std::string text = "Commands (COMMAND --help tells more):\n";
  for (const auto& make_tool : kTools) {
    const auto tool = make_tool();
    text += fmt::format("  {} {}\n      {}\n", tool->name(), tool->arguments(), tool->about());
  }
  return text;
}

}  // namespace megatron
