// Shared by the tests of steps: jobs, runs on threads as ranks, and the files of a result.
#pragma once

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "data/cleaning_steps/recipe.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/data_support.h"

namespace megatron::test {

using KeyValues = std::vector<std::pair<std::string, std::string>>;

inline StepJob job_of(const ShardFolder& folder, const std::string& step, const std::vector<std::string>& inputs,
                      const KeyValues& keys = {}) {
  StepJob job;
  job.step = find_step(step);
  REQUIRE(job.step != nullptr);
  job.keys = StepKeys(job.step->keys);
  for (const auto& [name, value] : keys) job.keys.set(name, value);
  for (const std::string& input : inputs) job.inputs.push_back(folder.file(input));
  job.output = folder.file("out");
  job.block_bytes = 4096;
  job.program = "test";
  return job;
}

inline StepResult play(const StepJob& job, int ranks = 1) {
  StepResult result;
  run_as_threads(ranks, [&](Communicator& world) {
    const StepResult mine = play_step(world, job);
    if (world.rank() == 0) result = mine;
  });
  return result;
}

/// Bytes that this process has read from files and others, by the kernel's count.
inline double bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  double bytes = 0;
  file >> name >> bytes;
  REQUIRE(name == "rchar:");
  return bytes;
}

/// Name and contents of all files in a folder and below.
inline std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().lexically_relative(folder).string()] = contents_of(entry.path());
  }
  return files;
}

inline std::string documents(const ShardFolder& folder, const std::string& name = "documents.jsonl") {
  return contents_of(folder.file("out/" + name));
}

inline nlohmann::json report(const ShardFolder& folder) {
  return nlohmann::json::parse(contents_of(folder.file("out/report.json")));
}

inline std::string json_line(const std::string& text) {
  return nlohmann::json{{"text", text}}.dump() + "\n";
}

/// The texts of documents, by line.
inline std::vector<std::string> texts_of(const std::string& lines) {
  std::vector<std::string> texts;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) texts.push_back(nlohmann::json::parse(line)["text"]);
  return texts;
}

/// Plays a job on several numbers of ranks and sizes of blocks, which must all make the same files.
inline void require_same_everywhere(const ShardFolder& folder, StepJob job) {
  std::map<std::string, std::string> expected;
  for (const int ranks : {1, 2, 3, 8}) {
    for (const std::uint64_t block : {std::uint64_t{4096}, std::uint64_t{5003}, std::uint64_t{1} << 20}) {
      job.block_bytes = block;
      INFO(ranks << " ranks, blocks of " << block);
      play(job, ranks);
      const auto made = files_in(folder.file("out"));
      if (expected.empty()) expected = made;
      CHECK((made == expected));
      std::filesystem::remove_all(folder.file("out"));
    }
  }
  REQUIRE(expected.size() >= 3);
}

/// `work` must fail as said and leave no file but those that were there.
template <class Work>
void require_clean_error(const ShardFolder& folder, ErrorKind kind, const std::vector<std::string>& parts,
                         const Work& work) {
  const auto before = files_in(folder.path());
  require_error(kind, parts, work);
  CHECK((files_in(folder.path()) == before));
}

}  // namespace megatron::test
