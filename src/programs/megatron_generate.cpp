// megatron_generate RUN_DIRECTORY --prompt TEXT: text from a run's newest checkpoint (or one checkpoint folder), saved
// on any layout, on one rank.
//
//   ./megatron_generate runs/demo --prompt "Once upon a time" --temperature 0.7 --seed 1
#include <iostream>

#include "data/kept_tokenizer.h"
#include "inference/generate.h"
#include "programs/program.h"
#include "system/log.h"
#include "train/compute.h"

namespace megatron {
namespace {

namespace po = boost::program_options;

struct Arguments {
  std::string source, prompt, vocab_file, merge_file, precision;
  RunConfig run;
  SamplingOptions sampling;
  bool no_begin_token = false, special_tokens = false, greedy = false, version = false, help = false;
};

po::options_description options(Arguments& arguments) {
  SamplingOptions& sampling = arguments.sampling;
  po::options_description described("Options");
  auto add = described.add_options();
  add("source", po::value(&arguments.source)->value_name("RUN_DIRECTORY"),
      "a run's directory or one checkpoint folder");
  add("prompt", po::value(&arguments.prompt)->value_name("TEXT"),
      "the beginning of a document to continue; \"\" generates a document from nothing");
  add("no-begin-token", po::bool_switch(&arguments.no_begin_token),
      "start with the prompt's first token; default: the end-of-document token comes first, as before every document "
      "in training");
  add("special-tokens", po::bool_switch(&arguments.special_tokens),
      "special tokens written in the prompt, such as <|im_end|>, become those tokens; default: they are text");
  add("vocab-file", po::value(&arguments.vocab_file)->value_name("FILE"),
      "vocab.json, or a tokenizer.json alone; default: those in RUN_DIRECTORY/tokenizer, where training keeps them");
  add("merge-file", po::value(&arguments.merge_file)->value_name("FILE"), "default: merges.txt next to vocab.json");
  add("max-new-tokens", po::value(&sampling.max_new_tokens)->default_value(100)->value_name("N"),
      "at most this many tokens; generation ends at the end of a document");
  add("temperature", po::value(&sampling.temperature)->default_value(1)->value_name("T"),
      "below 1: likelier tokens, above 1: more surprising ones");
  add("top-k", po::value(&sampling.top_k)->default_value(0)->value_name("K"), "only the K likeliest tokens; 0: all");
  add("top-p", po::value(&sampling.top_p)->default_value(0)->value_name("P"),
      "only the likeliest tokens that together have probability P; 0: all; after --top-k, of those K");
  add("greedy", po::bool_switch(&arguments.greedy), "always the likeliest token");
  add("device", po::value(&arguments.run.device)->default_value("auto")->value_name("DEVICE"),
      "\"cpu\", \"cuda\", or \"auto\": a CUDA device where there is one");
  add("precision", po::value(&arguments.precision)->default_value("fp32")->value_name("NAME"),
      "of weights and arithmetic: fp32, bf16, fp16, or checkpoint for the one the model was trained with");
  add("seed", po::value(&sampling.seed)->default_value(1234)->value_name("S"), "the same seed gives the same text");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  po::positional_options_description positional;
  positional.add("source", 1);
  const po::variables_map values = parse_command_line(argc, argv, options(arguments), positional, [](const auto& word) {
    return fmt::format("a prompt is given as --prompt \"{}\"", word);
  });
  if (arguments.help || arguments.version) return arguments;
  const SamplingOptions& sampling = arguments.sampling;
  const auto require = [](bool condition, const char* message) {
    verify(condition, ErrorKind::configuration, "{}; see --help", message);
  };
  require(!arguments.source.empty(), "give a run directory: megatron_generate RUN_DIRECTORY --prompt TEXT");
  require(values.count("prompt") > 0, "give --prompt TEXT (\"\" for a document from nothing)");
  require(!arguments.prompt.empty() || !arguments.no_begin_token,
          "--no-begin-token needs a --prompt of at least one character: there is no other token to start with");
  const std::string& device = arguments.run.device;
  require(device == "auto" || device == "cpu" || device == "cuda", "--device: auto, cpu or cuda");
  const std::string& precision = arguments.precision;
  require(precision == "fp32" || precision == "bf16" || precision == "fp16" || precision == "checkpoint",
          "--precision: fp32, bf16, fp16 or checkpoint");
  require(sampling.max_new_tokens >= 0, "--max-new-tokens: 0 or more");
  require(sampling.temperature > 0, "--temperature: more than 0 (--greedy for the limit)");
  require(sampling.top_k >= 0, "--top-k: 0 or more");
  require(sampling.top_p >= 0 && sampling.top_p <= 1, "--top-p: between 0 and 1");
  require(!arguments.greedy || (values["temperature"].defaulted() && sampling.top_k == 0 && sampling.top_p == 0),
          "--greedy excludes --temperature, --top-k and --top-p");
  if (arguments.greedy) arguments.sampling.top_k = 1;
  return arguments;
}

void generate(const Arguments& arguments, MpiSession& session) {
  Communicator& world = session.world();
  verify(world.size() == 1, ErrorKind::configuration,
         "megatron_generate runs on one rank, not {}; start it without mpirun", world.size());
  std::vector<std::string> warnings;
  const RunConfig run = choose_device(arguments.run, world, warnings);
  for (const std::string& warning : warnings) Log(true).warning(std::string_view(warning));
  Generator generator(arguments.source, world, start_compute(run, world, session.host(), session.local_rank()),
                      arguments.precision);
  const std::unique_ptr<Tokenizer> tokenizer =
      tokenizer_of_checkpoint(generator.checkpoint_path(), generator.tokenizer(), generator.tokenizer_hash(),
                              arguments.vocab_file, arguments.merge_file);
  std::vector<std::int32_t> prompt;
  if (!arguments.no_begin_token) prompt.push_back(tokenizer->eod_id());  // as before every document in training
  const SpecialTokens special = arguments.special_tokens ? SpecialTokens::tokens : SpecialTokens::text;
  tokenizer->make_encoder(special)->encode(arguments.prompt, prompt);
  std::cout << arguments.prompt << std::flush;
  generator.generate(prompt, tokenizer->eod_id(), arguments.sampling,
                     [&](std::int32_t token) { std::cout << tokenizer->decode(std::span(&token, 1)) << std::flush; });
  std::cout << std::endl;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  Arguments arguments;
  const int code = run_alone([&] {
    arguments = parse_arguments(argc, argv);
    if (arguments.help) {
      Arguments unused;
      std::cout << "usage: megatron_generate RUN_DIRECTORY --prompt TEXT [options]\n\n" << options(unused);
    } else if (arguments.version) {
      std::cout << version_report("megatron_generate");
    }
    return 0;
  });
  if (code != 0 || arguments.help || arguments.version) return code;
  return run_with_mpi(argc, argv, [&](MpiSession& session) {
    generate(arguments, session);
    return 0;
  });
}
