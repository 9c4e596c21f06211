#include "programs/preprocess_tools.h"

#include <algorithm>
#include <optional>

#include "base/core/error.h"
#include "base/text/byte_text.h"
#include "config/schema/suggestions.h"
#include "data/indexed/conversion.h"
#include "data/shards/shard_provenance.h"
#include "data/shards/token_dataset.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "programs/program.h"
#include "programs/sample_corpus.h"
#include "programs/train_tokenizer.h"

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
    flag("overwrite", &overwrite_, "replace another file of this name (an equal one always may be)");
  }
  std::string_view name() const override { return "sample-corpus"; }
  std::string_view arguments() const override { return "--output FILE.jsonl [--megabytes N] [--seed S] [--overwrite]"; }
  std::string_view about() const override {
    return "Writes children's stories out of a small grammar, to try things on.";
  }
  std::string run() override {
    const SampleCorpusSummary summary =
        write_sample_corpus(output_, static_cast<std::uint64_t>(megabytes_ * 1e6), seed_, overwrite_);
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
  bool overwrite_ = false;
};

class Import final : public PreprocessTool {
 public:
  Import() {
    option("tokenizer", &tokenizer_.name, kTokenizerChoices, "whose tokens they are; or, without its files,");
    option("vocab-size", &vocab_size_, "N", "the number of ids,");
    option("eod-id", &eod_id_, "ID", "and the one that ends documents");
    option("vocab-file", &tokenizer_.vocab_file, "FILE",
           "gpt2: vocab.json, or a tokenizer.json alone; bert-*: vocab.txt or a tokenizer.json; sentencepiece: a "
           ".model file; unigram: a tokenizer.json");
    option("merge-file", &tokenizer_.merge_file, "FILE", "gpt2; default: merges.txt next to vocab.json");
    option("extra-ids", &tokenizer_.extra_ids, "N (=0)", "not byte, gpt2: with the tokens <extra_id_0> ..., N of them");
    option(
        "documents", &documents_, "exact|joined|sentences|sequences (=exact)",
        "exact: each sequence is a document, and it is an error if Megatron's are not; joined: the sequences of each "
        "document together; sentences: the same, with its sequences as sentences; sequences: each sequence, whatever "
        "the documents are");
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
    if (documents_ == "sentences") return ImportedDocuments::sentences;
    verify(documents_ == "sequences", ErrorKind::configuration,
           "--documents {}: choose one of: exact joined sentences sequences", documents_);
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
    option("dtype", &dtype_, "uint8|int8|int16|uint16|int32|int64",
           "of the tokens; as Megatron chooses if not given: uint16 for "
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

class Verify final : public PreprocessTool {
 public:
  std::string_view name() const override { return "verify"; }
  std::string_view arguments() const override { return "PREFIX..."; }
  std::string_view about() const override {
    return "Reads all tokens of shard sets, each given as data.train takes it, and compares them with their checksums. "
           "A shard that is damaged or missing is an error that names it.";
  }
  std::string run() override {
    std::string text;
    for (const std::string& name : names_) text += (text.empty() ? "" : "\n") + verified(name);
    return text;
  }

 private:
  void check() const override {
    if (names_.empty()) wrong_usage();
  }
  static std::string verified(const std::string& name) {
    constexpr std::uint64_t kAtOnce = 1 << 20;
    TokenDataset set(name);
    std::vector<std::int32_t> ids(std::min(kAtOnce, set.tokens()));
    for (std::uint64_t at = 0; at < set.tokens(); at += kAtOnce) {
      set.read(at, std::min(kAtOnce, set.tokens() - at), ids.data());
    }
    if (set.has_sentences()) set.read_sentences();
    std::string text = fmt::format("{}: in order: {}, {} in {}", name, plural(set.documents(), "document"),
                                   plural(set.tokens(), "token"), plural(set.shards(), "shard"));
    for (const std::string& prefix : set.prefixes()) {
      const std::string steps = describe_provenance(provenance_of_shards(prefix));
      if (!steps.empty()) text += fmt::format("\n{}: cleaned: {}", prefix, steps);
    }
    return text;
  }
};

template <class Tool>
std::unique_ptr<PreprocessTool> make() {
  return std::make_unique<Tool>();
}
constexpr std::unique_ptr<PreprocessTool> (*kTools[])() = {make<SampleCorpus>, make<Import>, make<Export>,
                                                           make<Merge>,        make<Verify>, make_train_tokenizer};

}  // namespace

void PreprocessTool::parse(int argc, char** argv) {
  po::options_description all;
  all.add(options_).add_options()("name", po::value(&names_)->value_name("FILE..."));
  po::positional_options_description positional;
  positional.add("name", -1);
  parse_command_line(argc, argv, all, positional);
  check();
}

std::string PreprocessTool::help() const {
  return fmt::format("Usage: megatron_preprocess {} {}\n\n{}\n\n{}", name(), arguments(), about(),
                     list_options(options_));
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
    text += fmt::format("  {} {}\n{:20}{}\n", tool->name(), tool->arguments(), "", tool->about());
  }
  return text;
}

}  // namespace megatron
