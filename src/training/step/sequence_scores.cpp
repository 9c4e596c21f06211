#include "training/step/sequence_scores.h"

#include <algorithm>
#include <numeric>

#include "distributed/comm/meanings.h"

namespace megatron {

namespace {

constexpr std::int64_t kResults = 3;

// One sequence in each column, without documents, whose targets count alike.
BatchLayout layout_of_sequences(const BatchLayout& layout) {
  return layout.without(&Rows::weights).without(&Rows::document_starts);
}

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::size_t ScoringBatches::result_bytes(const BatchSizes& sizes, std::int64_t micro_batches) {
  return static_cast<std::size_t>(micro_batches * kResults * sizes.rows[0] * sizes.samples) * sizeof(float);
}

// Contents of this rank's micro-batches of a pass.
struct SequenceScores::Pass {
  std::vector<std::vector<std::size_t>> columns;  // by micro-batch: the sequences of its first columns
  std::vector<MicroBatch> micro_batches;
  std::vector<TargetResults> results;
};

SequenceScores::SequenceScores(const ProcessGrid& grid, Device& device, const ScoringBatches& batches)
    : grid_(grid),
      device_(device),
      batches_(batches),
      layout_(layout_of_sequences(batches.buffer->layout())),
      result_memory_(device, ScoringBatches::result_bytes(layout_.sizes, batches.micro_batches)) {}

// Micro-batch k of data rank r (of d, micro-batch size b) has the places k·b·d + r·b + (0 .. b-1) of `order`, as in
// training. Each is as long as the longest sequence that it or another rank has of those it shares experts out with,
// whose messages are of equal parts; or, where context ranks cut it, as the longest of the pass, since row numbers are
// those of all its micro-batches. What is behind the end of a sequence is token 0, which no row in front of it sees.
void SequenceScores::place(std::span<const ScoredSequence> sequences, std::span<const std::size_t> order, Pass& pass) {
  const std::int64_t b = layout_.sizes.samples, d = grid_.data().size(), rank = grid_.data().rank();
  const std::int64_t first_sharer = rank - grid_.expert().rank(), sharers = grid_.expert().size();
  const auto count = static_cast<std::int64_t>(order.size());
  const auto last_row = [&](std::size_t number) {
    return static_cast<std::int64_t>(sequences[number].tokens.size()) - 1;
  };
  const bool cut = layout_.sizes.cut.cuts();
  if (cut) batches_.number_rows(sizes_of(last_row(order.front())));  // the longest is the first
  pass = {};
  for (std::int64_t k = 0; k * b * d < count; ++k) {
    const auto begin_of = [&](std::int64_t data_rank) {
      return order.begin() + std::min(count, (k * d + data_rank) * b);
    };
    pass.columns.emplace_back(begin_of(rank), begin_of(rank + 1));
    std::int64_t rows = cut ? last_row(order.front()) : 1;
    for (auto number = begin_of(first_sharer); number != begin_of(first_sharer + sharers); ++number) {
      rows = std::max(rows, last_row(*number));
    }
    upload(sequences, static_cast<std::size_t>(k), sizes_of(rows), pass);
  }
}

// Sizes of a micro-batch whose sequences have at least `rows` rows.
BatchSizes SequenceScores::sizes_of(std::int64_t rows) const {
  const ZigZag& cut = layout_.sizes.cut;
  const std::int64_t unit = cut.cuts() ? std::lcm(batches_.row_unit, std::int64_t{2}) : batches_.row_unit;
  const std::int64_t part = round_up(rows, unit * cut.ranks) / cut.ranks;
  internal_check(part <= layout_.sizes.rows[0], "a sequence that is longer than the longest of the batch", part,
                 layout_.sizes.rows[0]);
  return {.rows = {part}, .samples = layout_.sizes.samples, .cut = cut};
}

void SequenceScores::upload(std::span<const ScoredSequence> sequences, std::size_t k, const BatchSizes& sizes,
                            Pass& pass) {
  const std::vector<std::size_t>& columns = pass.columns[k];
  const auto b = static_cast<std::size_t>(sizes.samples), cells = static_cast<std::size_t>(sizes.rows[0]) * b;
  std::vector<std::int32_t> tokens(cells), targets(cells);
  for (std::size_t column = 0; column < columns.size(); ++column) {
    const std::span<const std::int32_t> all = sequences[columns[column]].tokens;
    for (std::int64_t row = 0; row < sizes.rows[0]; ++row) {
      const auto place = static_cast<std::size_t>(sizes.cut.position(row, sizes.rows[0]));
      if (place + 1 >= all.size()) continue;
      tokens[static_cast<std::size_t>(row) * b + column] = all[place];
      targets[static_cast<std::size_t>(row) * b + column] = all[place + 1];
    }
  }
  const auto copy = [&](const BatchField& field, const std::vector<std::int32_t>& values) {
    device_.copy_to_device(batches_.buffer->at(field, k), values.data(), values.size() * sizeof(std::int32_t));
  };
  for (const BatchField& field : layout_.fields) {
    if (field.source != FieldSource::sample) continue;
    if (field.view == &Rows::tokens) {
      copy(field, tokens);
    } else if (field.view == &Rows::targets) {
      copy(field, targets);
    } else {
      internal_check(field.view == &Rows::position_ids, "scores of a model that reads more than tokens and positions");
      copy(field, row_numbers(field, sizes));
    }
  }
  pass.micro_batches.push_back(batches_.buffer->view(layout_, sizes, k));
  const auto most = static_cast<std::size_t>(layout_.sizes.rows[0]) * b;
  const auto result = [&](std::size_t i) {
    return result_memory_.tensor({static_cast<std::int64_t>(cells)}, DType::f32,
                                 (k * kResults + i) * most * sizeof(float));
  };
  pass.results.push_back({result(0), result(1), result(2)});
}

void SequenceScores::read(std::span<const ScoredSequence> sequences, std::span<const std::int64_t> first_targets,
                          const Pass& pass, std::span<double> scores) const {
  const auto b = static_cast<std::size_t>(layout_.sizes.samples);
  std::vector<float> losses, maximum, target_logit;
  const auto fetch = [&](const Tensor& from, std::vector<float>& to) {
    to.resize(static_cast<std::size_t>(from.elements()));
    device_.copy_to_host(to.data(), from.data(), from.bytes());
  };
  for (std::size_t k = 0; k < pass.columns.size(); ++k) {
    fetch(pass.results[k].losses, losses);
    fetch(pass.results[k].maximum, maximum);
    fetch(pass.results[k].target_logit, target_logit);
    for (std::size_t column = 0; column < pass.columns[k].size(); ++column) {
      const std::size_t number = pass.columns[k][column];
      const ScoredSequence& sequence = sequences[number];
      const std::int64_t rows = pass.micro_batches[k].rows(Stream::main).sequence;
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t i = layout_.sizes.cut.position(row, rows) - (sequence.first_scored - 1);
        if (i < 0 || i >= sequence.targets()) continue;
        const std::size_t cell = static_cast<std::size_t>(row) * b + column;
        const auto at = 2 * static_cast<std::size_t>(first_targets[number] + i);
        scores[at] = -losses[cell];
        scores[at + 1] = target_logit[cell] == maximum[cell] ? 1 : 0;
      }
    }
  }
}

std::optional<std::vector<TargetScore>> SequenceScores::score(std::span<const ScoredSequence> sequences,
                                                              const Play& play,
                                                              const std::function<bool(std::int64_t done)>& next) {
  std::vector<std::int64_t> first_targets;
  std::int64_t targets = 0;
  for (const ScoredSequence& sequence : sequences) {
    first_targets.push_back(targets);
    targets += sequence.targets();
  }
  // Sequences of a length go together, the longest first.
  std::vector<std::size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sequences[a].tokens.size() > sequences[b].tokens.size();
  });

  std::vector<double> scores(2 * static_cast<std::size_t>(targets));
  const auto together = static_cast<std::size_t>(batches_.micro_batches * layout_.sizes.samples * grid_.data().size());
  Pass pass;
  for (std::size_t first = 0; first < order.size(); first += together) {
    if (next && !next(static_cast<std::int64_t>(first))) return std::nullopt;
    place(sequences, std::span(order).subspan(first, std::min(together, order.size() - first)), pass);
    play(pass.micro_batches, pass.results);
    // One rank that has them counts; all have them after the sum below, since x + 0 is x.
    if (grid_.last_stage() && grid_.at().tensor == 0) read(sequences, first_targets, pass, scores);
  }
  constexpr std::size_t kTogether = 2048;
  for (std::size_t first = 0; first < scores.size(); first += kTogether) {
    grid_.world().all_reduce_values(std::span(scores).subspan(first, std::min(kTogether, scores.size() - first)),
                                    kScores);
  }
  std::vector<TargetScore> result;
  for (std::size_t i = 0; i < scores.size(); i += 2) result.push_back({scores[i], scores[i + 1] != 0});
  return result;
}

}  // namespace megatron
