// megatron_clean: JSON lines to cleaner JSON lines, one step at a time or several by a recipe.
//
// Under mpirun the ranks share the input (data/cleaning_steps/play_step.h). An error is the same on all ranks, and is
// told once.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "base/core/named_rows.h"
#include "base/system/memory_usage.h"
#include "base/system/notes.h"
#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "config/schema/suggestions.h"
#include "data/cleaning_steps/recipe.h"
#include "distributed/comm/gather.h"
#include "programs/clean_report.h"
#include "programs/program.h"
#include "programs/progress_line.h"

namespace megatron {

namespace {

namespace po = boost::program_options;

constexpr const char* kUsage =
    "Usage: megatron_clean STEP --input FILE... --output FOLDER [options]\n"
    "  or:  megatron_clean run RECIPE.toml [options]\n"
    "\n"
    "Cleans documents, one a line as JSON objects: FOLDER/documents.jsonl has those that are kept, in the order of "
    "the\n"
    "input, FOLDER/report.json what went and why, FOLDER/provenance.json what they were made from. All members that a\n"
    "step does not change stay as they are. Under an MPI launcher, the ranks share the input.\n";
constexpr const char *kRun = "run", *kReportWord = "report";

/// Options of the command line, without the keys of the step.
struct CommandLine {
  StepJob job;
  std::string compress = "none", compatibility = "none", recipe;
  bool skip_bad = false, overwrite = false;
};

po::options_description common_options(CommandLine& line) {
  StepJob& job = line.job;
  po::options_description options("Options", kHelpColumns, kDescriptionColumns);
  options.add_options()("help", "this text")("version", "the version");
  options.add_options()("input", po::value(&job.inputs)->multitoken()->value_name("FILE..."),
                        "JSON lines to read, also gzip, zstd and bzip2; a folder stands for all files in it and below");
  options.add_options()("output", po::value(&job.output)->value_name("FOLDER"), "the folder of the result");
  options.add_options()("format", po::value(&job.format)->value_name("jsonl|list"),
                        "by the extension if not given (.jsonl .ndjson .json; .txt is a list, one entry a line)");
  options.add_options()("text-key", po::value(&job.text_key)->value_name("KEY")->default_value(job.text_key),
                        "the text's key in each JSON object");
  options.add_options()("compress", po::value(&line.compress)->value_name("none|gzip|zstd")->default_value("none"),
                        "how the result is compressed");
  options.add_options()("compat", po::value(&line.compatibility)->value_name("none|megatron")->default_value("none"),
                        "megatron: the thresholds of Megatron-LM's openwebtext tools as defaults");
  options.add_options()("examples", po::value(&job.examples)->value_name("N")->default_value(job.examples),
                        "documents of each rule that the report shows");
  options.add_options()("longest", po::value(&job.longest)->value_name("BYTES")->default_value(job.longest),
                        "a longer line is a bad document");
  options.add_options()("block-bytes", po::value(&job.block_bytes)->value_name("N")->default_value(job.block_bytes),
                        "bytes of input that are a rank's unit of work; the result does not depend on it");
  options.add_options()("skip-bad", po::bool_switch(&line.skip_bad),
                        "leave bad documents out and count them, instead of stopping at the first");
  options.add_options()("overwrite", po::bool_switch(&line.overwrite),
                        "replace another result that lies in the folder (an equal one always may be)");
  return options;
}

po::options_description recipe_options(CommandLine& line) {
  po::options_description options("Options", kHelpColumns, kDescriptionColumns);
  options.add_options()("help", "this text")("version", "the version");
  options.add_options()("input", po::value(&line.job.inputs)->multitoken()->value_name("FILE..."),
                        "instead of the recipe's inputs");
  options.add_options()("output", po::value(&line.job.output)->value_name("FOLDER"), "instead of the recipe's output");
  options.add_options()("block-bytes",
                        po::value(&line.job.block_bytes)->value_name("N")->default_value(line.job.block_bytes),
                        "bytes of input that are a rank's unit of work; the result does not depend on it");
  options.add_options()("overwrite", po::bool_switch(&line.overwrite),
                        "replace another result that lies in the folder (an equal one always may be)");
  return options;
}

/// The keys of a step as options. Their values are read as texts, and told to the step once all are known.
po::options_description key_options(const StepRow& step) {
  po::options_description options(fmt::format("Keys of {}", step.name), kHelpColumns, kDescriptionColumns);
  for (const KeyRow& key : step.keys) {
    auto* const value = po::value<std::string>()->value_name(std::string(key.shown));
    std::string help(key.help);
    if (!key.value.empty()) help += fmt::format(" (default {})", key.value);
    if (!key.megatron.empty()) help += fmt::format(" (--compat megatron: {})", key.megatron);
    options.add_options()(option_name(key.name).c_str(), value, help.c_str());
  }
  return options;
}

std::string list_of_steps() {
  std::string text = "Steps (STEP --help tells more):\n";
  for (const StepRow& step : step_table()) text += fmt::format("  {:15}{}\n", step.name, step.about);
  return text +
         fmt::format("  {:15}{}\n", kRun, "plays several, as a recipe says; continues where it was interrupted") +
         fmt::format("  {:15}{}\n", kReportWord, "writes one HTML page about a result: what went and why");
}

[[noreturn]] void fail_without_step(const std::string& word) {
  std::vector<std::string> names = names_of(step_table());
  names.emplace_back(kRun);
  names.emplace_back(kReportWord);
  const std::string near = suggest_choice(word, names);
  fail(ErrorKind::configuration, "there is no step '{}'{}; --help lists them", word,
       near.empty() ? "" : ", did you mean '" + near + "'?");
}

/// `argv[0]` is the step's name.
StepJob job_of_step(const StepRow& step, int argc, char** argv) {
  CommandLine line;
  po::options_description options = common_options(line);
  const po::options_description keys = key_options(step);
  options.add(keys);
  const po::variables_map found =
      parse_command_line(argc, argv, options, po::positional_options_description(),
                         [](const std::string& word) { return "files are given as --input " + word; });
  line.job.step = &step;
  line.job.packing = packing_of(line.compress);
  line.job.skip_bad = line.skip_bad;
  line.job.overwrite = line.overwrite;
  line.job.keys = StepKeys(step.keys, compatibility_of(line.compatibility));
  for (const KeyRow& key : step.keys) {
    const auto value = found.find(option_name(key.name));
    if (value != found.end()) line.job.keys.set(key.name, value->second.as<std::string>());
  }
  verify(!line.job.inputs.empty() && !line.job.output.empty(), ErrorKind::configuration,
         "give --input FILE... and --output FOLDER; see {} --help", step.name);
  return line.job;
}

Recipe recipe_of(Communicator& world, int argc, char** argv) {
  CommandLine line;
  po::options_description options = recipe_options(line);
  options.add_options()("recipe", po::value(&line.recipe)->value_name("FILE"));
  po::positional_options_description positional;
  positional.add("recipe", 1);
  parse_command_line(argc, argv, options, positional);
  verify(!line.recipe.empty(), ErrorKind::configuration, "usage: megatron_clean run RECIPE.toml; see run --help");
  Recipe recipe = read_recipe(world, line.recipe);
  if (!line.job.inputs.empty()) recipe.steps.front().inputs = line.job.inputs;
  for (StepJob& job : recipe.steps) {
    if (!line.job.output.empty()) job.output = line.job.output;
    job.overwrite = line.overwrite;
    job.block_bytes = line.job.block_bytes;
  }
  return recipe;
}

void check_job(StepJob& job) {
  constexpr std::uint64_t kLeastBlock = 4096, kLargestBlock = std::uint64_t{1} << 30;
  verify(job.block_bytes >= kLeastBlock && job.block_bytes <= kLargestBlock, ErrorKind::configuration,
         "--block-bytes: at least {}, at most {}", kLeastBlock, kLargestBlock);
  verify(job.longest > 0 && job.longest <= kLongestDocument, ErrorKind::configuration,
         "--longest: at least 1, at most {}", kLongestDocument);
  job.program = "megatron_clean " + program_version();
}

/// "; removed: domain 3, too_short 1".
std::string counts_in_words(const nlohmann::ordered_json& provenance, const char* group) {
  std::string words;
  for (const auto& [name, count] : provenance.at(group).items()) {
    if (count.get<std::uint64_t>() == 0) continue;
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", name, count.get<std::uint64_t>());
  }
  return words.empty() ? "" : fmt::format("  {}: {}\n", group, words);
}

/// Tells the terminal of rank 0 about the steps. The same calls on every rank.
class StepReporter {
 public:
  explicit StepReporter(Communicator& world) : world_(world), progress_(world.rank() == 0, 0) {}

  void begin(const StepJob& job) {
    progress_ = ProgressLine(world_.rank() == 0, 0);
    std::string note = fmt::format("{}: at most {} of memory per rank, besides the program and what the step keeps",
                                   job.step->name, format_bytes(static_cast<double>(most_step_bytes(job))));
    if (job.step->note != nullptr) note += "\n" + job.step->note(job.keys);
    if (world_.rank() == 0) print_note(note);
  }
  void show(std::uint64_t done, std::uint64_t all) {
    progress_.set_total(all);
    progress_.show(done);
  }
  void end(const StepJob& job, const StepResult& result) {
    const std::vector<std::size_t> memory = gather(world_, peak_resident_bytes());
    if (world_.rank() > 0) return;
    const auto& documents = result.provenance.at("documents");
    const auto count = [&](const char* name) { return documents.at(name).get<std::int64_t>(); };
    std::uint64_t bytes = 0;
    for (const auto& output : result.provenance.at("outputs")) bytes += output.at("bytes").get<std::uint64_t>();
    fmt::print("{}: {}: {} read, {} kept in {}", job.output, job.step->name, counted(count("read"), "document"),
               count("kept"), format_bytes(static_cast<double>(bytes)));
    if (result.was_finished) {
      fmt::print("; it was there already, made from the same\n");
    } else {
      fmt::print("; {:.1f} s, with at most {} of memory per rank\n", progress_.seconds(),
                 format_bytes(static_cast<double>(*std::max_element(memory.begin(), memory.end()))));
    }
    fmt::print("{}{}", counts_in_words(result.provenance, "removed"), counts_in_words(result.provenance, "changed"));
    if (count("bad") > 0) fmt::print("  {} bad documents left out (--skip-bad)\n", count("bad"));
  }

 private:
  Communicator& world_;
  ProgressLine progress_;
};

void run(Communicator& world, int argc, char** argv) {
  StepReporter reporter(world);
  const StepProgress progress = [&](std::uint64_t done, std::uint64_t all) { reporter.show(done, all); };
  if (argc > 1 && std::string_view(argv[1]) == kRun) {
    Recipe recipe = recipe_of(world, argc - 1, argv + 1);
    for (StepJob& job : recipe.steps) check_job(job);
    const std::string output = recipe.steps.back().output;
    const RecipeListener listener{
        .begin = [&](const StepJob& job) { reporter.begin(job); },
        .end = [&](const StepJob& job, const StepResult& result) { reporter.end(job, result); },
        .progress = progress};
    const bool played = play_recipe(world, std::move(recipe), listener);
    if (!played && world.rank() == 0) fmt::print("{}: finished already, made from the same\n", output);
    return;
  }
  verify(argc > 1, ErrorKind::configuration, "name a step; --help lists them");
  const StepRow* const step = find_step(argv[1]);
  if (step == nullptr) fail_without_step(argv[1]);
  StepJob job = job_of_step(*step, argc - 1, argv + 1);
  check_job(job);
  reporter.begin(job);
  reporter.end(job, play_step(world, job, progress));
}

std::string help_of(const std::string& word) {
  CommandLine line;
  if (word == kRun) {
    return "Usage: megatron_clean run RECIPE.toml [options]\n"
           "\n"
           "Plays the steps of a recipe one after the other. The results between them lie in OUTPUT.steps/ until the\n"
           "last one is there. A recipe that was interrupted continues with the first step that is not finished.\n"
           "\n" +
           list_options(recipe_options(line));
  }
  if (word == kReportWord) return clean_report_help();
  const StepRow* const step = find_step(word);
  if (step == nullptr) return kUsage + ("\n" + list_options(common_options(line))) + "\n" + list_of_steps();
  std::string text = fmt::format("Usage: megatron_clean {0} --input FILE... --output FOLDER [options]\n\n{0} {1}.\n\n",
                                 step->name, step->about);
  if (!step->keys.empty()) text += list_options(key_options(*step)) + "\n";
  return text + list_options(common_options(line));
}

/// Answers what needs no MPI. Returns whether there was anything.
bool answered(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--version") std::cout << version_report("megatron_clean");
    if (word == "--help" || word == "-h") std::cout << help_of(argv[1]);
    if (word == "--version" || word == "--help" || word == "-h") return true;
  }
  if (argc < 2 || argv[1] != std::string_view(kReportWord)) return false;
  write_clean_report(argc - 1, argv + 1);
  return true;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  return run_data_tool(
      argc, argv, [&] { return answered(argc, argv); }, [&](Communicator& world) { run(world, argc, argv); });
}
