#include "support/tiny_batches.h"

#include <cstring>
#include <numeric>

#include "base/core/philox.h"
#include "support/tiny_pairs.h"
#include "support/tiny_translation.h"

namespace megatron::test {

namespace {

/// Two of three targets, none of another document than the token.
double weigh_answers(std::span<const std::int32_t> tokens, std::span<float> weights) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = tokens[i] != kTinyEnd && tokens[i + 1] % 3 != 0 ? 1.0f : 0.0f;
  }
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

double loss_scale(const Config& config) {
  return config.precision.loss_scale > 0 ? config.precision.loss_scale : 1;
}

}  // namespace

int TinyBatches::token(int step, std::int64_t sample, std::int64_t position, std::int64_t vocab) {
  const auto word = philox4x32<7>(
      {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(position), 0},
      99)[0];
  return static_cast<int>(word % static_cast<std::uint32_t>(vocab));
}

TinyBatches::TinyBatches(const Config& config, int data_rank, int context_rank)
    : config_(config),
      pairs_(batch_layout(config).find(&Rows::types) != nullptr),
      translations_(config.model.has_decoder()),
      instructions_(config.task.name == "instructions"),
      columns_(config.train.micro_batch_size * config.model.task_choices),
      weigh_(instructions_ ? LossWeights(weigh_answers) : training_weights(config, kTinyEnd)),
      schedule_(config),
      counts_(family_of(config.model).loss_terms(config).size()) {
  const std::int64_t b = columns_;
  const std::int64_t s = translations_ ? config.model.decoder_sequence_length : config.model.sequence_length;
  const auto count = static_cast<std::size_t>(micro_batches_per_step(config));
  const auto size = static_cast<std::size_t>(s * b);
  tokens_.assign(count, std::vector<int>(size));
  targets_ = document_starts_ = document_position_ids_ = types_ = tokens_;
  lengths_.assign(count, std::vector<int>(static_cast<std::size_t>(b)));
  labels_ = lengths_;
  weights_.assign(count, std::vector<float>(size));
  const auto number = [b](std::int64_t rows, std::vector<int>& positions, std::vector<int>& ids) {
    for (std::int64_t i = 0; i < rows; ++i) {
      positions.push_back(static_cast<int>(i));
      ids.insert(ids.end(), static_cast<std::size_t>(b), static_cast<int>(i));
    }
  };
  number(s, positions_, position_ids_);
  number(config.model.sequence_length, encoder_positions_, encoder_position_ids_);
  encoder_tokens_.assign(count, std::vector<int>(encoder_position_ids_.size()));
  encoder_lengths_ = lengths_;
  for (std::size_t k = 0; k < count; ++k) {
    MicroBatch batch;
    batch.samples = b;
    batch.first_sample = (static_cast<std::int64_t>(k) * config.parallel.data + data_rank) * b;
    micro_batches_.push_back(batch);
  }
  const BatchLayout layout = batch_layout_of_rank(family_of(config.model), config, context_rank);
  if (layout.sizes.cut.cuts()) {
    const bool weighs = weigh_ || pairs_ || translations_;
    cut_ =
        BatchBuffer(weighs ? layout : layout.without(&Rows::weights), static_cast<std::int64_t>(count), host_memory());
  }
}

void TinyBatches::cut(std::size_t count, const StepShape& shape) {
  // Translations have one length: a step's is their encoder's.
  const BatchSizes sizes = cut_.layout().sizes.with_sequence(translations_ ? 0 : shape.sequence);
  cut_.write_row_numbers(sizes,
                         [](void* to, const void* values, std::size_t bytes) { std::memcpy(to, values, bytes); });
  cut_micro_batches_.clear();
  for (std::size_t k = 0; k < count; ++k) {
    cut_batch(micro_batches_[k], cut_, sizes, k);
    cut_micro_batches_.push_back(cut_.view(cut_.layout(), sizes, k));
    cut_micro_batches_.back().first_sample = micro_batches_[k].first_sample;
  }
}

// All ranks know the tokens: nothing has to be summed over ranks here.
void TinyBatches::count_losses(int step, const StepShape& shape) {
  std::fill(counts_.begin(), counts_.end(), 0.0);
  const LossTerms terms = family_of(config_.model).loss_terms(config_);
  for (std::size_t i = 0; i < terms.size(); ++i) counts_[i] = terms[i].per_sample * static_cast<double>(shape.samples);
  if (pairs_) return count_pairs(step, shape);
  if (translations_) return count_translations(step, shape);
  counts_[0] = weigh_ ? 0 : static_cast<double>(shape.tokens());
  if (!weigh_) return;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.sequence + 1));
  std::vector<float> weights(static_cast<std::size_t>(shape.sequence));
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    for (std::int64_t i = 0; i <= shape.sequence; ++i) {
      tokens[static_cast<std::size_t>(i)] = token(step, sample, i, config_.model.vocab_size);
    }
    counts_[0] += weigh_(tokens, weights);
  }
}

void TinyBatches::count_pairs(int step, const StepShape& shape) {
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    if (config_.model.task_outputs > 0) {
      counts_[0] += tiny_label(step, sample, config_.model.task_classes()) >= 0 ? 1 : 0;
      continue;
    }
    const TinyPair pair(step, sample, shape.sequence, config_.model.vocab_size);
    counts_[0] += std::accumulate(pair.weights.begin(), pair.weights.end(), 0.0);
    counts_[1] += pair.label >= 0 ? 1 : 0;
  }
}

void TinyBatches::count_translations(int step, const StepShape& shape) {
  const ModelConfig& model = config_.model;
  for (std::int64_t sample = 0; sample < shape.samples; ++sample) {
    const TinyTranslation made(step, sample, model.sequence_length, model.decoder_sequence_length, model.vocab_size);
    counts_[0] += std::accumulate(made.weights.begin(), made.weights.end(), 0.0);
  }
}

void TinyBatches::place_translation(std::size_t k, std::int64_t column, int step) {
  const ModelConfig& model = config_.model;
  const TinyTranslation made(step, micro_batches_[k].first_sample + column, model.sequence_length,
                             model.decoder_sequence_length, model.vocab_size);
  const auto b = static_cast<std::size_t>(config_.train.micro_batch_size), j = static_cast<std::size_t>(column);
  for (std::size_t i = 0; i < made.encoder_tokens.size(); ++i) encoder_tokens_[k][i * b + j] = made.encoder_tokens[i];
  for (std::size_t i = 0; i < made.tokens.size(); ++i) {
    tokens_[k][i * b + j] = made.tokens[i];
    targets_[k][i * b + j] = made.targets[i];
    weights_[k][i * b + j] = made.weights[i];
  }
  encoder_lengths_[k][j] = made.encoder_length;
}

void TinyBatches::place_pair(std::size_t k, std::int64_t column, int step, std::int64_t sequence) {
  const TinyPair pair(step, micro_batches_[k].first_sample + column, sequence, config_.model.vocab_size);
  for (std::size_t i = 0; i < pair.tokens.size(); ++i) {
    const std::size_t at = i * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(column);
    tokens_[k][at] = pair.tokens[i];
    types_[k][at] = pair.types[i];
    targets_[k][at] = pair.targets[i];
    weights_[k][at] = pair.weights[i];
  }
  lengths_[k][static_cast<std::size_t>(column)] = pair.length;
  const std::int64_t choices = config_.model.task_choices;
  if (config_.model.task_outputs == 0) {
    labels_[k][static_cast<std::size_t>(column)] = pair.label;
  } else if (column % choices == 0) {
    labels_[k][static_cast<std::size_t>(column / choices)] =
        tiny_label(step, (micro_batches_[k].first_sample + column) / choices, config_.model.task_classes());
  }
}

void TinyBatches::place_sample(std::size_t k, std::int64_t column, int step, std::int64_t sequence) {
  std::vector<std::int32_t> tokens, starts(static_cast<std::size_t>(sequence));
  std::vector<float> weights(static_cast<std::size_t>(sequence));
  for (std::int64_t i = 0; i <= sequence; ++i) {
    tokens.push_back(token(step, micro_batches_[k].first_sample + column, i, config_.model.vocab_size));
  }
  find_document_starts(tokens, kTinyEnd, starts);
  if (weigh_) weigh_(tokens, weights);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t at =
        i * static_cast<std::size_t>(config_.train.micro_batch_size) + static_cast<std::size_t>(column);
    tokens_[k][at] = tokens[i];
    targets_[k][at] = tokens[i + 1];
    document_starts_[k][static_cast<std::size_t>(column) * starts.size() + i] = starts[i];
    document_position_ids_[k][at] = static_cast<int>(i) - starts[i];
    weights_[k][at] = weights[i];
  }
}

LossScaling TinyBatches::loss() const {
  return {.counts = counts_, .scale = loss_scale(config_)};
}

std::span<const MicroBatch> TinyBatches::step(int step) {
  const StepShape shape = schedule_.step_after(step - 1);
  const std::int64_t b = columns_;
  const std::int64_t s = translations_ ? config_.model.decoder_sequence_length : shape.sequence;
  const auto count = static_cast<std::size_t>(shape.samples / (config_.train.micro_batch_size * config_.parallel.data));
  count_losses(step, shape);
  for (std::size_t k = 0; k < count; ++k) {
    MicroBatch& batch = micro_batches_[k];
    batch.main.tokens = {tokens_[k].data(), {s, b}, DType::i32};
    batch.main.targets = {targets_[k].data(), {s, b}, DType::i32};
    const auto& position_ids =
        config_.data.reset_position_ids || instructions_ ? document_position_ids_[k] : position_ids_;
    batch.main.position_ids = {position_ids.data(), {s, b}, DType::i32};
    batch.main.positions = {positions_.data(), {s}, DType::i32};
    if (config_.data.reset_attention_mask || instructions_)
      batch.main.document_starts = {document_starts_[k].data(), {b, s}, DType::i32};
    if (weigh_ || pairs_ || translations_) batch.main.weights = {weights_[k].data(), {s, b}, DType::f32};
    if (pairs_) {
      batch.main.types = {types_[k].data(), {s, b}, DType::i32};
      batch.main.lengths = {lengths_[k].data(), {b}, DType::i32};
      batch.main.labels = {labels_[k].data(), {b / config_.model.task_choices}, DType::i32};
    }
    batch.main.sequence = s;
    if (translations_) {
      const std::int64_t rows = config_.model.sequence_length;
      batch.encoder.tokens = {encoder_tokens_[k].data(), {rows, b}, DType::i32};
      batch.encoder.position_ids = {encoder_position_ids_.data(), {rows, b}, DType::i32};
      batch.encoder.positions = {encoder_positions_.data(), {rows}, DType::i32};
      batch.encoder.lengths = {encoder_lengths_[k].data(), {b}, DType::i32};
      batch.encoder.sequence = rows;
    }
    for (std::int64_t j = 0; j < b; ++j) {
      if (pairs_) {
        place_pair(k, j, step, s);
      } else if (translations_) {
        place_translation(k, j, step);
      } else {
        place_sample(k, j, step, s);
      }
    }
  }
  if (cut_.bytes() == 0) return std::span<const MicroBatch>(micro_batches_).first(count);
  cut(count, shape);
  return cut_micro_batches_;
}

}  // namespace megatron::test
