// The corpus that the demonstration trains on.
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/core/philox.h"
#include "base/system/durable_file.h"
#include "programs/sample_corpus.h"
#include "support/data_support.h"
#include "support/file_size_limit.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("sample corpus: the same on every machine, and of the size asked for", "[corpus]") {
  ShardFolder folder;
  const SampleCorpusSummary summary = write_sample_corpus(folder.file("c.jsonl"), 200000, 1);
  const std::string corpus = contents_of(folder.file("c.jsonl"));
  CHECK(summary.bytes == corpus.size());
  CHECK((corpus.size() >= 200000 && corpus.size() < 202000));
  CHECK(folder.files() == std::vector<std::string>{"c.jsonl"});
  std::uint64_t number = 0;
  std::set<std::string> different;
  std::istringstream lines(corpus);
  for (std::string line; std::getline(lines, line); ++number) {
    const std::string text = nlohmann::json::parse(line)["text"];
    CHECK(text == sample_story(1, number));
    CHECK(text.find_first_of("{}") == std::string::npos);  // every placeholder was filled
    different.insert(text);
  }
  CHECK(number == summary.stories);
  CHECK(different.size() == number);
  CHECK(sample_story(1, 0) != sample_story(2, 0));
  CHECK(hash_name(corpus) == 0x24c248020c4f8c00);  // changes with every change of the stories
}

TEST_CASE("sample corpus: a failed write says why and leaves nothing", "[corpus][fault]") {
  ShardFolder folder;
  require_error(ErrorKind::filesystem,
                {temporary_name(folder.file("c.jsonl")) + ": cannot write it: File too large", "ulimit -f"}, [&] {
                  const FileSizeLimit limit(100000);
                  write_sample_corpus(folder.file("c.jsonl"), 200000, 1);
                });
  CHECK(folder.files().empty());
  write_file(folder.file("file"), "no folder");
  require_error(ErrorKind::filesystem, {"file: cannot make this folder"},
                [&] { write_sample_corpus(folder.file("file/c.jsonl"), 1000, 1); });
}
