// megatron_checkpoint COMMAND ...: looks at checkpoints and makes others of them, on one process and without MPI.
//
//   ./megatron_checkpoint info runs/demo
//   ./megatron_checkpoint reshape runs/demo elsewhere --tensor 1 --pipeline 4
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <iostream>
#include <map>
#include <set>
#include <thread>

#include "base/system/durable_file.h"
#include "base/system/notes.h"
#include "base/text/byte_text.h"
#include "base/text/foreign_json.h"
#include "base/text/text.h"
#include "checkpoint/hugging_face/checkpoint_tokenizer.h"
#include "checkpoint/hugging_face/hugging_face.h"
#include "checkpoint/store/difference.h"
#include "checkpoint/store/folder.h"
#include "checkpoint/store/new_checkpoint.h"
#include "checkpoint/store/tensor_slices.h"
#include "config/parse/parse.h"
#include "config/parse/presets.h"
#include "config/schema/print.h"
#include "distributed/comm/thread_communicator.h"
#include "programs/checkpoint_arguments.h"
#include "programs/padding_rows.h"
#include "programs/program.h"
#include "training/optimizer/optimizer_facts.h"
#include "training/step/compatibility.h"
#include "training/step/saved_layout.h"

namespace megatron {
namespace {

std::string find(const std::string& source) {
  std::vector<std::string> warnings;
  const std::string path = find_named_checkpoint(source, warnings);
  for (const std::string& warning : warnings) print_warning(warning);
  return path;
}

std::size_t cores() {
  return std::max<std::size_t>(1, std::thread::hardware_concurrency());
}

/// For work that keeps a core busy while the files are verified in the background. Where the work fails, damage
/// that is found in the files is why.
template <class Work>
void convert(const std::string& source, Work&& work) {
  const CheckpointReader reader = open_unverified(find(source), std::max<std::size_t>(1, cores() - 1));
  try {
    work(reader);
  } catch (const Error&) {
    reader.require_verified();
    throw;
  }
}

std::string size_text(std::int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

std::string states_text(const std::vector<std::string>& states) {
  return states.empty() ? "none" : fmt::format("{}", fmt::join(states, ", "));
}

/// The optimizer's states; where tensors differ in them, of how many each is.
std::string optimizer_text(const Manifest& manifest) {
  std::map<std::vector<std::string>, std::int64_t> tensors;
  for (const TensorSummary& tensor : manifest.tensors) ++tensors[tensor.states];
  if (tensors.size() <= 1) return states_text(manifest.states());
  std::vector<std::string> parts;
  for (const auto& [states, count] : tensors) {
    parts.push_back(fmt::format("{} of {}", states_text(states), counted(count, "tensor")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// The tables of an input file that say what a model is.
constexpr std::array<std::string_view, 3> kModelTables = {"model", "moe", "task"};

void info(const CheckpointArguments& arguments) {
  const std::string path = find(arguments.source);
  const Manifest manifest = read_complete_manifest(path);
  const TrainingState& state = manifest.state;
  std::int64_t parameters = 0;
  for (const TensorSummary& tensor : manifest.tensors) parameters += tensor.elements;
  const auto line = [](const char* what, const std::string& text) { fmt::print("{:<15}{}\n", what, printable(text)); };
  line("checkpoint", path);
  line("step",
       fmt::format("{} ({}, {})", state.step, counted(state.samples, "sample"), counted(state.tokens, "token")));
  line("parameters",
       fmt::format("{} in {}", parameters, counted(static_cast<std::int64_t>(manifest.tensors.size()), "tensor")));
  line("optimizer", optimizer_text(manifest));
  line("files", fmt::format("{} of {}, {}", manifest.files.size(), counted(manifest.ranks, "rank"),
                            size_text(manifest.file_bytes())));
  for (const char* key : {"tokenizer", "tokenizer_hash"}) {
    if (state.facts.contains(key)) line(key, fact_text(key, state.facts.at(key)));
  }
  if (arguments.tensors) {
    for (const TensorSummary& tensor : manifest.tensors) line("tensor", tensor.name + " " + tensor.shape.to_string());
  }
  if (const auto text = state.extra.find("config"); text != state.extra.end() && text->is_string()) {
    const Config config = parse_config_text(text->get<std::string>(), path + " (its configuration)");
    const ParallelConfig& parallel = config.parallel;
    line("trained on",
         fmt::format("tensor {} x pipeline {} x data {} ranks{}", parallel.tensor, parallel.pipeline, parallel.data,
                     parallel.expert > 1 ? fmt::format(", expert {}", parallel.expert) : ""));
    fmt::print("\n{}", printable(print_given(config, with_preset_alone(config), kModelTables)));
  }
}

/// The step with the lowest validation loss that a run's newest checkpoint knows of, and the loss in words.
std::optional<std::pair<std::int64_t, std::string>> best_of(const TrainingState& newest) {
  const auto loop = newest.extra.find("loop");
  if (loop == newest.extra.end() || !loop->is_object() || !loop->contains(kBestState)) return std::nullopt;
  const nlohmann::json best = object_at(*loop, kBestState);
  return std::pair(integer_at(best, "step", 0, kStepLimit),
                   fmt::format("lowest validation loss, {:.4f}", number_at(best, "loss")));
}

/// Reads manifests and the sizes of files, no numbers.
void list_checkpoints(const std::string& source) {
  const std::string folder = folder_of_steps(source);
  verify(!folder.empty(), ErrorKind::checkpoint, "{} is one checkpoint; list takes a run directory", source);
  std::optional<std::int64_t> newest;
  std::optional<std::pair<std::int64_t, std::string>> best;
  for (const std::int64_t step : steps_in(folder)) {
    const std::string path = folder + "/" + step_folder_name(step);
    try {
      const Manifest manifest = read_complete_manifest(path);
      if (!newest) best = best_of(manifest.state);
      std::vector<std::string> marks;
      if (!newest) marks.emplace_back("newest");
      if (best && best->first == step) marks.push_back(best->second);
      fmt::print("{}  {}{}\n", printable(path), size_text(manifest.file_bytes()),
                 marks.empty() ? "" : fmt::format("  {}", fmt::join(marks, "; ")));
      if (!newest) newest = step;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::checkpoint) throw;
      fmt::print("{}  cannot be used: {}\n", printable(path), printable(error.what()));
    }
  }
  verify(newest.has_value(), ErrorKind::checkpoint, "there is no complete checkpoint in {}", folder);
}

void verify_checkpoint(const std::string& path) {
  const CheckpointReader reader = open_unverified(path, cores());
  reader.require_verified();
  const Manifest manifest = read_complete_manifest(reader.path());
  std::size_t slices = 0;
  for (const auto& [name, tensor] : reader.tensors()) slices += tensor.slices.size();
  fmt::print("{}: step {} is in order: {} ({}) with the right checksums; every tensor is there once ({}, in {})\n",
             printable(reader.path()), reader.state().step,
             counted(static_cast<std::int64_t>(manifest.files.size()), "file"), size_text(manifest.file_bytes()),
             counted(static_cast<std::int64_t>(reader.tensors().size()), "tensor"),
             counted(static_cast<std::int64_t>(slices), "slice"));
}

// A damaged one does not keep the others from being verified; it is an error at the end.
void verify_all_checkpoints(const std::string& source) {
  const std::string folder = folder_of_steps(source);
  if (folder.empty()) return verify_checkpoint(source);
  const std::vector<std::int64_t> steps = steps_in(folder);
  verify(!steps.empty(), ErrorKind::checkpoint, "there is no checkpoint in {}", folder);
  std::size_t damaged = 0;
  for (const std::int64_t step : steps) {
    try {
      verify_checkpoint(folder + "/" + step_folder_name(step));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::checkpoint) throw;
      fmt::print("{}\n", printable(error.what()));
      ++damaged;
    }
  }
  verify(damaged == 0, ErrorKind::checkpoint, "{}: {} of {} damaged (see above)", folder, damaged,
         counted(static_cast<std::int64_t>(steps.size()), "checkpoint"));
}

bool within(const TensorDifference& tensor, double tolerance) {
  const auto small = [&](const NumberDifference& each) { return each.largest <= tolerance; };  // false: not a number
  return tensor.equal() || (tolerance > 0 && std::all_of(tensor.numbers.begin(), tensor.numbers.end(), small));
}

/// A row for each tensor that differs by more than `tolerance`. Returns how many these are.
std::size_t print_differences(const std::vector<TensorDifference>& tensors, double tolerance) {
  std::set<std::string> states;
  for (const TensorDifference& tensor : tensors) {
    for (const NumberDifference& each : tensor.numbers) states.insert(each.dataset);
  }
  states.erase(kValues);
  const std::vector<std::string> columns = datasets_with({states.begin(), states.end()});
  std::size_t rows = 0;
  for (const TensorDifference& tensor : tensors) {
    if (within(tensor, tolerance)) continue;
    if (rows++ == 0) {
      for (const std::string& column : columns) fmt::print("{:>12} ", column);
      fmt::print(" tensor (largest difference of {}; differing elements)\n", fmt::join(columns, ", "));
    }
    for (const std::string& column : columns) {
      const auto found = std::find_if(tensor.numbers.begin(), tensor.numbers.end(),
                                      [&](const NumberDifference& each) { return each.dataset == column; });
      fmt::print("{:>12} ", found == tensor.numbers.end() ? "-" : fmt::format("{:.5g}", found->largest));
    }
    fmt::print(" {}; {} of {}\n", printable(tensor.name), tensor.differing(),
               tensor.elements * static_cast<std::int64_t>(tensor.numbers.size()));
  }
  return rows;
}

void print_largest(const std::vector<TensorDifference>& tensors) {
  double largest = 0;
  std::string place;
  for (const TensorDifference& tensor : tensors) {
    for (const NumberDifference& each : tensor.numbers) {
      if (std::isnan(largest) || !(each.largest > largest || std::isnan(each.largest))) continue;
      largest = each.largest;
      place = fmt::format(", {} of {}", each.dataset, tensor.name);
    }
  }
  fmt::print("largest difference {:.5g}{}\n", largest, printable(place));
}

/// Returns the exit code.
int diff(const CheckpointArguments& arguments) {
  const std::string path_of_a = find(arguments.source), path_of_b = find(arguments.target);
  const CheckpointReader a = open_unverified(path_of_a, cores()), b = open_unverified(path_of_b, cores());
  a.require_verified();
  b.require_verified();
  const std::vector<std::string> others =
      other_differences(a, b, !arguments.weights_only, {kOptimizerKey, kGroupsKey, kUpdatesKey, kLossScalerKey});
  const std::vector<TensorDifference> tensors =
      arguments.weights_only ? compare_tensors(a, b, false, rows_of_words(a, b)) : compare_tensors(a, b, true);
  const std::size_t beyond = print_differences(tensors, arguments.tolerance);
  const auto same = std::count_if(tensors.begin(), tensors.end(), [](const auto& tensor) { return tensor.equal(); });
  fmt::print("{} compared, {} equal in every bit\n", counted(static_cast<std::int64_t>(tensors.size()), "tensor"),
             same);
  const auto padded = std::count_if(tensors.begin(), tensors.end(),
                                    [](const auto& tensor) { return tensor.elements < tensor.shape.elements(); });
  if (padded > 0) {
    fmt::print("rows of {} beyond the vocabulary pad it and are left out\n", counted(padded, "tensor"));
  }
  for (const std::string& line : others) fmt::print("{}\n", printable(line));
  const bool equal = others.empty() && beyond == 0;
  fmt::print("{} and {}: {}{}\n", printable(a.path()), printable(b.path()), equal ? "equal" : "NOT equal",
             arguments.tolerance > 0 ? fmt::format(" within {}", arguments.tolerance) : "");
  print_largest(tensors);
  return equal ? 0 : 1;
}

void print_report(const CheckpointArguments& arguments, const CheckpointReader& source,
                  const NewCheckpointReport& report, std::chrono::steady_clock::time_point start) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: step {} of {}, {} file{}, {} in {:.2f} s\n", printable(arguments.target), source.state().step,
             printable(source.path()), report.files, report.files == 1 ? "" : "s", size_text(report.bytes), seconds);
}

void print_conversion(const CheckpointArguments& arguments, const ConversionReport& report) {
  fmt::print("{}: {} in {}, {}\n", printable(arguments.target),
             counted(static_cast<std::int64_t>(report.tensors), "tensor"),
             counted(static_cast<std::int64_t>(report.files), "file"), size_text(report.bytes));
  if (!report.compared) return;
  const LogitComparison& compared = *report.compared;
  fmt::print("logits on {} fixed tokens: largest difference {:.3g}, largest logit {:.3g}\n", compared.tokens.size(),
             compared.largest_difference, compared.largest_logit);
  if (compared.not_numbers > 0) {
    print_warning(fmt::format("{} of the source's {} logits are not numbers: the model is broken, its copy is exact",
                              compared.not_numbers, compared.logits.size()));
  }
  nlohmann::json numbers = {{"tokens", compared.tokens}, {"logits", compared.logits}};
  if (!compared.encoder_tokens.empty()) numbers["encoder_tokens"] = compared.encoder_tokens;
  write_output(arguments.logits, numbers.dump() + "\n");
}

void export_model(const CheckpointArguments& arguments) {
  const ExportOptions chosen = export_options(arguments);
  convert(arguments.source, [&](const CheckpointReader& source) {
    run_as_threads(1, [&](Communicator& world) {
      const ConversionReport report = export_checkpoint(source, arguments.target, world, chosen);
      print_conversion(arguments, report);
      for (const std::string& line : report.lost) print_warning(line);
      if (!report.has_tokenizer) fmt::print("the run has no files of its tokenizer: none were written\n");
    });
  });
}

/// Prints what an import took for the model's tokenizer, where that is not simply its folder's first file.
void print_tokenizer(const std::string& source, const ConversionReport& report) {
  if (!report.unsupported_tokenizer.empty()) print_warning(report.unsupported_tokenizer);
  if (report.left_out > 0) {
    print_warning(fmt::format("{}: the model has no rows for its last {}: left out (a padding token, usually)",
                              report.tokenizer_file, counted(report.left_out, "token")));
  }
  if (!report.tokenizer_file.empty() && !report.unsupported_tokenizer.empty()) {
    print_warning(fmt::format("the tokenizer is made from {} instead", report.tokenizer_file));
  }
  if (report.has_tokenizer) return;
  print_warning(fmt::format(
      "{}: the model has no tokenizer that this program reads. Import it again with --vocab-file FILE (a "
      "tokenizer.json, vocab.json with merges.txt, vocab.txt or tokenizer.model of the model that it was made from), "
      "or with "
      "--data-prefix PREFIX of shards that have its vocabulary; else megatron_generate and megatron_eval need "
      "--vocab-file, and fine-tuning task.tokenizer",
      source));
}

void import_model(const CheckpointArguments& arguments) {
  ImportOptions chosen = arguments.import;
  chosen.compare = !arguments.no_comparison;
  run_as_threads(1, [&](Communicator& world) {
    const ConversionReport report = import_checkpoint(arguments.source, arguments.target, world, chosen);
    print_conversion(arguments, report);
    if (report.zero_rows > 0) {
      fmt::print("the last {} tokens of the vocabulary are not in the model ([BOS], [EOS], sentinels): rows of zeros\n",
                 report.zero_rows);
    }
    print_tokenizer(arguments.source, report);
    if (!report.unusable_chat_template.empty()) {
      fmt::print("its chat template is not kept: {}\n", printable(report.unusable_chat_template));
    }
    if (report.chat_template) {
      fmt::print(
          "its chat template is kept for exports; --chat of megatron_generate and fine-tuning with task.name = "
          "\"instructions\" have the texts of [task] instead (user_prefix and the like)\n");
    }
    fmt::print("{}/{}: its [model] for an input file, which trains it with checkpoint.initialize_from = \"{}\"\n",
               printable(arguments.target), kModelFragment, printable(arguments.target));
  });
}

void merge(const CheckpointArguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  convert(arguments.source, [&](const CheckpointReader& source) {
    const auto everything = [&](int) { return whole_tensors(source); };
    const auto tokenizer = [&](const std::string& folder) { carry_tokenizer(source, folder); };
    print_report(arguments, source, rewrite_checkpoint(source, arguments.target, 1, everything, tokenizer), start);
  });
}

void reshape(const CheckpointArguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  const GridShape shape{
      .tensor = arguments.tensor, .data = arguments.data, .pipeline = arguments.pipeline, .expert = arguments.expert};
  convert(arguments.source, [&](const CheckpointReader& source) {
    const Config config = config_for_layout(source, shape, arguments.virtual_stages);
    const auto layout = [&](int rank) { return saved_layout(config, rank); };
    const auto tokenizer = [&](const std::string& folder) { carry_tokenizer(source, folder); };
    print_report(arguments, source, rewrite_checkpoint(source, arguments.target, shape.ranks(), layout, tokenizer),
                 start);
  });
}

int run(const CheckpointArguments& arguments) {
  if (arguments.command == "diff") return diff(arguments);
  if (arguments.command == "info") info(arguments);
  if (arguments.command == "list") list_checkpoints(arguments.source);
  if (arguments.command == "verify") {
    arguments.all ? verify_all_checkpoints(arguments.source) : verify_checkpoint(find(arguments.source));
  }
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe does not end the work
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
    const CheckpointArguments arguments = parse_checkpoint_arguments(argc, argv);
    if (arguments.help) {
      std::cout << usage(arguments.command);
      return 0;
    }
    if (arguments.version) {
      std::cout << version_report("megatron_checkpoint");
      return 0;
    }
    return run(arguments);
  });
}
