#include "data/samples/labelled_samples.h"

#include <utility>

#include "base/core/philox.h"
#include "base/text/text.h"
#include "data/samples/sample_order.h"
#include "data/samples/vector_memory.h"

namespace megatron {

EncodedExamples::EncodedExamples(const Tokenizer& tokenizer, std::int64_t columns, std::int64_t sequence_length)
    : ids_(tokenizer.special_ids()), columns_(columns), sequence_length_(sequence_length) {
  verify(
      ids_.cls >= 0 && ids_.sep >= 0 && ids_.pad >= 0, ErrorKind::data,
      "the vocabulary of tokenizer \"{}\" lacks one of the tokens [CLS], [SEP] and [PAD] that a text with a label is "
      "framed with; take a WordPiece vocabulary (task.tokenizer = \"bert-uncased\")",
      tokenizer.name());
}

bool EncodedExamples::truncate(std::vector<std::int32_t>& a, std::vector<std::int32_t>& b, std::size_t most) const {
  const bool too_long = a.size() + b.size() > most;
  while (a.size() + b.size() > most) (a.size() > b.size() ? a : b).pop_back();
  return too_long;
}

void EncodedExamples::add(Encoder& encoder, const LabelledExample& example) {
  internal_check(static_cast<std::int64_t>(example.texts.size()) == columns_, "an example of other columns",
                 example.texts.size(), columns_);
  bool cut = false;
  for (const TextPair& pair : example.texts) {
    a_.clear();
    b_.clear();
    encoder.encode(pair.a, a_);
    if (pair.b) encoder.encode(*pair.b, b_);
    const std::size_t frame = pair.b ? 3 : 2;
    cut = truncate(a_, b_, static_cast<std::size_t>(sequence_length_) - frame) || cut;
    tokens_.push_back(ids_.cls);
    tokens_.insert(tokens_.end(), a_.begin(), a_.end());
    tokens_.push_back(ids_.sep);
    first_.push_back(static_cast<std::uint32_t>(a_.size() + 2));
    tokens_.insert(tokens_.end(), b_.begin(), b_.end());
    if (pair.b) tokens_.push_back(ids_.sep);
    ends_.push_back(tokens_.size());
  }
  truncated_ += cut ? 1 : 0;
  labels_.push_back(example.label);
}

void EncodedExamples::shrink() {
  a_.clear();
  b_.clear();
  give_back_reserve(tokens_, labels_, ends_, first_, a_, b_);
}

std::size_t EncodedExamples::bytes() const {
  return held_bytes(tokens_, labels_, ends_, first_, a_, b_);
}

EncodedExamples::Text EncodedExamples::text(std::uint64_t example, std::int64_t column) const {
  const std::uint64_t at = example * static_cast<std::uint64_t>(columns_) + static_cast<std::uint64_t>(column);
  const std::uint64_t begin = at == 0 ? 0 : ends_[at - 1];
  return {std::span(tokens_).subspan(begin, ends_[at] - begin), first_[at]};
}

LabelledSamples::LabelledSamples(std::shared_ptr<const EncodedExamples> examples, Order order, std::uint64_t seed)
    : examples_(std::move(examples)), order_(order), seed_(seed) {
  internal_check(examples_->size() > 0, "samples of no examples", examples_->size());
}

std::string LabelledSamples::description() const {
  return fmt::format("{}: {} per pass", order_ == Order::shuffled ? "shuffled anew in each pass" : "sequential",
                     counted(static_cast<std::int64_t>(samples()), "example"));
}

std::uint64_t LabelledSamples::example_of(std::uint64_t sample) const {
  const std::uint64_t pass = sample / samples(), place = sample % samples();
  if (order_ == Order::sequential) return place;
  return permute(place, samples(), random_key(seed_, pass, hash_name("examples with labels")));
}

void LabelledSamples::make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) {
  internal_check(to.rows() == examples_->sequence_length() && to.columns() == examples_->columns(),
                 "a batch of other sizes than its samples", to.rows(), examples_->sequence_length(), to.columns(),
                 examples_->columns());
  const std::uint64_t example = example_of(sample);
  for (std::int64_t i = 0; i < to.columns(); ++i) {
    const SampleColumn column = to.next(i);
    const EncodedExamples::Text text = examples_->text(example, i);
    const Column<std::int32_t> tokens = column.of<std::int32_t>(&Rows::tokens),
                               types = column.of<std::int32_t>(&Rows::types),
                               lengths = column.of<std::int32_t>(&Rows::lengths);
    for (std::int64_t row = 0; row < to.rows(); ++row) {
      const auto place = static_cast<std::size_t>(row);
      const bool padding = place >= text.tokens.size();
      if (tokens) tokens[row] = padding ? examples_->pad() : text.tokens[place];
      if (types) types[row] = !padding && place >= text.first ? 1 : 0;
    }
    if (lengths) lengths[0] = static_cast<std::int32_t>(text.tokens.size());
  }
  if (const Column<std::int32_t> labels = to.of<std::int32_t>(&Rows::labels)) labels[0] = examples_->label(example);
  counts[0] += 1;
}

std::vector<NamedTokens> LabelledSamples::show(std::uint64_t sample) {
  const std::uint64_t example = example_of(sample);
  NamedTokens tokens{"tokens", {}}, types{"types", {}};
  for (std::int64_t i = 0; i < examples_->columns(); ++i) {
    const EncodedExamples::Text text = examples_->text(example, i);
    tokens.ids.insert(tokens.ids.end(), text.tokens.begin(), text.tokens.end());
    for (std::size_t place = 0; place < text.tokens.size(); ++place) types.ids.push_back(place >= text.first ? 1 : 0);
  }
  return {std::move(tokens), std::move(types), {"label", {examples_->label(example)}}};
}

}  // namespace megatron
