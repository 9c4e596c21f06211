#include "programs/eval_arguments.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/core/evaluation_tasks.h"
#include "base/core/named_rows.h"
#include "base/text/text.h"
#include "data/evaluation_tasks/task.h"
#include "programs/program.h"

namespace megatron {

namespace {

namespace po = boost::program_options;

std::vector<std::string_view> names_of_tasks() {
  std::vector<std::string_view> names;
  for (const TaskKind& kind : task_kinds()) names.push_back(kind.name);
  names.insert(names.end(), {"classification", "multiple_choice"});
  return names;
}

po::options_description options(EvalArguments& arguments) {
  po::options_description described("Options", kHelpColumns, kDescriptionColumns);
  add_source_option(described, arguments.model, "SOURCE");
  auto add = described.add_options();
  add("task", po::value(&arguments.task)->value_name(fmt::format("{}", fmt::join(names_of_tasks(), "|"))),
      "what is evaluated: see below");
  add("data", po::value(&arguments.data)->value_name("FILE"), "the task's file");
  add("labels", po::value(&arguments.labels)->value_name("FILE"),
      "choices: the number of each question's right choice, a line each, where the task's file has none (PIQA)");
  add("output", po::value(&arguments.output.path)->value_name("FILE"), "writes the result there, as JSON");
  add("predictions", po::value(&arguments.predictions.path)->value_name("FILE"),
      "classification, multiple_choice: writes the label and the scores of each example there, as JSON lines; then the "
      "data may be without labels, and there is no accuracy");
  add("force", po::bool_switch(&arguments.output.force), "replaces files of these options, if they exist");
  add("stride", po::value(&arguments.stride)->value_name("N"),
      "wikitext, text: tokens from one window to the next; each token is predicted from all that its window has in "
      "front of it, at least the context less N; default: wikitext 32, text half the context");
  add_begin_token_option(described, arguments.begin_token, "where the imported model's tokenizer puts it");
  add("strict", po::bool_switch(&arguments.strict), "lambada: the whole last word, not the last token alone");
  add("format", po::value(&arguments.format)->value_name("json|tsv|race|mnli|qqp"),
      "classification, multiple_choice: form of the file, as task.format; default: that of the training");
  add("micro-batch-size", po::value(&arguments.micro_batch_size)->default_value(4)->value_name("B"),
      "sequences, with multiple_choice questions, that a rank computes at a time: more of them take more memory, and "
      "change nothing but rounding");
  add_model_options(described, arguments.model, "examples");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

}  // namespace

std::string eval_usage() {
  EvalArguments unused;
  std::string text =
      "Usage: megatron_eval SOURCE --task NAME --data FILE [options]\n\n" + list_options(options(unused));
  text += "\nTasks:\n";
  for (const TaskKind& kind : task_kinds()) text += fmt::format("  {:<16} {}\n", kind.name, kind.file);
  return text + fmt::format("  {:<16} {}\n  {:<16} {}\n", "classification",
                            "labelled texts, for a model that was fine-tuned to tell their labels: accuracy",
                            "multiple_choice", "questions with choices, for a model that was fine-tuned: accuracy");
}

EvalArguments parse_eval_arguments(int argc, char** argv) {
  EvalArguments arguments;
  po::positional_options_description positional;
  positional.add("source", 1);
  const po::variables_map values = parse_command_line(argc, argv, options(arguments), positional, [](const auto& word) {
    return fmt::format("a file to evaluate is given as --data {}", word);
  });
  if (arguments.help || arguments.version) return arguments;
  const auto require = [](bool condition, const char* message) {
    verify(condition, ErrorKind::configuration, "{}; see --help", message);
  };
  require(!arguments.model.source.empty(), "give a run directory: megatron_eval RUN_DIRECTORY --task NAME --data FILE");
  require(!arguments.task.empty(), "give --task NAME");
  std::vector<std::string_view> names = names_of_tasks();
  verify(std::find(names.begin(), names.end(), arguments.task) != names.end(), ErrorKind::configuration,
         "there is no task \"{}\"; there are: {}", printable(arguments.task), fmt::join(names, ", "));
  const EvaluationTaskRow* const row = find_row(kEvaluationTasks, arguments.task);
  const EvaluationTaskRow kind = row != nullptr ? *row : EvaluationTaskRow{};
  require(!arguments.data.empty(), "give --data FILE");
  require(arguments.of_labels() || arguments.format.empty(),
          "--format belongs to --task classification and multiple_choice");
  require(arguments.of_labels() || arguments.predictions.path.empty(),
          "--predictions belongs to --task classification and multiple_choice");
  require(arguments.predictions.path.empty() || arguments.predictions.path != arguments.output.path,
          "--predictions and --output name the same file; name two");
  require(kind.has_stride || values.count("stride") == 0, "--stride belongs to --task wikitext and text");
  require(values.count("stride") == 0 || arguments.stride > 0, "--stride: 1 or more");
  require(kind.has_labels || arguments.labels.empty(), "--labels belongs to --task choices");
  require(kind.has_whole_word || !arguments.strict, "--strict belongs to --task lambada");
  check_begin_token(arguments.begin_token);
  require(!arguments.of_labels() || arguments.begin_token == "auto",
          "--begin-token belongs to tasks of models that predict tokens");
  require(arguments.micro_batch_size > 0 && arguments.micro_batch_size <= 1 << 20, "--micro-batch-size: 1 to 1048576");
  require(!arguments.output.force || !arguments.output.path.empty() || !arguments.predictions.path.empty(),
          "--force is for the files of --output and --predictions");
  check_model_options(arguments.model);
  arguments.output.inputs = {arguments.data, arguments.labels, arguments.model.vocab_file, arguments.model.merge_file};
  arguments.predictions.force = arguments.output.force;
  arguments.predictions.inputs = arguments.output.inputs;
  return arguments;
}

}  // namespace megatron
