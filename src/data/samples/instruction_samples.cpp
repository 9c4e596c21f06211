#include "data/samples/instruction_samples.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "base/core/philox.h"
#include "base/text/text.h"
#include "data/samples/sample_order.h"
#include "data/samples/vector_memory.h"

namespace megatron {

Packs pack_best_fit(const std::vector<std::uint32_t>& sizes, std::int64_t capacity) {
  std::vector<std::uint32_t> order(sizes.size()), bin_of(sizes.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return sizes[a] > sizes[b]; });
  Packs packs;                                            // its ends are counts at first
  std::set<std::pair<std::int64_t, std::uint32_t>> room;  // and the bin that has it
  for (const std::uint32_t item : order) {
    const std::int64_t size = sizes[item];
    internal_check(size <= capacity, "an item that is larger than a bin", size, capacity);
    auto fitting = room.lower_bound({size, 0});
    if (fitting == room.end()) {
      fitting = room.emplace(capacity, static_cast<std::uint32_t>(packs.ends.size())).first;
      packs.ends.push_back(0);
    }
    const auto [left, bin] = *fitting;
    bin_of[item] = bin;
    ++packs.ends[bin];
    room.erase(fitting);
    room.emplace(left - size, bin);
  }
  std::vector<std::uint32_t> next(packs.ends.size());
  std::exclusive_scan(packs.ends.begin(), packs.ends.end(), next.begin(), 0U);
  std::inclusive_scan(packs.ends.begin(), packs.ends.end(), packs.ends.begin());
  packs.items.resize(sizes.size());
  for (const std::uint32_t item : order) packs.items[next[bin_of[item]]++] = item;
  return packs;
}

EncodedInstructions::EncodedInstructions(const Tokenizer& tokenizer, std::int64_t sequence_length)
    : sequence_length_(sequence_length), end_(tokenizer.eod_id()), encoder_(tokenizer.make_encoder()) {}

void EncodedInstructions::add(const Instruction& instruction) {
  const std::size_t first = tokens_.size();
  std::vector<TextPart> parts;
  for (const InstructionPart& part : instruction) {
    parts.push_back({part.text, part.of_template ? SpecialTokens::tokens : SpecialTokens::text});
  }
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> part_of;
  encoder_->encode_parts(parts, ids, part_of);
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  for (const std::uint32_t part : part_of) learned_.push_back(instruction[part].learned ? 1 : 0);
  // The first token is no target: an answer without a prompt follows the end of a document.
  if (tokens_.size() > first && learned_[first] != 0) {
    tokens_.insert(tokens_.begin() + static_cast<std::ptrdiff_t>(first), end_);
    learned_.insert(learned_.begin() + static_cast<std::ptrdiff_t>(first), 0);
  }
  if (ids.empty() || ids.back() != end_) {  // a template may end with it
    tokens_.push_back(end_);
    learned_.push_back(instruction.back().learned ? 1 : 0);
  }
  const std::size_t rows = tokens_.size() - first - 1;
  const bool learns =
      std::find(learned_.begin() + static_cast<std::ptrdiff_t>(first), learned_.end(), 1) != learned_.end();
  if (rows <= static_cast<std::size_t>(sequence_length_) && rows > 0 && learns) {
    ends_.push_back(tokens_.size());
    return;
  }
  if (rows == 0 || !learns) {
    ++without_answer_;
  } else {
    ++too_long_;
    shortest_too_long_ = shortest_too_long_ == 0 ? rows : std::min<std::uint64_t>(shortest_too_long_, rows);
  }
  tokens_.resize(first);
  learned_.resize(first);
}

void EncodedInstructions::pack(const std::string& path) {
  encoder_.reset();
  verify(examples() > 0 || too_long_ > 0, ErrorKind::data, "{}: none of its {} examples has a token to learn", path,
         without_answer_);
  verify(examples() > 0, ErrorKind::data,
         "{}: none of its {} examples fits into a sequence of model.sequence_length = {} tokens; the shortest has {}",
         path, left_out(), sequence_length_, shortest_too_long_);
  verify(examples() < std::numeric_limits<std::uint32_t>::max(), ErrorKind::data,
         "{}: {} examples are more than 2^32 - 1; divide the file", path, examples());
  std::vector<std::uint32_t> rows;
  for (std::uint64_t i = 0; i < examples(); ++i) rows.push_back(static_cast<std::uint32_t>(text(i).rows()));
  by_length_.resize(rows.size());
  std::iota(by_length_.begin(), by_length_.end(), 0U);
  std::stable_sort(by_length_.begin(), by_length_.end(), [&](auto a, auto b) { return rows[a] > rows[b]; });
  std::vector<std::uint32_t> sorted;
  for (const std::uint32_t example : by_length_) {
    if (sorted.empty() || sorted.back() != rows[example]) {
      length_starts_.push_back(static_cast<std::uint32_t>(sorted.size()));
    }
    sorted.push_back(rows[example]);
  }
  packs_ = pack_best_fit(sorted, sequence_length_);
  give_back_reserve(tokens_, learned_, ends_, length_starts_, packs_.ends);
}

std::size_t EncodedInstructions::bytes() const {
  return held_bytes(tokens_, learned_, ends_, by_length_, length_starts_, packs_.items, packs_.ends);
}

double EncodedInstructions::filled() const {
  return static_cast<double>(tokens_.size() - examples()) /
         (static_cast<double>(samples()) * static_cast<double>(sequence_length_));
}

EncodedInstructions::Text EncodedInstructions::text(std::uint64_t example) const {
  const std::uint64_t first = example == 0 ? 0 : ends_[example - 1], count = ends_[example] - first;
  return {std::span(tokens_).subspan(first, count), std::span(learned_).subspan(first, count)};
}

std::pair<std::uint32_t, std::uint32_t> EncodedInstructions::same_length(std::uint32_t place) const {
  const auto next = std::upper_bound(length_starts_.begin(), length_starts_.end(), place);
  return {*std::prev(next), next == length_starts_.end() ? static_cast<std::uint32_t>(by_length_.size()) : *next};
}

InstructionSamples::InstructionSamples(std::shared_ptr<const EncodedInstructions> examples, Order order,
                                       std::uint64_t seed)
    : examples_(std::move(examples)), order_(order), seed_(seed) {
  internal_check(examples_->samples() > 0, "samples of no examples", examples_->samples());
}

std::string InstructionSamples::description() const {
  return fmt::format("{} in {} per pass, {:.1f} % of their rows filled{}",
                     counted(static_cast<std::int64_t>(examples_->examples()), "example"),
                     counted(static_cast<std::int64_t>(samples()), "sample"), 100 * examples_->filled(),
                     order_ == Order::shuffled ? "; shuffled anew in each pass" : "");
}

std::vector<std::uint64_t> InstructionSamples::examples_of(std::uint64_t sample) const {
  const std::uint64_t pass = sample / samples();
  std::uint64_t pack = sample % samples();
  const bool shuffled = order_ == Order::shuffled;
  if (shuffled) pack = permute(pack, samples(), random_key(seed_, pass, hash_name("packed examples")));
  std::vector<std::uint64_t> examples;
  for (std::uint32_t place : examples_->pack_at(pack)) {
    if (shuffled) {
      const auto [first, end] = examples_->same_length(place);
      place =
          first + static_cast<std::uint32_t>(permute(
                      place - first, end - first, random_key(seed_, pass, hash_name("examples of a length") + first)));
    }
    examples.push_back(examples_->example_at(place));
  }
  return examples;
}

void InstructionSamples::make(std::uint64_t sample, const SampleColumn& to, std::span<double> counts) {
  internal_check(to.rows() == examples_->sequence_length(), "a batch of other sizes than its samples", to.rows(),
                 examples_->sequence_length());
  const Column<std::int32_t> tokens = to.of<std::int32_t>(&Rows::tokens), targets = to.of<std::int32_t>(&Rows::targets),
                             positions = to.of<std::int32_t>(&Rows::position_ids),
                             starts = to.of<std::int32_t>(&Rows::document_starts);
  const Column<float> weights = to.of<float>(&Rows::weights);
  std::int64_t row = 0;
  const auto place = [&](std::int64_t start, std::int32_t token, std::int32_t target, bool learned) {
    if (tokens) tokens[row] = token;
    if (targets) targets[row] = target;
    if (positions) positions[row] = static_cast<std::int32_t>(row - start);
    if (starts) starts[row] = static_cast<std::int32_t>(start);
    if (weights) weights[row] = learned ? 1.0f : 0.0f;
    counts[0] += learned ? 1 : 0;
    ++row;
  };
  for (const std::uint64_t example : examples_of(sample)) {
    const EncodedInstructions::Text text = examples_->text(example);
    const std::int64_t start = row;
    for (std::size_t i = 0; i < text.rows(); ++i) {
      place(start, text.tokens[i], text.tokens[i + 1], text.learned[i + 1] != 0);
    }
  }
  const std::int64_t padding = row;
  while (row < to.rows()) place(padding, examples_->end(), examples_->end(), false);
}

std::vector<NamedTokens> InstructionSamples::show(std::uint64_t sample) {
  NamedTokens tokens{"tokens", {}}, learned{"learned", {}}, positions{"positions", {}};
  for (const std::uint64_t example : examples_of(sample)) {
    const EncodedInstructions::Text text = examples_->text(example);
    for (std::size_t i = 0; i < text.tokens.size(); ++i) {
      tokens.ids.push_back(text.tokens[i]);
      learned.ids.push_back(text.learned[i]);
      positions.ids.push_back(static_cast<std::int32_t>(i));
    }
  }
  return {std::move(tokens), std::move(learned), std::move(positions)};
}

}  // namespace megatron
