// Helpers for several test files here: checks of refusals, and shards of the golden files' small vocabulary.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "faults/runs.h"

/// Run to its end within 60 s, which must be exit code 0.
Finished done(const Command& command);
/// Run to its end within 90 s; checks the exit code, and that each part is in standard output or standard error.
Finished expect(const Command& command, int code, const std::vector<std::string>& parts = {});
/// A shell's script, run to its end.
Finished in_shell(const std::string& script, double limit = 60);
/// megatron_preprocess with these arguments.
Command preprocess(std::vector<std::string> arguments);
/// Generation with these options from straight_run(kOneRank).
Command generate(const std::vector<std::string>& options, int ranks = 0);
/// Whether a run's checkpoints have a folder that is not complete.
bool has_temporary_folder(const std::string& run);
/// The losses and their named terms in all lines of two runs' metrics agree to 2e-5 of themselves.
void check_same_losses(const std::string& a, const std::string& b);
/// The most memory per rank that a data tool says it has taken, in MiB.
double stated_mebibytes(const std::string& out);
/// JSON lines.
std::vector<nlohmann::json> lines_of(const std::string& text);

/// Ended by itself with this code and one error, in which all the words are.
void require_refused(const Finished& finished, int code, const std::vector<std::string>& words);

/// `command`, each word quoted for a shell.
std::string quoted(const Command& command);

/// A file of the small vocabulary for GPT-2's tokenizer: vocab.json or merges.txt.
std::string small_vocabulary(const std::string& file);
/// Preprocessing of the shared corpus with it, into shards of this prefix.
Command preprocess_with_vocabulary(const std::string& prefix, const std::string& merges);
/// Its merges, of which the last two, both of bytes, have changed places: another vocabulary with the same tokens.
std::string other_merges();
