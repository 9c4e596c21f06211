// Sizes of compressed files: one rank unpacks each of them for all, and all have its error.
#include <zlib.h>

#include "data/cleaning_steps/clean_support.h"
#include "data/preprocess/same_inputs.h"
#include "support/check_on_rank.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Lines that compression makes little of.
std::string noise(int lines, unsigned seed) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    std::string line;
    for (int j = 0; j < 2000; ++j) line += static_cast<char>('a' + ((seed = seed * 1664525u + 1013904223u) >> 28));
    text += json_line(line);
  }
  return text;
}

void write_gzip(const std::string& path, const std::string& text) {
  gzFile file = ::gzopen(path.c_str(), "wb");
  REQUIRE(::gzwrite(file, text.data(), static_cast<unsigned>(text.size())) == static_cast<int>(text.size()));
  REQUIRE(::gzclose(file) == Z_OK);
}

}  // namespace

TEST_CASE("clean: sizes of compressed files are found once for all ranks", "[clean]") {
  const ShardFolder folder;
  std::vector<std::string> paths;
  double bytes = 0;
  for (unsigned i = 0; i < 5; ++i) {
    paths.push_back(folder.file("a" + std::to_string(i) + ".jsonl.gz"));
    write_gzip(paths.back(), noise(4000, i));
    bytes += static_cast<double>(std::filesystem::file_size(paths.back()));
  }
  const TextCorpus alone({.paths = paths, .format = ""});
  const double before = bytes_read();
  run_as_threads(8, [&](Communicator& world) {
    TextCorpus corpus({.paths = paths, .format = ""}, TextCorpus::Sizes::told_later);
    share_sizes(world, corpus);
    CHECK_ON_RANK(corpus.file_bytes() == alone.file_bytes());
  });
  CHECK(bytes_read() - before < 1.5 * bytes);
  StepJob job = job_of(folder, "merge", {});
  job.inputs = paths;
  job.block_bytes = 1 << 20;
  const double before_step = bytes_read();
  play(job, 8);
  // Hashing and finding the sizes, once each, and each rank's own reading.
  CHECK(bytes_read() - before_step < (2 + 8 + 1) * bytes);
}

TEST_CASE("clean: of damaged files the first one is told, as by one rank", "[clean][fault-141]") {
  const ShardFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 6; ++i) {
    paths.push_back(folder.file("a" + std::to_string(i) + ".jsonl.gz"));
    write_gzip(paths.back(), json_line("text"));
  }
  for (const int damaged : {4, 2, 3}) {  // ranks take them in other orders
    write_file(paths[static_cast<std::size_t>(damaged)], contents_of(paths[static_cast<std::size_t>(damaged)]) + "x");
  }
  StepJob job = job_of(folder, "merge", {});
  job.inputs = paths;
  std::string alone;
  for (const int ranks : {1, 2, 3, 8}) {
    try {
      play(job, ranks);
      FAIL_CHECK("no error on " << ranks << " ranks");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::data);
      if (alone.empty()) alone = error.what();
      CHECK(error.what() == alone);
    }
  }
  CHECK(alone.starts_with(paths[2] + ": "));
  CHECK_FALSE(std::filesystem::exists(folder.file("out")));
}
