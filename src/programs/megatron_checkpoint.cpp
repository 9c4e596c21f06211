// megatron_checkpoint COMMAND ...: looks at checkpoints and makes others of them, on one process and without MPI.
//
//   ./megatron_checkpoint info runs/demo
//   ./megatron_checkpoint reshape runs/demo elsewhere --tensor 1 --pipeline 4
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>

#include "base/log.h"
#include "checkpoint/difference.h"
#include "checkpoint/folder.h"
#include "checkpoint/new_checkpoint.h"
#include "comm/thread_communicator.h"
#include "config/parse.h"
#include "config/suggestions.h"
#include "hdf5/durable_file.h"
#include "programs/program.h"
#include "train/hugging_face.h"
#include "train/saved_layout.h"

namespace megatron {
namespace {

namespace po = boost::program_options;

constexpr const char* kUsage =
    "Usage: megatron_checkpoint info SOURCE [--tensors]        what it is; reads no numbers\n"
    "       megatron_checkpoint verify SOURCE                  every checksum, every piece, every element once\n"
    "       megatron_checkpoint diff A B [--weights-only]      the largest difference by tensor; 0 if equal, else 1\n"
    "       megatron_checkpoint merge SOURCE TARGET            into one rank's file\n"
    "       megatron_checkpoint reshape SOURCE TARGET --tensor T --pipeline P [--virtual-stages V] [--data D]\n"
    "       megatron_checkpoint export SOURCE TARGET --format gpt2|llama [--dtype D] [--max-shard-size S]\n"
    "       megatron_checkpoint import SOURCE TARGET           from Hugging Face's safetensors and config.json\n"
    "\n"
    "A SOURCE is a run directory (its newest complete checkpoint) or one checkpoint folder. A TARGET is a folder that "
    "is\n"
    "not there yet; it appears when it is complete. Training goes on from it with checkpoint.load = \"TARGET\", "
    "optimizer\n"
    "included, or takes its weights with checkpoint.initialize_from.\n";

struct Arguments {
  std::string command, source, target;
  int tensor = 1, pipeline = 1, virtual_stages = 1, data = 1;
  bool tensors = false, weights_only = false, no_comparison = false, version = false, help = false;
  std::string format, dtype = "fp32", max_shard_size = "5GB", logits;
  ImportOptions import;
};

po::options_description options(Arguments& arguments) {
  po::options_description described("Options");
  auto add = described.add_options();
  add("tensors", po::bool_switch(&arguments.tensors), "info: lists every tensor");
  add("weights-only", po::bool_switch(&arguments.weights_only),
      "diff: compares values alone, not the optimizer's state, the step or what the checkpoints were trained with");
  add("tensor", po::value(&arguments.tensor)->value_name("T"), "reshape: ranks that share a layer's matrices");
  add("pipeline", po::value(&arguments.pipeline)->value_name("P"), "reshape: pipeline stages");
  add("virtual-stages", po::value(&arguments.virtual_stages)->value_name("V"),
      "reshape: model chunks of each stage; default 1");
  add("data", po::value(&arguments.data)->value_name("D"), "reshape: data ranks that share the writing; default 1");
  add("format", po::value(&arguments.format)->value_name("F"), "export: gpt2 or llama; default: what the model is");
  add("dtype", po::value(&arguments.dtype)->value_name("T"), "export: fp32 (the default), bf16 or fp16");
  add("max-shard-size", po::value(&arguments.max_shard_size)->value_name("S"),
      "export: bytes of a file, also as 500MB or 2GiB; default 5GB");
  add("data-prefix", po::value(&arguments.import.data)->value_name("PREFIX"),
      "import: token shards whose vocabulary the model has, if its folder does not have GPT-2's vocab.json and "
      "merges.txt");
  add("vocab-size", po::value(&arguments.import.vocab_size)->value_name("N"),
      "import: tokens of the vocabulary, where the model's tables have more rows than that");
  add("sequence-length", po::value(&arguments.import.sequence_length)->value_name("N"),
      "import: model.sequence_length of the runs that it is for; default: all positions");
  add("no-comparison", po::bool_switch(&arguments.no_comparison),
      "export, import: does not run the model to compare logits, for models that are too large for this node");
  add("logits", po::value(&arguments.logits)->value_name("FILE"),
      "export, import: writes the tokens and logits that were compared there, as JSON");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

po::options_description positional_options(Arguments& arguments) {
  po::options_description described;
  auto add = described.add_options();
  add("command", po::value(&arguments.command));
  add("source", po::value(&arguments.source));
  add("target", po::value(&arguments.target));
  return described;
}

/// Which options belong to which command, and how many names it takes.
struct Command {
  const char* name;
  int names;
  std::vector<std::string> options;
};
const std::vector<Command> kCommands = {
    {"info", 1, {"tensors"}},
    {"verify", 1, {}},
    {"diff", 2, {"weights-only"}},
    {"merge", 2, {}},
    {"reshape", 2, {"tensor", "pipeline", "virtual-stages", "data"}},
    {"export", 2, {"format", "dtype", "max-shard-size", "no-comparison", "logits"}},
    {"import", 2, {"data-prefix", "vocab-size", "sequence-length", "no-comparison", "logits"}}};

void check_arguments(const Arguments& arguments, const po::variables_map& values) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.push_back(command.name);
  const auto command = std::find_if(kCommands.begin(), kCommands.end(),
                                    [&](const Command& known) { return known.name == arguments.command; });
  if (command == kCommands.end()) {
    const std::string nearest = suggest_choice(arguments.command, names);
    verify(!arguments.command.empty(), ErrorKind::configuration, "give a command: {}; see --help",
           fmt::join(names, ", "));
    fail(ErrorKind::configuration, "unknown command '{}'{}; there are {}", arguments.command,
         nearest.empty() ? "" : ", did you mean '" + nearest + "'?", fmt::join(names, ", "));
  }
  const int given = (arguments.source.empty() ? 0 : 1) + (arguments.target.empty() ? 0 : 1);
  verify(given == command->names, ErrorKind::configuration, "{} takes {}; see --help", arguments.command,
         command->names == 1 ? "one name, SOURCE" : "two names");
  for (const auto& [name, value] : values) {
    const auto has = [&](const Command& known) {
      return std::find(known.options.begin(), known.options.end(), name) != known.options.end();
    };
    const bool belongs = has(*command) || std::none_of(kCommands.begin(), kCommands.end(), has) || value.defaulted();
    verify(belongs, ErrorKind::configuration, "--{} is no option of {}; see --help", name, arguments.command);
  }
  verify(!arguments.no_comparison || arguments.logits.empty(), ErrorKind::configuration,
         "--logits excludes --no-comparison");
  for (const char* name : {"vocab-size", "sequence-length"}) {
    verify(values.count(name) == 0 || values[name].as<std::int64_t>() >= 1, ErrorKind::configuration, "--{}: 1 or more",
           name);
  }
  for (const int extent : {arguments.tensor, arguments.pipeline, arguments.virtual_stages, arguments.data}) {
    verify(extent >= 1 && extent <= 1 << 20, ErrorKind::configuration,
           "--tensor, --pipeline, --virtual-stages and --data: 1 or more");
  }
  if (arguments.command == "reshape") {
    verify(values.count("tensor") > 0 && values.count("pipeline") > 0, ErrorKind::configuration,
           "reshape: give --tensor T and --pipeline P; see --help");
  }
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  po::options_description all = options(arguments);
  all.add(positional_options(arguments));
  po::positional_options_description positional;
  positional.add("command", 1).add("source", 1).add("target", 1);
  const po::variables_map values = parse_command_line(argc, argv, all, positional);
  if (!arguments.help && !arguments.version) check_arguments(arguments, values);
  return arguments;
}

std::string find(const std::string& source) {
  std::vector<std::string> warnings;
  const std::string path = find_named_checkpoint(source, warnings);
  for (const std::string& warning : warnings) fmt::print(stderr, "warning: {}\n", printable(warning));
  return path;
}

/// With everything verified; the files' contents by as many threads as there are files and cores for.
CheckpointReader open(const std::string& source) {
  const std::string path = find(source);
  const std::size_t files = read_complete_manifest(path).files.size(), cores = std::thread::hardware_concurrency();
  const std::size_t threads = std::clamp<std::size_t>(files, 1, std::max<std::size_t>(1, cores));
  std::optional<CheckpointReader> reader;
  const auto work = [&](Communicator& world) {
    std::vector<std::string> warnings;
    CheckpointReader mine = open_named_checkpoint(world, path, warnings);
    if (world.rank() == 0) reader = std::move(mine);
  };
  run_as_threads(static_cast<int>(threads), work, std::chrono::hours(24 * 365));
  verify_coverage(*reader);
  return std::move(*reader);
}

std::string size_text(std::int64_t bytes) {
  return bytes < 10'000'000 ? fmt::format("{:.1f} kB", 1e-3 * static_cast<double>(bytes))
                            : fmt::format("{:.1f} MB", 1e-6 * static_cast<double>(bytes));
}

std::string optimizer_text(int moments) {
  return moments == 0 ? "none" : moments == 1 ? "one moment" : "two moments";
}

void info(const Arguments& arguments) {
  const std::string path = find(arguments.source);
  const Manifest manifest = read_complete_manifest(path);
  const TrainingState& state = manifest.state;
  std::int64_t parameters = 0;
  for (const TensorSummary& tensor : manifest.tensors) parameters += tensor.elements;
  const auto line = [](const char* what, const std::string& text) { fmt::print("{:<11}{}\n", what, printable(text)); };
  line("checkpoint", path);
  line("step", fmt::format("{} ({} samples, {} tokens)", state.step, state.samples, state.tokens));
  line("parameters", fmt::format("{} in {} tensors", parameters, manifest.tensors.size()));
  line("optimizer", optimizer_text(manifest.moments));
  line("files",
       fmt::format("{} of {} ranks, {}", manifest.files.size(), manifest.ranks, size_text(manifest.file_bytes())));
  if (const auto config = state.extra.find("config"); config != state.extra.end() && config->is_string()) {
    const ParallelConfig parallel =
        parse_config_text(config->get<std::string>(), path + " (its configuration)").parallel;
    line("trained on",
         fmt::format("tensor {} x pipeline {} x data {} ranks", parallel.tensor, parallel.pipeline, parallel.data));
  }
  for (const auto& fact : state.facts.items()) {
    line("", fmt::format("{} = {}", fact.key(),
                         fact.value().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  }
  if (!arguments.tensors) return;
  for (const TensorSummary& tensor : manifest.tensors) line("tensor", tensor.name + " " + tensor.shape.to_string());
}

void verify_checkpoint(const Arguments& arguments) {
  const CheckpointReader reader = open(arguments.source);
  const Manifest manifest = read_complete_manifest(reader.path());
  std::size_t pieces = 0;
  for (const auto& [name, tensor] : reader.tensors()) pieces += tensor.pieces.size();
  fmt::print("{}: step {} is in order: {} files ({}) have their checksums, {} pieces cover {} tensors once\n",
             printable(reader.path()), reader.state().step, manifest.files.size(), size_text(manifest.file_bytes()),
             pieces, reader.tensors().size());
}

/// Returns the exit code.
int diff(const Arguments& arguments) {
  const CheckpointReader a = open(arguments.source), b = open(arguments.target);
  const std::vector<std::string> others = other_differences(a, b, !arguments.weights_only);
  bool equal = others.empty();
  fmt::print("{:>12} {:>12} {:>12}  tensor (largest difference of value, m, v; differing elements)\n", "value", "m",
             "v");
  for (const TensorDifference& tensor : compare_tensors(a, b, !arguments.weights_only)) {
    std::int64_t differing = 0;
    for (std::size_t i = 0; i < tensor.largest.size(); ++i) {
      differing += tensor.differing[i];
      fmt::print("{:>12} ", static_cast<int>(i) <= tensor.moments ? fmt::format("{:.5g}", tensor.largest[i]) : "-");
    }
    fmt::print(" {}", printable(tensor.name));
    if (differing > 0) fmt::print("; {} of {}", differing, tensor.shape.elements() * (1 + tensor.moments));
    fmt::print("\n");
    equal = equal && tensor.equal();
  }
  for (const std::string& line : others) fmt::print("{}\n", printable(line));
  fmt::print("{} and {}: {}\n", printable(a.path()), printable(b.path()), equal ? "equal" : "NOT equal");
  return equal ? 0 : 1;
}

void print_report(const Arguments& arguments, const CheckpointReader& source, const NewCheckpointReport& report,
                  std::chrono::steady_clock::time_point start) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: step {} of {}, {} file{}, {} in {:.2f} s\n", printable(arguments.target), source.state().step,
             printable(source.path()), report.files, report.files == 1 ? "" : "s", size_text(report.bytes), seconds);
}

/// 5GB, 500MB, 2GiB, or bytes.
std::int64_t bytes_of(const std::string& text) {
  std::int64_t number = 0, unit = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  for (const auto& [name, bytes] : {std::pair<std::string_view, std::int64_t>{"", 1},
                                    {"B", 1},
                                    {"KB", 1000},
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

ExportOptions export_options(const Arguments& arguments) {
  ExportOptions chosen;
  chosen.max_shard_bytes = bytes_of(arguments.max_shard_size);
  chosen.compare = !arguments.no_comparison;
  bool known = arguments.format.empty();
  for (const ForeignFormat format : {ForeignFormat::gpt2, ForeignFormat::llama}) {
    if (arguments.format == name_of(format)) chosen.format = format, known = true;
  }
  verify(known, ErrorKind::configuration, "--format \"{}\": gpt2 or llama", arguments.format);
  known = false;
  for (const SafetensorsType type : {SafetensorsType::f32, SafetensorsType::bf16, SafetensorsType::f16}) {
    if (arguments.dtype == name_of(type)) chosen.type = type, known = true;
  }
  verify(known, ErrorKind::configuration, "--dtype \"{}\": fp32, bf16 or fp16", arguments.dtype);
  return chosen;
}

void print_conversion(const Arguments& arguments, const ConversionReport& report) {
  fmt::print("{}: {} tensors in {} file{}, {}\n", printable(arguments.target), report.tensors, report.files,
             report.files == 1 ? "" : "s", size_text(report.bytes));
  if (!report.compared) return;
  const LogitComparison& compared = *report.compared;
  fmt::print("logits on {} fixed tokens: largest difference {:.3g}, largest logit {:.3g}\n", compared.tokens.size(),
             compared.largest_difference, compared.largest_logit);
  if (arguments.logits.empty()) return;
  const nlohmann::json numbers = {{"tokens", compared.tokens}, {"logits", compared.logits}};
  write_durably(arguments.logits, numbers.dump() + "\n");
}

void export_model(const Arguments& arguments) {
  const ExportOptions chosen = export_options(arguments);
  const CheckpointReader source = open(arguments.source);
  run_as_threads(1, [&](Communicator& world) {
    const ConversionReport report = export_checkpoint(source, arguments.target, world, chosen);
    print_conversion(arguments, report);
    if (!report.has_tokenizer) fmt::print("the run has no files of its tokenizer: none were written\n");
  });
}

void import_model(const Arguments& arguments) {
  ImportOptions chosen = arguments.import;
  chosen.compare = !arguments.no_comparison;
  run_as_threads(1, [&](Communicator& world) {
    const ConversionReport report = import_checkpoint(arguments.source, arguments.target, world, chosen);
    print_conversion(arguments, report);
    if (report.has_tokenizer) return;
    fmt::print(stderr, "warning: nothing says which vocabulary the model has; to train it give --data-prefix PREFIX\n");
  });
}

void merge(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  const CheckpointReader source = open(arguments.source);
  const auto everything = [&](int) { return whole_tensors(source); };
  print_report(arguments, source, rewrite_checkpoint(source, arguments.target, 1, everything), start);
}

void reshape(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  const CheckpointReader source = open(arguments.source);
  const GridShape shape{.tensor = arguments.tensor, .data = arguments.data, .pipeline = arguments.pipeline};
  const Config config = config_for_layout(source, shape, arguments.virtual_stages);
  const auto layout = [&](int rank) { return saved_layout(config, shape, rank); };
  print_report(arguments, source, rewrite_checkpoint(source, arguments.target, shape.ranks(), layout), start);
}

int run(const Arguments& arguments) {
  if (arguments.command == "diff") return diff(arguments);
  if (arguments.command == "info") info(arguments);
  if (arguments.command == "verify") verify_checkpoint(arguments);
  if (arguments.command == "merge") merge(arguments);
  if (arguments.command == "reshape") reshape(arguments);
  if (arguments.command == "export") export_model(arguments);
  if (arguments.command == "import") import_model(arguments);
  return 0;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error like a full disk, not the end of the process
  return run_alone([&] {
    const Arguments arguments = parse_arguments(argc, argv);
    if (arguments.help) {
      Arguments unused;
      std::cout << kUsage << "\n" << options(unused);
      return 0;
    }
    if (arguments.version) {
      std::cout << version_report("megatron_checkpoint");
      return 0;
    }
    return run(arguments);
  });
}
