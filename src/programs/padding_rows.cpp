#include "programs/padding_rows.h"

#include <algorithm>

#include "base/core/error.h"
#include "config/parse/parse.h"

namespace megatron {

namespace {

/// By the configuration that a checkpoint keeps; 0: it says nothing, or nothing that this program reads.
std::int64_t vocabulary_of(const CheckpointReader& checkpoint) {
  const auto text = checkpoint.state().extra.find("config");
  if (text == checkpoint.state().extra.end() || !text->is_string()) return 0;
  try {
    return parse_config_text(text->get<std::string>(), checkpoint.path() + " (its configuration)").model.vocab_size;
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

std::map<std::string, std::int64_t> rows_of_words(const CheckpointReader& a, const CheckpointReader& b) {
  const std::int64_t rows = std::max(vocabulary_of(a), vocabulary_of(b));
  if (rows < 1) return {};
  return {{"embedding.word.weight", rows}, {"head.weight", rows}, {"head.bias", rows}};
}

}  // namespace megatron
