// Shared by the tests of preprocessing: jobs, a run of several ranks in turns, and errors that must leave nothing.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "data/preprocess/preprocess.h"
#include "data/shards/token_dataset.h"
#include "support/catch.h"
#include "support/data_support.h"

namespace megatron::test {

inline PreprocessJob job_of(const ShardFolder& folder, const std::vector<std::string>& inputs) {
  PreprocessJob job;
  for (const std::string& input : inputs) job.inputs.paths.push_back(folder.file(input));
  job.output = folder.file("out/p");
  job.shard_bytes = 4096;
  return job;
}

/// One that may process blocks.
inline std::unique_ptr<Preprocessor> open_preprocessor(const PreprocessJob& job) {
  auto preprocessor = std::make_unique<Preprocessor>(job);
  std::vector<std::uint64_t> bytes;
  for (std::size_t i = 0; i < preprocessor->inputs().files(); ++i) {
    bytes.push_back(preprocessor->inputs().count_bytes(i));
  }
  preprocessor->inputs().set_file_bytes(bytes);
  preprocessor->open();
  return preprocessor;
}

/// Does the program's work with `ranks` ranks that take turns. Returns the blocks' sum.
inline BlockSummary run(const PreprocessJob& job, std::uint64_t ranks = 1) {
  std::vector<std::unique_ptr<Preprocessor>> workers;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) workers.push_back(open_preprocessor(job));
  std::vector<BlockSummary> all;
  for (std::uint64_t block = 0; block < workers[0]->blocks(); ++block) {
    all.push_back(workers[block % ranks]->process(block));
  }
  for (auto& worker : workers) worker->publish(all);
  for (auto& worker : workers) worker->finish(worker == workers[0]);
  BlockSummary sum;
  for (const BlockSummary& block : all) {
    sum.documents += block.documents;
    sum.tokens += block.tokens;
    sum.bad += block.bad;
    sum.empty += block.empty;
  }
  return sum;
}

/// The documents of a finished set as texts; the end-of-document token is shown as '|'.
inline std::vector<std::string> texts_of(const std::string& prefix) {
  TokenDataset dataset(prefix);
  std::vector<std::string> texts;
  for (std::uint64_t i = 0; i < dataset.documents(); ++i) {
    const std::uint64_t first = dataset.document_start(i), count = dataset.document_start(i + 1) - first;
    std::vector<std::int32_t> ids(count);
    dataset.read(first, count, ids.data());
    std::string text;
    for (const std::int32_t id : ids) text.push_back(id == 256 ? '|' : static_cast<char>(id));
    texts.push_back(text);
  }
  return texts;
}

inline std::string json_line(const std::string& text) {
  return nlohmann::json{{"text", text}}.dump() + "\n";
}

/// `work` must fail as said and leave no file but the inputs.
inline void require_clean_error(const ShardFolder& folder, const PreprocessJob& job, ErrorKind kind,
                                const std::vector<std::string>& parts) {
  const std::vector<std::string> before = folder.files();
  require_error(kind, parts, [&] { run(job, 2); });
  CHECK(folder.files() == before);
}

}  // namespace megatron::test
