// megatron_preprocess: text to token shards. Its sub-commands, which need one process only, are in preprocess_tools.h.
//
// Under mpirun the ranks take the blocks of the input in turn, one each a round. After each round they agree: an error
// on any rank ends the job, and it is the first one in the order of the input, whatever the number of ranks.
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/system/file_lock.h"
#include "base/system/memory_usage.h"
#include "base/system/notes.h"
#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "data/preprocess/preprocess.h"
#include "data/preprocess/same_inputs.h"
#include "data/preprocess/text_provenance.h"
#include "distributed/comm/together.h"
#include "programs/preprocess_tools.h"
#include "programs/program.h"
#include "programs/progress_line.h"

namespace megatron {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BlockSummary, block, documents, tokens, bad, empty, hash)

namespace {

namespace po = boost::program_options;

constexpr const char* kUsage =
    "Usage: megatron_preprocess --input FILE... --output PREFIX [options]\n"
    "  or:  megatron_preprocess COMMAND ...\n"
    "\n"
    "Turns text into token shards PREFIX-00000.h5, PREFIX-00001.h5 ...; `data.train = \"PREFIX\"` trains on them.\n"
    "JSON lines: one document a line. Plain text: documents of about 64 KiB, cut where a paragraph begins.\n"
    "Under an MPI launcher, the ranks share the text.\n";

void print_summary(const PreprocessJob& job, bool appends_eod, const std::vector<BlockSummary>& all,
                   std::uint64_t bytes, double seconds, std::size_t memory) {
  BlockSummary sum;
  std::uint64_t shards = 0;
  for (const BlockSummary& block : all) {
    shards += block.documents > 0 ? 1 : 0;
    sum.documents += block.documents;
    sum.tokens += block.tokens;
    sum.bad += block.bad;
    sum.empty += block.empty;
  }
  fmt::print("{}: {}, {} ({}) in {}; {} of text in {:.1f} s, {}/s, with at most {} of memory per rank\n", job.output,
             counted(static_cast<std::int64_t>(sum.documents), "document"),
             counted(static_cast<std::int64_t>(sum.tokens), "token"), job.tokenizer.name,
             counted(static_cast<std::int64_t>(shards), "shard"), format_bytes(static_cast<double>(bytes)), seconds,
             format_bytes(static_cast<double>(bytes) / std::max(seconds, 1e-9)),
             format_bytes(static_cast<double>(memory)));
  if (!job.append_eod && !appends_eod) {
    fmt::print("the last sentences of documents have no end-of-document token; --append-eod adds it\n");
  }
  if (sum.empty > 0) fmt::print("{} empty documents left out\n", sum.empty);
  if (sum.bad > 0) fmt::print("{} bad documents left out (--skip-bad)\n", sum.bad);
}

/// Finds out, all ranks together, which inputs megatron_clean has made; the shards then say it.
void set_provenance(Communicator& world, Preprocessor& preprocessor, const std::vector<InputIdentity>& inputs) {
  LastProvenance last;
  const std::vector<TextOrigin> origins =
      by_turns(world, inputs.size(), [&](std::size_t i) { return origin_of_text(inputs[i].path, last); });
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (world.rank() != 0 || origins[i] != TextOrigin::changed) continue;
    print_note(
        fmt::format("{} is another file than megatron_clean has written, as {} in its folder says: shards do not "
                    "tell what it was made from",
                    inputs[i].path, kProvenanceFile));
  }
  std::string json;
  agree(world, [&] {
    if (world.rank() == 0) json = describe_origins("megatron_preprocess " + program_version(), inputs, origins);
  });
  preprocessor.set_provenance(world.broadcast_text(json, 0));
}

/// `lock`: taken by rank 0 for all, and to be kept until none of them has anything to put back.
void preprocess(Communicator& world, const PreprocessJob& job, bool overwrite, std::optional<TargetLock>& lock) {
  std::optional<Preprocessor> preprocessor;
  const auto opened = together(world, [&] {
    preprocessor.emplace(job);
    return fmt::format("vocabulary {:016x}", preprocessor->tokenizer().hash());
  });
  std::vector<InputIdentity> inputs;
  agree(world, [&] { inputs = preprocessor->identify_inputs(); });
  if (world.size() > 1) require_same_inputs(world, inputs);
  for (const std::string& seen : opened) {
    verify(seen == opened.front(), ErrorKind::data, "the ranks see different files: {} and {}", opened.front(), seen);
  }
  share_sizes(world, preprocessor->inputs());
  agree(world, [&] { preprocessor->open(); });
  const bool checks_target = world.rank() == 0 && !overwrite;
  together(world, [&]() -> std::string {
    if (world.rank() != 0) return "";
    check_prefix(job.output, "--output");
    lock.emplace(job.output);
    if (checks_target && preprocessor->target_exists()) {
      print_note(
          fmt::format("{} exists already: only an equal set may replace it (or any with --overwrite)", job.output));
    }
    return "";
  });
  set_provenance(world, *preprocessor, inputs);
  const std::uint64_t blocks = preprocessor->blocks(), ranks = static_cast<std::uint64_t>(world.size());
  ProgressLine progress(world.rank() == 0, preprocessor->input_bytes());
  std::vector<BlockSummary> all;
  std::uint64_t bytes_done = 0;
  while (all.size() < blocks) {
    const std::uint64_t first = all.size(), busy = std::min(ranks, blocks - first);
    const std::uint64_t mine = first + static_cast<std::uint64_t>(world.rank());
    const auto results = together(world, [&]() -> BlockSummary {
      if (mine >= blocks) return {};
      // The others are about as far with their blocks as this rank is with its own.
      return preprocessor->process(mine, [&](std::uint64_t bytes) { progress.show(bytes_done + bytes * busy); });
    });
    for (std::uint64_t i = 0; i < busy; ++i) {
      all.push_back(results[i]);
      bytes_done += preprocessor->block_bytes(first + i);
    }
    progress.show(bytes_done);
  }
  together(world, [&]() -> std::string {
    if (checks_target) preprocessor->check_target(all);
    return "";
  });
  together(world, [&]() -> std::string {
    preprocessor->publish(all);
    return "";
  });
  const std::vector<std::size_t> memory = together(world, [&] {
    preprocessor->finish(world.rank() == 0);
    return peak_resident_bytes();
  });
  if (world.rank() != 0) return;
  const std::size_t most = *std::max_element(memory.begin(), memory.end());
  print_summary(job, preprocessor->appends_eod(), all, preprocessor->input_bytes(), progress.seconds(), most);
}

po::options_description preprocess_options(PreprocessJob& job) {
  po::options_description options("Options", kHelpColumns, kDescriptionColumns);
  options.add_options()("help", "this text")("version", "the version");
  options.add_options()("input", po::value(&job.inputs.paths)->multitoken()->value_name("FILE..."),
                        "text to read, also gzip, zstd and bzip2; a folder stands for all files in it and below");
  options.add_options()("output", po::value(&job.output)->value_name("PREFIX"), "shards to write: PREFIX-00000.h5 ...");
  options.add_options()("tokenizer",
                        po::value(&job.tokenizer.name)->value_name(kTokenizerChoices)->default_value("byte"),
                        "byte (no vocabulary), gpt2 (byte-level BPE), bert-uncased or bert-cased (WordPiece), "
                        "sentencepiece (a .model file), unigram (T5's kind of tokenizer.json)");
  options.add_options()("vocab-file", po::value(&job.tokenizer.vocab_file)->value_name("FILE"),
                        "gpt2: vocab.json (scripts/download_vocab.sh fetches GPT-2's, train-tokenizer makes others), "
                        "or a tokenizer.json, NAME.tiktoken or tekken.json alone; bert-*: vocab.txt or a "
                        "tokenizer.json; sentencepiece: spiece.model, tokenizer.model; unigram: a tokenizer.json");
  options.add_options()("merge-file", po::value(&job.tokenizer.merge_file)->value_name("FILE"),
                        "gpt2; default: merges.txt next to vocab.json");
  options.add_options()(
      "extra-ids", po::value(&job.tokenizer.extra_ids)->value_name("N")->default_value(0),
      "add the tokens <extra_id_0> ... (N of them) that the vocabulary lacks: bert-*: ids count up, "
      "after [BOS] and [EOS], which always are added; sentencepiece, unigram: they count down, as T5's");
  options.add_options()(
      "format", po::value(&job.inputs.format)->value_name("jsonl|text"),
      "by the extension if not given (.jsonl .ndjson .json, .txt .text .md, each also with .gz or .zst)");
  options.add_options()("json-key", po::value(&job.inputs.json_key)->value_name("KEY")->default_value("text"),
                        "the text's key in each JSON object");
  options.add_options()(
      "special-tokens",
      "but for byte: special tokens written in a text, such as <|im_end|>, become those tokens, also the one "
      "that ends documents; default: they are text");
  options.add_options()("no-append-eod",
                        "do not end documents with the end-of-document token; the default with sentences "
                        "(BERT, T5), but for byte and gpt2");
  options.add_options()("append-eod", "end documents with it all the same");
  options.add_options()("split-sentences", "keep where sentences begin (BERT, T5): the same as --sentences icu");
  options.add_options()("sentences", po::value<std::string>()->value_name("icu|lines|array"),
                        "the same: icu (ICU's rules and abbreviations; a blank line also ends one), lines (each "
                        "line is one), array (the JSON key holds an array of strings)");
  options.add_options()("language", po::value(&job.language)->value_name("L")->default_value("en"),
                        "icu: of the rules and abbreviations");
  options.add_options()("shard-bytes", po::value(&job.shard_bytes)->value_name("N")->default_value(job.shard_bytes),
                        "bytes of input a shard; a block of this size is a rank's unit of work");
  options.add_options()("overwrite", kOverwriteHelp);
  options.add_options()("skip-bad", "leave bad documents out and count them, instead of stopping at the first");
  return options;
}

void run(Communicator& world, int argc, char** argv, std::optional<TargetLock>& lock) {
  if (const std::unique_ptr<PreprocessTool> tool = argc > 1 ? find_preprocess_tool(argv[1]) : nullptr) {
    tool->parse(argc - 1, argv + 1);
    together(world, [&]() -> std::string {
      if (world.rank() == 0) fmt::print("{}\n", tool->run());
      return "";
    });
    return;
  }
  PreprocessJob job;
  const po::variables_map found = megatron::parse_command_line(
      argc, argv, preprocess_options(job), po::positional_options_description(), [](const std::string& word) {
        const std::string command = suggest_preprocess_tool(word);
        return command.empty() ? "text is given as --input " + word : "did you mean the command '" + command + "'?";
      });
  const bool ends = found.count("append-eod") > 0, no_ends = found.count("no-append-eod") > 0;
  verify(!ends || !no_ends, ErrorKind::configuration, "--append-eod and --no-append-eod: leave one of the two out");
  if (ends || no_ends) job.append_eod = ends;
  if (found.count("special-tokens") > 0) job.special_tokens = SpecialTokens::tokens;
  job.inputs.skip_bad = found.count("skip-bad") > 0;
  if (found.count("sentences") > 0) job.sentences = sentence_mode(found["sentences"].as<std::string>());
  if (found.count("split-sentences") > 0) {
    verify(job.sentences == SentenceMode::none || job.sentences == SentenceMode::icu, ErrorKind::configuration,
           "--split-sentences is --sentences icu; leave one of the two out");
    job.sentences = SentenceMode::icu;
  }
  verify(job.sentences == SentenceMode::icu || found["language"].defaulted(), ErrorKind::configuration,
         "--language {}: it is for --split-sentences", job.language);
  verify(!job.inputs.paths.empty() && !job.output.empty(), ErrorKind::configuration,
         "give --input FILE... and --output PREFIX; see --help");
  preprocess(world, job, found.count("overwrite") > 0, lock);
}

/// Answers what needs no MPI. Returns whether there was anything.
bool answered(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--version") {
      std::cout << version_report("megatron_preprocess");
      return true;
    }
    if (word == "--help" || word == "-h") {
      if (const std::unique_ptr<PreprocessTool> tool = find_preprocess_tool(argv[1])) {
        std::cout << tool->help();
        return true;
      }
      PreprocessJob job;
      std::cout << kUsage << "\n" << list_options(preprocess_options(job)) << "\n" << list_preprocess_tools();
      return true;
    }
  }
  return false;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  std::optional<TargetLock> lock;
  return run_data_tool(
      argc, argv, [&] { return answered(argc, argv); }, [&](Communicator& world) { run(world, argc, argv, lock); });
}
