// Helpers for the tests that end runs from outside: runs that would take hours, moments drawn at random, and the checks
// that an ended run resumes with the numbers of one without a break.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "faults/runs.h"

inline constexpr const char* kEndless = "train.steps=1000000";

/// A run on the cube that would take hours, without the evaluations that would only cost time.
Command endless(const std::string& directory, const std::string& every_steps, const char* async = "false");

/// The launchers below a process: mpirun, by the name that it has in each Open MPI. At least one, or the test fails.
std::vector<pid_t> launchers_of(const Process& process);

/// Resumes at the newest checkpoint for two steps more; all numbers must be those of a run without a break. Returns the
/// last step.
std::int64_t require_resumable(const std::string& directory);

/// The rank files of `step` must be those of a run without a break.
void require_same_weights(const std::string& directory, std::int64_t step);

/// How often a test repeats a random moment: `usual` times, or as the environment says, for the long run by hand.
int times(const char* variable, int usual);

/// For random moments: prints its seed, which MEGATRON_SEED sets.
std::mt19937 seeded();
