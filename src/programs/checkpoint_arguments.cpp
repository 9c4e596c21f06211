#include "programs/checkpoint_arguments.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "config/schema/suggestions.h"
#include "programs/command_line.h"
#include "programs/program.h"

namespace megatron {

namespace {

namespace po = boost::program_options;

/// A command, how many names it takes, and which options belong to it.
struct Command {
  const char *name, *arguments, *about;
  int names;
  std::vector<std::string> options;
};
const std::vector<Command> kCommands = {
    {"info", "SOURCE [--tensors]", "what it is; reads no numbers", 1, {"tensors"}},
    {"list", "RUN", "all checkpoints of a run: size, newest, best", 1, {}},
    {"verify", "SOURCE [--all]", "every checksum, every slice, every element once", 1, {"all"}},
    {"diff",
     "A B [--weights-only] [--tolerance X]",
     "tensors that differ, and the largest difference; exit code 0 if equal, else 1",
     2,
     {"weights-only", "tolerance"}},
    {"merge", "SOURCE TARGET", "into one rank's file", 2, {}},
    {"reshape",
     "SOURCE TARGET --tensor T --pipeline P [--virtual-stages V] [--data D] [--expert E]",
     "for another layout",
     2,
     {"tensor", "pipeline", "virtual-stages", "data", "expert"}},
    {"export",
     "SOURCE TARGET [--format F] [--dtype T] [--max-shard-size S]",
     "to Hugging Face's safetensors and config.json",
     2,
     {"format", "dtype", "max-shard-size", "no-comparison", "logits", "force"}},
    {"import",
     "SOURCE TARGET",
     "from Hugging Face's safetensors and config.json",
     2,
     {"data-prefix", "vocab-file", "merge-file", "vocab-size", "sequence-length", "no-comparison", "logits", "force"}}};

constexpr const char* kNames =
    "\nA SOURCE is a run directory (its newest complete checkpoint) or one checkpoint folder. A TARGET is a folder "
    "that "
    "does\nnot exist yet; it appears when it is complete. Training resumes from it with checkpoint.load = \"TARGET\", "
    "optimizer\nincluded, or takes its weights with checkpoint.initialize_from.\n\n";

const Command* find_command(const std::string& name) {
  const auto found =
      std::find_if(kCommands.begin(), kCommands.end(), [&](const Command& command) { return command.name == name; });
  return found == kCommands.end() ? nullptr : &*found;
}

po::options_description options(CheckpointArguments& arguments) {
  po::options_description described("Options", kHelpColumns, kDescriptionColumns);
  auto add = described.add_options();
  add("tensors", po::bool_switch(&arguments.tensors), "lists every tensor");
  add("all", po::bool_switch(&arguments.all), "looks at all checkpoints of a run, not at the newest alone");
  add("weights-only", po::bool_switch(&arguments.weights_only),
      "compares values alone, not the optimizer's state, the step, what the checkpoints were trained with, or rows "
      "that pad the vocabulary");
  add("tolerance", po::value(&arguments.tolerance)->value_name("X"),
      "tensors whose numbers differ by at most X count as equal; default 0: equal in every bit");
  add("tensor", po::value(&arguments.tensor)->value_name("T"), "ranks that share a layer's matrices");
  add("pipeline", po::value(&arguments.pipeline)->value_name("P"), "pipeline stages");
  add("virtual-stages", po::value(&arguments.virtual_stages)->value_name("V"), "model chunks of each stage; default 1");
  add("data", po::value(&arguments.data)->value_name("D"), "data ranks that share the writing; default 1");
  add("expert", po::value(&arguments.expert)->value_name("E"), "data ranks that share the experts out; default 1");
  add("format", po::value(&arguments.format)->value_name("F"),
      fmt::format("{}; default: what the model is", names_of_formats()).c_str());
  add("dtype", po::value(&arguments.dtype)->value_name("fp32|bf16|fp16"), "default: fp32");
  add("max-shard-size", po::value(&arguments.max_shard_size)->value_name("S"),
      "bytes of a file, also as 500MB or 2GiB; default 5GB");
  add("data-prefix", po::value(&arguments.import.data)->value_name("PREFIX"),
      "token shards whose vocabulary the model has, if its folder has no tokenizer that this program supports");
  add("vocab-file", po::value(&arguments.import.vocab_file)->value_name("FILE"),
      "the model's tokenizer, instead of the files in its folder: a tokenizer.json, vocab.json, vocab.txt or "
      "tokenizer.model");
  add("merge-file", po::value(&arguments.import.merge_file)->value_name("FILE"),
      "default: merges.txt next to vocab.json");
  add("vocab-size", po::value(&arguments.import.vocab_size)->value_name("N"),
      "tokens of the vocabulary, where the model's tables have more rows than that");
  add("sequence-length", po::value(&arguments.import.sequence_length)->value_name("N"),
      "model.sequence_length of the runs that it is for; default: all positions");
  add("no-comparison", po::bool_switch(&arguments.no_comparison),
      "does not run the model to compare logits, for models that are too large for this node");
  add("logits", po::value(&arguments.logits.path)->value_name("FILE"),
      "writes the tokens and logits that were compared there, as JSON");
  add("force", po::bool_switch(&arguments.logits.force), "replaces the file of --logits, if there is one");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

po::options_description positional_options(CheckpointArguments& arguments) {
  po::options_description described;
  auto add = described.add_options();
  add("command", po::value(&arguments.command));
  add("source", po::value(&arguments.source)->value_name("SOURCE"));
  add("target", po::value(&arguments.target)->value_name("TARGET"));
  return described;
}

void check_arguments(const CheckpointArguments& arguments, const po::variables_map& values) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  const Command* const command = find_command(arguments.command);
  if (command == nullptr) {
    const std::string nearest = suggest_choice(arguments.command, names);
    verify(!arguments.command.empty(), ErrorKind::configuration, "give a command: {}; see --help",
           fmt::join(names, ", "));
    fail(ErrorKind::configuration, "unknown command '{}'{}; there are {}", arguments.command,
         nearest.empty() ? "" : ", did you mean '" + nearest + "'?", fmt::join(names, ", "));
  }
  const int given = (arguments.source.empty() ? 0 : 1) + (arguments.target.empty() ? 0 : 1);
  verify(given == command->names, ErrorKind::configuration, "{} takes {}; see --help", arguments.command,
         command->names == 1 ? "one name, SOURCE" : "two names");
  for (const auto& option : values) {
    const std::string& name = option.first;
    const auto has = [&](const Command& known) {
      return std::find(known.options.begin(), known.options.end(), name) != known.options.end();
    };
    const bool belongs =
        has(*command) || std::none_of(kCommands.begin(), kCommands.end(), has) || option.second.defaulted();
    verify(belongs, ErrorKind::configuration, "--{} is no option of {}; see --help", name, arguments.command);
  }
  verify(!arguments.no_comparison || arguments.logits.path.empty(), ErrorKind::configuration,
         "--logits excludes --no-comparison");
  verify(arguments.import.data.empty() || arguments.import.vocab_file.empty(), ErrorKind::configuration,
         "--data-prefix excludes --vocab-file");
  verify(arguments.import.merge_file.empty() || !arguments.import.vocab_file.empty(), ErrorKind::configuration,
         "--merge-file needs --vocab-file");
  verify(!arguments.logits.force || !arguments.logits.path.empty(), ErrorKind::configuration,
         "--force is for the file of --logits");
  check_output(arguments.logits);  // before all work
  for (const char* name : {"vocab-size", "sequence-length"}) {
    verify(values.count(name) == 0 || values[name].as<std::int64_t>() >= 1, ErrorKind::configuration, "--{}: 1 or more",
           name);
  }
  verify(arguments.tolerance >= 0 && arguments.tolerance <= 1e300, ErrorKind::configuration,
         "--tolerance {}: 0 or more", arguments.tolerance);
  for (const int extent :
       {arguments.tensor, arguments.pipeline, arguments.virtual_stages, arguments.data, arguments.expert}) {
    verify(extent >= 1 && extent <= 1 << 20, ErrorKind::configuration,
           "--tensor, --pipeline, --virtual-stages, --data and --expert: 1 or more");
  }
  if (arguments.command == "reshape") {
    verify(values.count("tensor") > 0 && values.count("pipeline") > 0, ErrorKind::configuration,
           "reshape: give --tensor T and --pipeline P; see --help");
  }
}

/// 5GB, 500MB, 2GiB, or bytes.
std::int64_t bytes_of(const std::string& text) {
  std::int64_t number = 0, unit = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  for (const auto& [name, bytes] : {std::pair<std::string_view, std::int64_t>{"", 1},
                                    {"B", 1},
                                    {"KB", 1000},
                                    {"kB", 1000},
                                    {"MB", 1'000'000},
                                    {"GB", 1'000'000'000},
                                    {"KiB", 1 << 10},
                                    {"MiB", 1 << 20},
                                    {"GiB", 1 << 30}}) {
    if (error == std::errc() && std::string_view(rest, static_cast<std::size_t>(end - rest)) == name) unit = bytes;
  }
  verify(unit > 0 && number >= 1 && number <= INT64_MAX / unit, ErrorKind::configuration,
         "--max-shard-size \"{}\": bytes, or a number with KB, MB, GB, KiB, MiB or GiB", text);
  return number * unit;
}

}  // namespace

CheckpointArguments parse_checkpoint_arguments(int argc, char** argv) {
  CheckpointArguments arguments;
  po::options_description all = options(arguments);
  all.add(positional_options(arguments));
  po::positional_options_description positional;
  positional.add("command", 1).add("source", 1).add("target", 1);
  const po::variables_map values = parse_command_line(argc, argv, all, positional);
  if (!arguments.help && !arguments.version) check_arguments(arguments, values);
  return arguments;
}

std::string usage(const std::string& name) {
  CheckpointArguments unused;
  const po::options_description all = options(unused);
  const auto listed = [&](const std::string& caption, const std::vector<std::string>& names) {
    po::options_description part(caption);
    for (const std::string& option : names) {
      for (const auto& known : all.options()) {
        if (known->long_name() == option) part.add(known);
      }
    }
    return list_options(part);
  };
  if (const Command* command = find_command(name)) {
    const std::string options_text = command->options.empty() ? "" : listed("Options", command->options);
    return fmt::format("Usage: megatron_checkpoint {} {}\n  {}\n{}{}", command->name, command->arguments,
                       command->about, kNames, options_text);
  }
  std::string text = "Usage: megatron_checkpoint COMMAND ...\n\n";
  for (const Command& command : kCommands) {
    text += fmt::format("  {} {}\n{:20}{}\n", command.name, command.arguments, "", command.about);
  }
  text += kNames;
  for (const Command& command : kCommands) {
    if (!command.options.empty()) text += listed(fmt::format("Options of {}", command.name), command.options) + "\n";
  }
  return text + listed("Options of the program", {"version", "help"});
}

ExportOptions export_options(const CheckpointArguments& arguments) {
  ExportOptions chosen;
  chosen.max_shard_bytes = bytes_of(arguments.max_shard_size);
  chosen.compare = !arguments.no_comparison;
  bool known = arguments.format.empty();
  for (const HuggingFaceFormat format : hugging_face_formats()) {
    if (arguments.format == name_of(format)) chosen.format = format, known = true;
  }
  verify(known, ErrorKind::configuration, "--format: \"{}\" is none of {}", arguments.format, names_of_formats());
  known = false;
  for (const SafetensorsType type : {SafetensorsType::f32, SafetensorsType::bf16, SafetensorsType::f16}) {
    if (arguments.dtype == name_of(type)) chosen.type = type, known = true;
  }
  verify(known, ErrorKind::configuration, "--dtype: \"{}\" is none of fp32, bf16 and fp16", arguments.dtype);
  return chosen;
}

}  // namespace megatron
