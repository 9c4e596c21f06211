// A corpus to try the program on: short children's stories from a small grammar, as JSON lines {"text": ...}.
//
// The same (seed, bytes) give the same file on every machine. Stories keep their characters, things and places from the
// first sentence to the last, so that a model has something to learn beyond spelling.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

/// The story of this number; a pure function. Some hundred bytes of ASCII, paragraphs separated by one newline.
std::string sample_story(std::uint64_t seed, std::uint64_t number);

struct SampleCorpusSummary {
  std::uint64_t stories = 0, bytes = 0;
};

/// Writes whole stories until the file has at least `bytes` bytes, under a temporary name until it is complete.
/// ErrorKind::filesystem if that fails.
SampleCorpusSummary write_sample_corpus(const std::string& path, std::uint64_t bytes, std::uint64_t seed,
                                        bool overwrite = false);

}  // namespace megatron
