#include "programs/generate_arguments.h"

#include <cmath>
#include <initializer_list>

#include "base/core/error.h"
#include "programs/command_line.h"

namespace megatron {

namespace {

namespace po = boost::program_options;

/// As they were typed, before they are checked against each other.
struct Typed {
  GenerateArguments arguments;
  std::string prompt;
  std::int64_t unconditional = 0;
  bool greedy = false, stop_on_newline = false, force = false;
};

using Add = po::options_description_easy_init;

void add_inputs(Typed& typed, Add add) {
  GenerateArguments& arguments = typed.arguments;
  add("prompt", po::value(&typed.prompt)->value_name("TEXT"),
      "the beginning of a document to continue; \"\" makes a document from nothing. For T5: what the encoder reads");
  add("prompts", po::value(&arguments.prompts_file)->value_name("FILE"),
      "a file of prompts, one per line, as text or as a JSON object with \"prompt\" or \"text\"");
  add("unconditional", po::value(&typed.unconditional)->value_name("N"), "N documents from nothing");
  add("interactive", po::bool_switch(&arguments.interactive),
      "asks for one prompt after the other; Ctrl-C ends an answer, Ctrl-D the program. With cursor keys and earlier "
      "lines: rlwrap ./megatron_generate ... --interactive");
  add("chat", po::bool_switch(&arguments.chat),
      "a conversation with a model that was fine-tuned with instructions, in the template of its training: a line is a "
      "message, and answers know all messages before them");
  add("system", po::value(&arguments.system)->value_name("TEXT"),
      "with --chat: the system's message, which comes first");
  add("serve-stdio", po::bool_switch(&arguments.serve),
      "answers requests of another program, a line of JSON each, on standard input and output");
  add("no-begin-token", po::bool_switch(&arguments.no_begin_token), "the same as --begin-token no");
  add("special-tokens", po::bool_switch(&arguments.special_tokens),
      "special tokens written in the prompt, such as <|im_end|>, become those tokens; default: they are text");
  add("truncate", po::bool_switch(&arguments.text.truncate),
      "a prompt that is longer than the model's context loses its beginning; default: it is an error");
}

void add_text_options(Typed& typed, Add add) {
  TextOptions& text = typed.arguments.text;
  SamplingOptions& sampling = text.sampling;
  add("max-new-tokens", po::value(&sampling.max_new_tokens)->default_value(100)->value_name("N"),
      "at most this many tokens; a text ends before at the end of its document. 0: the prompts are scored instead");
  add("samples", po::value(&text.samples)->default_value(1)->value_name("N"), "texts per prompt");
  add("seed", po::value(&sampling.seed)->default_value(1234)->value_name("S"), "the same seed gives the same text");
  add("greedy", po::bool_switch(&typed.greedy), "always the likeliest token");
  add("temperature", po::value(&sampling.temperature)->default_value(1)->value_name("T"),
      "below 1: likelier tokens, above 1: more surprising ones");
  add("top-k", po::value(&sampling.top_k)->default_value(0)->value_name("K"), "only the K likeliest tokens; 0: all");
  add("top-p", po::value(&sampling.top_p)->default_value(0)->value_name("P"),
      "only the likeliest tokens that together have probability P; 0: all; after --top-k, of those K");
  add("top-p-decay", po::value(&sampling.top_p_decay)->default_value(1)->value_name("D"),
      "after every new token, --top-p is multiplied by D");
  add("top-p-bound", po::value(&sampling.top_p_bound)->default_value(0)->value_name("P"), "where --top-p-decay stops");
  add("repetition-penalty", po::value(&sampling.repetition_penalty)->default_value(1)->value_name("R"),
      "above 1: tokens of the text so far become less likely");
  add("stop", po::value(&text.stops)->composing()->value_name("TEXT"),
      "ends a text in front of TEXT; may be given several times");
  add("stop-on-newline", po::bool_switch(&typed.stop_on_newline), "ends a text in front of its first line break");
  add("beams", po::value(&typed.arguments.search.beams)->value_name("N"),
      "beam search with N beams: the text that is likeliest as a whole, as far as it is found");
  add("length-penalty", po::value(&typed.arguments.search.length_penalty)->default_value(1)->value_name("L"),
      "of beams: log-probabilities are divided by length^L; above 1: longer texts");
  add("speculate", po::value(&typed.arguments.search.speculate)->default_value(0)->value_name("N"),
      "guesses up to N tokens at a time by looking the last ones up in the text so far: faster where texts repeat "
      "themselves; a greedy text stays the same");
}

void add_outputs(Typed& typed, Add add) {
  GenerateArguments& arguments = typed.arguments;
  add("output", po::value(&arguments.output.path)->value_name("FILE"),
      "writes JSON lines {prompt, sample, text, tokens, finished, logprobs} to FILE, instead of text to standard "
      "output");
  add("logprobs", po::value(&arguments.text.likeliest)->default_value(0)->value_name("K"),
      "with --output: the K likeliest tokens in each place, with their log-probabilities");
  add("logits", po::value(&arguments.logits.path)->value_name("FILE"),
      "writes the logits that each token was chosen from to an HDF5 file");
  add("force", po::bool_switch(&typed.force), "replaces the files of --output and --logits, if there are any");
}

void add_job_options(GenerateArguments& arguments, Add add) {
  add("batch", po::value(&arguments.batch)->value_name("N"),
      "texts that are made together, per pipeline stage and copy of the model; default: 16, or 1 for --interactive and "
      "--serve-stdio");
  add("dry-run", po::bool_switch(&arguments.dry_run), "prints what each rank would need of memory, and ends");
  add("ranks", po::value(&arguments.planned_ranks)->value_name("N"), "with --dry-run: for N ranks");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
}

po::options_description all_options(Typed& typed) {
  GenerateArguments& arguments = typed.arguments;
  po::options_description all("Options", kHelpColumns, kDescriptionColumns),
      prompts("Prompts", kHelpColumns, kDescriptionColumns), texts("Texts", kHelpColumns, kDescriptionColumns),
      output("Output", kHelpColumns, kDescriptionColumns),
      job("Model and computation", kHelpColumns, kDescriptionColumns);
  add_source_option(prompts, arguments.model, "RUN_DIRECTORY");
  add_inputs(typed, prompts.add_options());
  add_begin_token_option(prompts, arguments.begin_token,
                         "the imported model's where its tokenizer puts it, else the end-of-document token, as before "
                         "every document in training; no: a text starts with the prompt's first token");
  add_text_options(typed, texts.add_options());
  add_outputs(typed, output.add_options());
  add_model_options(job, arguments.model, "prompts");
  add_job_options(arguments, job.add_options());
  all.add(prompts).add(texts).add(output).add(job);
  return all;
}

void require(bool condition, const char* message) {
  verify(condition, ErrorKind::configuration, "{}; see --help", message);
}

/// Options that were given and would change nothing.
void refuse(const po::variables_map& values, std::initializer_list<const char*> names, const char* where) {
  for (const char* name : names) {
    verify(values[name].empty() || values[name].defaulted(), ErrorKind::configuration,
           "--{} has no meaning for {}; see --help", name, where);
  }
}

void check_input(const Typed& typed, const po::variables_map& values) {
  const GenerateArguments& arguments = typed.arguments;
  require(!arguments.model.source.empty(), "give a run directory: megatron_generate RUN_DIRECTORY --prompt TEXT");
  const std::size_t inputs = values.count("prompt") + values.count("prompts") + values.count("unconditional") +
                             (arguments.interactive ? 1 : 0) + (arguments.chat ? 1 : 0) + (arguments.serve ? 1 : 0);
  require(inputs > 0,
          "give --prompt TEXT (\"\" for a document from nothing), --prompts FILE, --unconditional N, --interactive, "
          "--chat or --serve-stdio");
  require(inputs == 1,
          "--prompt, --prompts, --unconditional, --interactive, --chat and --serve-stdio exclude each other");
  require(arguments.chat || values.count("system") == 0, "--system belongs to --chat");
  if (arguments.chat) refuse(values, {"begin-token", "no-begin-token", "special-tokens", "truncate"}, "--chat");
  require(values.count("unconditional") == 0 || (typed.unconditional >= 1 && typed.unconditional <= 1 << 24),
          "--unconditional: 1 to 16777216");
  check_begin_token(arguments.begin_token);
  require(!arguments.no_begin_token || arguments.begin_token != "yes",
          "--begin-token yes and --no-begin-token exclude each other");
  require(values.count("unconditional") == 0 || arguments.begins(),
          "--unconditional needs the begin token: without --no-begin-token or --begin-token no");
  require(values.count("prompt") == 0 || !typed.prompt.empty() || arguments.begins(),
          "--no-begin-token needs a --prompt of at least one character: there is no other token to start with");
}

void check_beams(const Typed& typed, const po::variables_map& values) {
  const SearchOptions& search = typed.arguments.search;
  const bool searched = values.count("beams") > 0;
  require(!searched || (search.beams >= 1 && search.beams <= 1024), "--beams: 1 to 1024");
  require(searched || values["length-penalty"].defaulted(), "--length-penalty belongs to --beams");
  require(std::abs(search.length_penalty) <= 16, "--length-penalty: -16 to 16");
  require(search.speculate >= 0 && search.speculate <= 1024, "--speculate: 0 to 1024");
  if (!searched) return;
  refuse(values,
         {"samples", "seed", "greedy", "temperature", "top-k", "top-p", "top-p-decay", "top-p-bound",
          "repetition-penalty", "stop", "stop-on-newline", "logprobs", "logits", "batch", "speculate"},
         "--beams");
}

void check_output(const Typed& typed, const po::variables_map& values) {
  const GenerateArguments& arguments = typed.arguments;
  const bool output = !arguments.output.path.empty(), logits = !arguments.logits.path.empty();
  require(!arguments.converses() || !output, "--output needs prompts that are known at the start");
  require(!arguments.converses() || !logits, "--logits needs prompts that are known at the start");
  require(arguments.serve || arguments.scores() || output || arguments.text.likeliest == 0,
          "--logprobs needs --output");
  require(!output || arguments.output.path != arguments.logits.path, "--output and --logits: two files");
  require(!typed.force || output || logits, "--force is for the files of --output and --logits");
  require((!arguments.interactive && !arguments.chat) || arguments.text.samples == 1,
          "--interactive and --chat make one text per prompt");
  require(!arguments.converses() || arguments.text.sampling.max_new_tokens > 0, "--max-new-tokens: 1 or more");
  require(values.count("batch") == 0 || (arguments.batch >= 1 && arguments.batch <= 1 << 16), "--batch: 1 to 65536");
  require(values.count("ranks") == 0 || arguments.dry_run, "--ranks belongs to --dry-run; use mpirun -np N");
  require(values.count("ranks") == 0 || (arguments.planned_ranks >= 1 && arguments.planned_ranks <= 1 << 20),
          "--ranks: 1 to 1048576");
}

void check_scoring(const GenerateArguments& arguments, const po::variables_map& values) {
  if (!arguments.scores()) return;
  refuse(values,
         {"samples", "seed", "greedy", "temperature", "top-k", "top-p", "top-p-decay", "top-p-bound",
          "repetition-penalty", "stop", "stop-on-newline", "beams", "speculate"},
         "--max-new-tokens 0, which scores prompts");
}

}  // namespace

std::string generate_help() {
  Typed unused;
  return "Usage: megatron_generate RUN_DIRECTORY --prompt TEXT [options]\n\n" + list_options(all_options(unused));
}

GenerateArguments parse_generate_arguments(int argc, char** argv) {
  Typed typed;
  GenerateArguments& arguments = typed.arguments;
  po::positional_options_description positional;
  positional.add("source", 1);
  const po::variables_map values = parse_command_line(argc, argv, all_options(typed), positional, [](const auto& word) {
    return fmt::format("a prompt is given as --prompt \"{}\"", word);
  });
  if (arguments.help || arguments.version) return arguments;
  check_input(typed, values);
  check_scoring(arguments, values);
  const SamplingOptions& sampling = arguments.text.sampling;
  require(!typed.greedy || (values["temperature"].defaulted() && sampling.top_k == 0 && sampling.top_p == 0),
          "--greedy excludes --temperature, --top-k and --top-p");
  require(arguments.serve || values["top-p-decay"].defaulted() || sampling.top_p > 0,
          "--top-p-decay belongs to --top-p");
  check_text_options(arguments.text, Spelling::command_line);
  check_beams(typed, values);
  check_output(typed, values);
  if (typed.stop_on_newline) arguments.text.stops.emplace_back("\n");
  check_model_options(arguments.model);
  if (typed.greedy) arguments.text.sampling.top_k = 1;
  if (values.count("prompt") > 0) arguments.prompts = {typed.prompt};
  arguments.unconditional = typed.unconditional > 0;
  arguments.prompts.resize(std::max(arguments.prompts.size(), static_cast<std::size_t>(typed.unconditional)));
  if (arguments.batch == 0) arguments.batch = arguments.converses() ? 1 : 16;
  for (OutputFile* output : {&arguments.output, &arguments.logits}) {
    output->force = typed.force;
    output->inputs = {arguments.prompts_file, arguments.model.vocab_file, arguments.model.merge_file};
  }
  return arguments;
}

}  // namespace megatron
