#include "programs/padding_rows.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <string>

#include "checkpoint/store/slice_stream.h"
#include "config/parse/parse.h"

namespace megatron {

namespace {

constexpr const char* kTablesOfWords[] = {"embedding.word.weight", "head.weight", "head.bias"};

/// By the configuration that a checkpoint keeps; 0: it says nothing.
std::int64_t vocabulary_of(const CheckpointReader& checkpoint) {
  const auto text = checkpoint.state().extra.find("config");
  if (text == checkpoint.state().extra.end() || !text->is_string()) return 0;
  return parse_config_text(text->get<std::string>(), checkpoint.path() + " (its configuration)").model.vocab_size;
}

/// Whether the first `rows` rows of a tensor have the same bits in both.
bool same_rows(const CheckpointReader& a, const CheckpointReader& b, const std::string& name, std::int64_t rows) {
  std::vector<TensorSlice> slices = whole_tensors(a);
  std::erase_if(slices, [&](const TensorSlice& slice) { return slice.name != name; });
  for (TensorSlice& slice : slices) slice.count = slice.count / slice.global_shape[0] * rows;
  SliceStream here(a, slices), there(b, slices);
  for (std::int64_t position = 0; position < here.elements();) {
    const std::span<const float> ours = here.read(position);
    const std::span<const float> theirs = there.read(position);
    if (ours.size() != theirs.size() || std::memcmp(ours.data(), theirs.data(), ours.size_bytes()) != 0) return false;
    position += static_cast<std::int64_t>(ours.size());
  }
  return true;
}

}  // namespace

std::int64_t leave_out_padding(const CheckpointReader& a, const CheckpointReader& b,
                               std::vector<TensorDifference>& tensors) {
  std::int64_t equal = 0;
  for (TensorDifference& tensor : tensors) {
    const auto* const end = std::end(kTablesOfWords);
    if (tensor.equal() || std::find(std::begin(kTablesOfWords), end, tensor.name) == end) continue;
    const std::int64_t vocabulary = std::max(vocabulary_of(a), vocabulary_of(b));
    if (vocabulary < 1 || vocabulary >= tensor.shape[0] || !same_rows(a, b, tensor.name, vocabulary)) continue;
    for (NumberDifference& each : tensor.numbers) each.largest = 0, each.differing = 0;
    ++equal;
  }
  return equal;
}

}  // namespace megatron
