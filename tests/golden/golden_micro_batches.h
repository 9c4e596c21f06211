// A golden file's batch, or a data rank's part of it, cut into micro-batches by samples.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "golden/golden_file.h"
#include "models/batch/micro_batch.h"

namespace megatron::test {

class GoldenMicroBatches {
 public:
  /// Micro-batches of config.train.global_batch_size samples, each of config.model.task_choices columns.
  GoldenMicroBatches(const Config& config, const GoldenBatch& batch, int data_rank = 0)
      : choices_(config.model.task_choices), columns_(config.train.micro_batch_size * choices_) {
    const std::int64_t all = config.train.global_batch_size * choices_, together = columns_ * config.parallel.data;
    const auto longest = static_cast<std::int64_t>(std::max(batch.tokens.size(), batch.encoder_tokens.size())) / all;
    for (std::int64_t row = 0; row < longest; ++row) {
      positions_.push_back(static_cast<int>(row));
      position_ids_.insert(position_ids_.end(), static_cast<std::size_t>(columns_), static_cast<int>(row));
    }
    parts_.reserve(static_cast<std::size_t>(all / together));
    for (std::int64_t first = data_rank * columns_; first < all; first += together) {
      const auto cut = [&](const auto& values) { return columns_of(values, all, first, columns_); };
      parts_.push_back({cut(batch.tokens), cut(batch.targets), cut(batch.types), cut(batch.weights), cut(batch.lengths),
                        columns_of(batch.labels, all / choices_, first / choices_, columns_ / choices_),
                        cut(batch.encoder_tokens), cut(batch.encoder_lengths)});
      list_.push_back(views_of(parts_.back()));
      list_.back().first_sample = first;
    }
  }
  std::span<const MicroBatch> list() const { return list_; }

 private:
  /// Columns [first, first + count) of [s, columns].
  template <class T>
  static std::vector<T> columns_of(const std::vector<T>& all, std::int64_t columns, std::int64_t first,
                                   std::int64_t count) {
    std::vector<T> part;
    for (auto row = all.begin(); row != all.end(); row += columns)
      part.insert(part.end(), row + first, row + first + count);
    return part;
  }

  /// Numbers by row and column as a tensor; empty if there are none.
  template <class T>
  ConstTensor by_columns(const std::vector<T>& values) const {
    if (values.empty()) return {};
    return {values.data(), {static_cast<std::int64_t>(values.size()) / columns_, columns_}, DTypeOf<T>::value};
  }
  static ConstTensor as_vector(const std::vector<int>& values) {
    if (values.empty()) return {};
    return {values.data(), {static_cast<std::int64_t>(values.size())}, DType::i32};
  }

  Rows rows_of(const std::vector<int>& tokens, const std::vector<int>& lengths) const {
    Rows rows;
    rows.tokens = by_columns(tokens);
    rows.sequence = rows.tokens.dim(0);
    rows.position_ids = {position_ids_.data(), {rows.sequence, columns_}, DType::i32};
    rows.positions = {positions_.data(), {rows.sequence}, DType::i32};
    rows.lengths = as_vector(lengths);
    return rows;
  }

  MicroBatch views_of(const GoldenBatch& part) const {
    MicroBatch batch;
    batch.samples = columns_;
    batch.main = rows_of(part.tokens, part.lengths);
    batch.main.types = by_columns(part.types);
    batch.main.targets = by_columns(part.targets);
    batch.main.weights = by_columns(part.weights);
    batch.main.labels = as_vector(part.labels);
    if (!part.encoder_tokens.empty()) batch.encoder = rows_of(part.encoder_tokens, part.encoder_lengths);
    return batch;
  }

  std::int64_t choices_, columns_;
  std::vector<int> positions_, position_ids_;
  std::vector<GoldenBatch> parts_;
  std::vector<MicroBatch> list_;
};

}  // namespace megatron::test
