// Helpers for the tests of whole programs: a small corpus, commands that train on it, and readers for what a run
// leaves. Programs are started as users start them, through scripts/launch.sh; nothing here links against the trainer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "support/process.h"

/// Ranks by what they share; the number of ranks is the product.
struct Layout {
  int tensor = 1, pipeline = 1, data = 1;
  int ranks() const { return tensor * pipeline * data; }
  std::string name() const;
};

inline constexpr Layout kOneRank{}, kTwoTensorRanks{2, 1, 1}, kCube{2, 2, 2};
inline constexpr int kPlannedSteps = 8;  ///< steps of the runs that end by themselves and of the learning rate's decay

using Settings = std::vector<std::string>;  ///< "table.key=value" for --set

/// The corpus' folder: corpus.jsonl, shards of prefix data/corpus, input.toml (4 layers, hidden 32, dropout, batch 8).
/// Made at the first call; gone when the program ends.
std::filesystem::path shared_folder();
std::string input_file();
std::string data_prefix();

std::string train_program();
std::string generate_program();
std::string preprocess_program();
std::string checkpoint_program();
std::string source_folder();

/// `command` on `ranks` ranks through the launch script; on 0 ranks without it.
Command launched(int ranks, const Command& command);
/// Training on a layout into a directory; one rank starts without a launcher. Default input: input_file().
Command training(const Layout& layout, const std::string& directory, const Settings& settings = {},
                 const std::string& input = "");
/// The same, run to its end within `limit` seconds, which must be exit code 0.
Finished train(const Layout& layout, const std::string& directory, const Settings& settings = {}, double limit = 60);

/// A run of kPlannedSteps without interruption that keeps the checkpoint of every step. Made once for each layout.
const std::string& straight_run(const Layout& layout);
/// The training metrics of an uninterrupted run of at least `steps` steps on the cube, as `numbers` gives them.
const std::vector<std::string>& reference_numbers(std::int64_t steps);

/// The lines of metrics.jsonl without what depends on time. `kind`: "train", "eval", or "" for both.
std::vector<std::string> numbers(const std::string& directory, const std::string& kind = "");
/// The first `count` of them.
std::vector<std::string> first(std::vector<std::string> lines, std::int64_t count);
std::vector<double> losses(const std::string& directory);
std::int64_t metrics_lines(const std::string& directory);

std::string checkpoint(const std::string& directory, std::int64_t step);
/// Steps that have a folder with a manifest, ascending.
std::vector<std::int64_t> saved_steps(const std::string& directory);
/// Name and contents of a checkpoint's rank files.
std::map<std::string, std::string> rank_files(const std::string& directory, std::int64_t step);
bool same_rank_files(const std::string& a, const std::string& b, std::int64_t step);
/// Name and contents of all files below a folder, without run.log and the locks, which name who was there.
std::map<std::string, std::string> all_files(const std::string& folder);

/// A copy of a run as it was after `step`: later checkpoints are gone (later metrics stay, as after a crash).
void copy_run(const std::string& from, const std::string& to, std::int64_t step);

/// Errors of ours in standard error, of all processes; several lines of one process count once.
int error_lines(const Finished& finished);
/// The first of them. Libraries may have written lines before it (Open MPI does where there is no /sys).
std::string first_error(const Finished& finished);
bool mentions(const std::string& text, const std::string& part);
std::string last_line(const std::string& text);

/// Waits until a started run has this number of lines of metrics. False when it ends before, or hangs.
bool wait_for_lines(Process& process, const std::string& directory, std::int64_t lines);
