#include "faults/runs.h"
#include "support/catch.h"

#include <nlohmann/json.hpp>

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

const char* const kGptInput =
    R"(# A model small enough to train in milliseconds, with everything on that a run can have.
[model]
layers = 4
hidden_size = 32
attention_heads = 4
sequence_length = 16
hidden_dropout = 0.1
attention_dropout = 0.1

[train]
steps = 8
micro_batch_size = 2
global_batch_size = 8
evaluate_every = 4
evaluate_steps = 2

[learning_rate]
peak = 1e-3
minimum = 1e-4
warmup_steps = 2
decay_steps = 8        # said here, so that it does not move with train.steps

[data]
train = "@DATA@"
)";

std::vector<ordered_json> metrics(const std::string& directory) {
  std::vector<ordered_json> lines;
  std::ifstream file(directory + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    auto object = ordered_json::parse(line, nullptr, false);
    if (object.is_object()) lines.push_back(std::move(object));
  }
  return lines;
}

struct SharedFolder {
  TemporaryFolder folder;

  SharedFolder() {
    const std::string corpus = folder.file("corpus.jsonl"), prefix = folder.file("data/corpus");
    Finished made = run_command({preprocess_program(), "sample-corpus", "--output", corpus, "--megabytes", "0.2"});
    if (made.code == 0) {
      made = run_command({preprocess_program(), "--input", corpus, "--output", prefix, "--tokenizer", "byte"});
    }
    if (made.code != 0) throw std::runtime_error("cannot make the corpus: " + made.err);
    std::string text = kGptInput;
    text.replace(text.find("@DATA@"), 6, prefix);
    write_file(folder.file("input.toml"), text);
  }
};

}  // namespace

std::string Layout::name() const {
  return std::to_string(tensor) + "x" + std::to_string(pipeline) + "x" + std::to_string(data);
}

fs::path shared_folder() {
  static const SharedFolder shared;
  return shared.folder.path();
}

std::string input_file() {
  return (shared_folder() / "input.toml").string();
}
std::string data_prefix() {
  return (shared_folder() / "data/corpus").string();
}
std::string train_program() {
  return MEGATRON_TRAIN;
}
std::string generate_program() {
  return MEGATRON_GENERATE;
}
std::string preprocess_program() {
  return MEGATRON_PREPROCESS;
}
std::string checkpoint_program() {
  return MEGATRON_CHECKPOINT;
}
std::string source_folder() {
  return MEGATRON_SOURCE;
}

Command launched(int ranks, const Command& command) {
  Command all;
  if (ranks > 0) all = {MEGATRON_LAUNCH_SCRIPT, std::to_string(ranks)};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

Command training(const Layout& layout, const std::string& directory, const Settings& settings,
                 const std::string& input) {
  Command command = {train_program(), input.empty() ? input_file() : input};
  Settings all = {"run.directory=" + directory, "parallel.tensor=" + std::to_string(layout.tensor),
                  "parallel.pipeline=" + std::to_string(layout.pipeline),
                  "parallel.data=" + std::to_string(layout.data)};
  all.insert(all.end(), settings.begin(), settings.end());
  for (const std::string& setting : all) {
    command.push_back("--set");
    command.push_back(setting);
  }
  return launched(layout.ranks() == 1 ? 0 : layout.ranks(), command);
}

Finished train(const Layout& layout, const std::string& directory, const Settings& settings, double limit) {
  const Finished finished = run_command(training(layout, directory, settings), limit);
  INFO(finished.out << finished.err);
  REQUIRE_FALSE(finished.timed_out);
  REQUIRE(finished.code == 0);
  return finished;
}

const std::string& straight_run(const Layout& layout) {
  static std::map<std::string, std::string> runs;
  std::string& directory = runs[layout.name()];
  if (directory.empty()) {
    const std::string place = (shared_folder() / ("straight_" + layout.name())).string();
    train(layout, place, {"checkpoint.every_steps=1", "checkpoint.keep_last=0"});
    directory = place;
  }
  return directory;
}

const std::vector<std::string>& reference_numbers(std::int64_t steps) {
  static std::vector<std::string> lines;
  if (static_cast<std::int64_t>(lines.size()) < steps) {
    const std::int64_t length = std::max<std::int64_t>(2 * steps, 100);
    const std::string place = (shared_folder() / ("reference_" + std::to_string(length))).string();
    train(kCube, place, {"train.steps=" + std::to_string(length), "train.evaluate_every=0"},
          60 + 0.1 * static_cast<double>(length));
    lines = numbers(place, "train");
  }
  return lines;
}

std::vector<std::string> numbers(const std::string& directory, const std::string& kind) {
  std::vector<std::string> lines;
  for (ordered_json& line : metrics(directory)) {
    if (!kind.empty() && line.at("kind") != kind) continue;
    for (const char* name :
         {"step_seconds", "tokens_per_second", "model_tflops_per_rank", "hardware_tflops_per_rank", "time"}) {
      line.erase(name);
    }
    lines.push_back(line.dump());
  }
  return lines;
}

std::vector<std::string> first(std::vector<std::string> lines, std::int64_t count) {
  REQUIRE(static_cast<std::int64_t>(lines.size()) >= count);
  lines.resize(static_cast<std::size_t>(count));
  return lines;
}

std::vector<double> losses(const std::string& directory) {
  std::vector<double> result;
  for (const ordered_json& line : metrics(directory)) {
    if (line.at("kind") == "train") result.push_back(line.at("loss").get<double>());
  }
  return result;
}

std::int64_t metrics_lines(const std::string& directory) {
  const std::string text = contents_of(directory + "/metrics.jsonl");
  return std::count(text.begin(), text.end(), '\n');
}

std::string checkpoint(const std::string& directory, std::int64_t step) {
  std::string digits = std::to_string(step);
  digits.insert(0, 8 - digits.size(), '0');
  return directory + "/checkpoints/step_" + digits;
}

std::vector<std::int64_t> saved_steps(const std::string& directory) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator at(directory + "/checkpoints", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.rfind("step_", 0) == 0 && fs::exists(at->path() / "manifest.json"))
      steps.push_back(std::stoll(name.substr(5)));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::map<std::string, std::string> rank_files(const std::string& directory, std::int64_t step) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(checkpoint(directory, step))) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("rank_", 0) == 0) files[name] = contents_of(entry.path().string());
  }
  return files;
}

bool same_rank_files(const std::string& a, const std::string& b, std::int64_t step) {
  const auto files = rank_files(a, step);
  return !files.empty() && files == rank_files(b, step);
}

std::map<std::string, std::string> all_files(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && name != "run.log" && name != "lock" && name != ".lock") {
      files[entry.path().string()] = contents_of(entry.path().string());
    }
  }
  return files;
}

void copy_run(const std::string& from, const std::string& to, std::int64_t step) {
  fs::copy(from, to, fs::copy_options::recursive);
  for (const std::int64_t saved : saved_steps(to)) {
    if (saved > step) fs::remove_all(checkpoint(to, saved));
  }
}

int error_lines(const Finished& finished) {
  int count = 0;
  bool in_error = false;  // the errors of one process follow each other, and the first alone names its rank
  std::istringstream lines(finished.err);
  for (std::string line; std::getline(lines, line);) {
    if (mentions(line, "error: ")) {
      count += in_error && line.starts_with("error: ") && !line.starts_with("error: rank ") ? 0 : 1;
      in_error = true;
    } else {
      in_error = in_error && line.starts_with(" ");
    }
  }
  return count;
}

std::string first_error(const Finished& finished) {
  std::istringstream lines(finished.err);
  for (std::string line; std::getline(lines, line);) {
    if (mentions(line, "error: ")) return line;
  }
  return "";
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n'), begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool wait_for_lines(Process& process, const std::string& directory, std::int64_t lines) {
  for (int waited = 0; waited < kBusy * 20000; ++waited) {
    if (metrics_lines(directory) >= lines) return process.running();
    if (!process.running()) return false;
    pause_milliseconds(3);
  }
  return false;
}
