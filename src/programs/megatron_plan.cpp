// megatron_plan INPUT.toml: which layouts of a run are fastest on some hardware, before they are queued for.
//
//   ./megatron_plan inputs/gpt3_175b.toml --hardware h100-sxm --ranks 1024
//   ./megatron_plan inputs/gpt3_175b.toml --hardware h100-sxm --ranks 1024 --explain
//   ./megatron_plan inputs/gpt3_175b.toml --hardware h100-sxm --ranks 1024 --fit 60GiB
//   ./megatron_plan llama-2-7b --hardware a100-sxm --ranks 64 --write plan.toml
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string_view>

#include "base/system/durable_file.h"
#include "base/text/text.h"
#include "config/parse/parse.h"
#include "config/parse/presets.h"
#include "config/schema/print.h"
#include "config/schema/suggestions.h"
#include "planning/dry_run/checkpoint_size.h"
#include "planning/dry_run/dry_run.h"
#include "planning/dry_run/machine_plan.h"
#include "planning/dry_run/plan_text.h"
#include "planning/layout_search/fit.h"
#include "planning/layout_search/plan_report.h"
#include "planning/layout_search/plan_trace.h"
#include "programs/program.h"
#include "training/datasets/datasets.h"

namespace megatron {
namespace {

namespace po = boost::program_options;

struct Arguments {
  std::string input, hardware, software, fit;
  OutputFile write{"--write", ""}, output{"--output", ""}, trace{"--trace", ""};
  std::vector<std::string> overrides;
  int ranks = 0, results = 10;
  bool explain = false, force = false, version = false, help = false;
};

po::options_description options(Arguments& arguments) {
  po::options_description described("Options", kHelpColumns, kDescriptionColumns);
  auto add = described.add_options();
  add("input", po::value(&arguments.input)->value_name("INPUT.toml"),
      "the input file, or the name of a model preset (inputs/README.md lists both)");
  add("set", po::value(&arguments.overrides)->composing()->value_name("TABLE.KEY=VALUE"),
      "overrides a key of the input file; may be given several times");
  add("hardware", po::value(&arguments.hardware)->value_name("NAME"),
      "a100-sxm, h100-sxm, h200, or the path of a file such as inputs/hardware/h100-sxm.toml");
  add("software", po::value(&arguments.software)->value_name("NAME"),
      "whose efficiencies: a [software.NAME] of the hardware's file (default: its software_used)");
  add("ranks", po::value(&arguments.ranks)->value_name("N"), "ranks, one on each device");
  add("results", po::value(&arguments.results)->default_value(arguments.results)->value_name("N"),
      "layouts to print, 1 to 100");
  add("explain", po::bool_switch(&arguments.explain),
      "searches nothing: says where the time of the file's own layout goes");
  add("fit", po::value(&arguments.fit)->value_name("16GiB"),
      "searches no layouts: says which micro-batches, recomputation and optimizer state bring the file's own layout "
      "under this number of bytes per rank at the lowest price");
  add("write", po::value(&arguments.write.path)->value_name("FILE.toml"), "writes the input file of the best layout");
  add("force", po::bool_switch(&arguments.force),
      "replaces the files of --write, --output and --trace, if there are any");
  add("output", po::value(&arguments.output.path)->value_name("FILE.json"), "writes all numbers as JSON");
  add("trace", po::value(&arguments.trace.path)->value_name("FILE.json"),
      "with --explain: writes the predicted step as a timeline for https://ui.perfetto.dev");
  add("version", po::bool_switch(&arguments.version), "prints version and libraries");
  add("help,h", po::bool_switch(&arguments.help), "prints this");
  return described;
}

/// Before anything is searched: each can be written, and is none of the others.
void check_outputs(Arguments& arguments) {
  const auto place = [](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path));
  };
  std::vector<std::filesystem::path> paths;
  for (OutputFile* const file : {&arguments.write, &arguments.output, &arguments.trace}) {
    if (file->path.empty()) continue;
    verify(std::find(paths.begin(), paths.end(), place(file->path)) == paths.end(), ErrorKind::configuration,
           "{} {}: another argument names this file; give a different name", file->option, file->path);
    paths.push_back(place(file->path));
    file->force = arguments.force;
    file->inputs = {arguments.input, arguments.hardware};
    check_output(*file);
  }
  verify(!arguments.force || !paths.empty(), ErrorKind::configuration,
         "--force is for the files of --write, --output and --trace");
}

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  po::positional_options_description positional;
  positional.add("input", 1);
  parse_command_line(argc, argv, options(arguments), positional, [](const auto&) {
    return std::string("there is one input file; its keys are set with --set TABLE.KEY=VALUE");
  });
  if (arguments.help || arguments.version) return arguments;
  verify(!arguments.input.empty(), ErrorKind::configuration,
         "give an input file or a preset: megatron_plan INPUT.toml --hardware NAME --ranks N; see --help");
  verify(!arguments.hardware.empty(), ErrorKind::configuration,
         "give --hardware NAME: a100-sxm, h100-sxm, h200, or the path of a file");
  verify(arguments.ranks >= 1 && arguments.ranks <= 1 << 20, ErrorKind::configuration,
         "give --ranks N: from 1 to 1048576 devices");
  verify(arguments.results >= 1 && arguments.results <= 100, ErrorKind::configuration, "--results {}: 1 to 100",
         arguments.results);
  verify(!arguments.explain || arguments.write.path.empty(), ErrorKind::configuration,
         "--explain is about the file's own layout: there is nothing to --write; give one or the other");
  verify(arguments.explain || arguments.trace.path.empty(), ErrorKind::configuration,
         "--trace {} is of the file's own layout: give --explain with it", arguments.trace.path);
  verify(
      arguments.fit.empty() || !(arguments.explain || !arguments.write.path.empty() || !arguments.output.path.empty()),
      ErrorKind::configuration, "--fit prints what it finds; --explain, --write and --output do not go with it");
  check_outputs(arguments);
  return arguments;
}

/// A run of a preset, where only a name was given: 100,000 steps of 4 million tokens.
std::string preset_input(const ModelPreset& preset) {
  constexpr std::int64_t tokens_of_step = 1 << 22;
  const std::int64_t samples = std::max<std::int64_t>(1, tokens_of_step / preset.model.sequence_length);
  return fmt::format(
      "[model]\npreset = \"{}\"\nvocab_size = 50257\n[train]\nsteps = 100000\nglobal_batch_size = {}\n[precision]\n"
      "compute = \"bf16\"\n[data]\ntrain = \"data/train\"\n",
      preset.name, samples);
}

std::string near_preset(const std::string& name) {
  const std::string near = suggest_preset(name);
  return near.empty() ? "" : fmt::format(" (did you mean {}?)", near);
}

Config read_input(const Arguments& arguments) {
  std::vector<std::string> notes;
  const bool is_file = std::filesystem::exists(arguments.input);
  const ModelPreset* preset = is_file ? nullptr : find_preset(arguments.input);
  verify(is_file || preset != nullptr || arguments.input.ends_with(".toml"), ErrorKind::configuration,
         "{}: there is no such file and no such preset{}; {}", arguments.input, near_preset(arguments.input),
         kPresetList);
  Config config = preset != nullptr
                      ? parse_config_text(preset_input(*preset), arguments.input, arguments.overrides, &notes)
                      : parse_config(arguments.input, arguments.overrides, &notes);
  for (const std::string& note : notes) std::cerr << "warning: " << note << "\n";
  if (preset != nullptr) {
    std::cerr << fmt::format(
        "note: no file, the preset {}: batches of {} samples, bf16, a vocabulary of {}, 100000 steps; --set changes "
        "them\n",
        preset->name, config.train.global_batch_size, config.model.vocab_size);
  }
  return config;
}

// The cost of a failure and of a save, for a run of this layout.
std::string describe_saving(const PlannedLayout& layout) {
  const Config& config = layout.recorded.config;
  std::vector<MemoryPlan> stages;
  for (const int played : layout.recorded.stage_to_played) {
    stages.push_back(layout.recorded.played[static_cast<std::size_t>(played)].memory);
  }
  const std::int64_t bytes = planned_checkpoint_bytes(config, stages);
  const std::optional<double> seconds = layout.run_seconds > 0 ? std::optional(layout.run_seconds) : std::nullopt;
  return wrapped(describe_saves(config) + describe_disk(config, bytes, nullptr, seconds));
}

int plan(const Arguments& arguments) {
  const Hardware hardware = read_hardware(arguments.hardware, arguments.software);
  const Config config = read_input(arguments);
  const std::optional<DataFacts> facts = facts_of_data(config);
  const SearchSettings settings{
      .ranks = arguments.ranks, .results = arguments.results, .data = facts ? &*facts : nullptr};
  if (!arguments.fit.empty()) {
    std::cout << describe_fit(fit_memory(config, hardware, settings, parse_bytes(arguments.fit)));
    return 0;
  }
  std::vector<PlannedLayout> layouts;
  if (arguments.explain) {
    layouts.push_back(plan_layout(config, hardware, settings));
    std::cout << explain_layout(layouts.front(), hardware);
    if (!arguments.trace.path.empty()) {
      write_plan_trace(layouts.front(), hardware, arguments.trace);
      std::cout << fmt::format("trace     {}; open it with https://ui.perfetto.dev\n", arguments.trace.path);
    }
  } else {
    SearchResult found = search_layouts(config, hardware, settings);
    std::cout << describe_search(found, hardware, arguments.ranks);
    layouts = std::move(found.best);
  }
  std::cout << describe_saving(layouts.front());
  if (!arguments.write.path.empty()) {
    Config best = layouts.front().config;
    best.run.device = config.run.device;
    best.run.communication = config.run.communication;
    const std::string heading = fmt::format(
        "# The first layout of megatron_plan {} --hardware {} --ranks {}. Keys that are not here have their defaults:\n"
        "# inputs/README.md has all keys, and `megatron_train {} --print-config` prints their values.\n\n",
        arguments.input, arguments.hardware, arguments.ranks, arguments.write.path);
    write_output(arguments.write, heading + print_given_keys(best, with_preset_alone(best)));
    std::cout << fmt::format("written   {}: the first layout\n", arguments.write.path);
  }
  if (!arguments.output.path.empty()) {
    write_output(arguments.output, layouts_as_json(layouts, hardware, arguments.ranks));
    std::cout << fmt::format("written   {}: all numbers\n", arguments.output.path);
  }
  return 0;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  using namespace megatron;
  return run_alone([&] {
    const Arguments arguments = parse_arguments(argc, argv);
    if (arguments.help) {
      Arguments unused;
      std::cout << "Usage: megatron_plan INPUT.toml --hardware NAME --ranks N [options]\n\n"
                << list_options(options(unused));
      return 0;
    }
    if (arguments.version) {
      std::cout << version_report("megatron_plan");
      return 0;
    }
    return plan(arguments);
  });
}
