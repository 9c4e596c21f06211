#include "faults/endless_runs.h"

#include <cstdio>
#include <cstdlib>

#include "support/catch.h"
#include "support/temporary_folder.h"

Command endless(const std::string& directory, const std::string& every_steps, const char* async) {
  return training(kCube, directory,
                  {kEndless, "train.evaluate_every=0", "checkpoint.every_steps=" + every_steps,
                   std::string("checkpoint.async=") + async});
}

std::vector<pid_t> launchers_of(const Process& process) {
  std::vector<pid_t> launchers;
  for (const char* name : {"mpirun", "orterun", "prterun"}) {
    for (const pid_t launcher : process.children(name)) launchers.push_back(launcher);
  }
  REQUIRE_FALSE(launchers.empty());
  return launchers;
}

std::int64_t require_resumable(const std::string& directory) {
  const std::int64_t saved = saved_steps(directory).back(), last = saved + 2;
  const Finished resumed =
      train(kCube, directory,
            {"train.steps=" + std::to_string(last), "train.evaluate_every=0", "checkpoint.every_steps=1000000"});
  CHECK(mentions(resumed.out, "resuming from " + checkpoint(directory, saved)));
  CHECK(numbers(directory, "train") == first(reference_numbers(last), last));
  return last;
}

int times(const char* variable, int usual) {
  const char* value = std::getenv(variable);
  return value == nullptr ? usual : std::atoi(value);
}

std::mt19937 seeded() {
  const char* value = std::getenv("MEGATRON_SEED");
  const auto seed = value == nullptr ? std::random_device()() : static_cast<unsigned>(std::atoll(value));
  std::printf("MEGATRON_SEED=%u\n", seed);
  return std::mt19937(seed);
}

void require_same_weights(const std::string& directory, std::int64_t step) {
  const TemporaryFolder folder;
  const std::string straight = folder.file("straight");
  train(kCube, straight,
        {"train.steps=" + std::to_string(step), "train.evaluate_every=0", "checkpoint.every_steps=1000000"},
        60 + 0.1 * static_cast<double>(step));
  CHECK(same_rank_files(directory, straight, step));
}
