// A reader of batches of next-token samples.
#pragma once

#include "data/samples/batches.h"
#include "data/samples/next_token_samples.h"

namespace megatron::test {

/// One data rank's part of batches, as numbers.
struct TokenShare {
  std::int64_t micro_batch_size = 1, most_samples = 0;
  int data_rank = 0, data_size = 1;
};

/// Contents that micro-batches have in addition to tokens and targets.
struct TokenContents {
  bool document_starts = false, position_ids = false;
  std::int32_t end_of_document = -1;
  LossWeights weigh = nullptr;
};

inline BatchLayout token_layout(std::int64_t rows, std::int64_t samples, const TokenContents& contents) {
  BatchLayout layout{.fields = {{.name = "tokens", .view = &Rows::tokens}, {.name = "targets", .view = &Rows::targets}},
                     .sizes = {.rows = {rows}, .samples = samples}};
  if (contents.document_starts) {
    layout.fields.push_back(
        {.name = "document starts", .view = &Rows::document_starts, .shape = FieldShape::samples_by_rows});
  }
  if (contents.position_ids) layout.fields.push_back({.name = "position ids", .view = &Rows::position_ids});
  if (contents.weigh) layout.fields.push_back({.name = "weights", .view = &Rows::weights, .type = DType::f32});
  return layout;
}

class TokenBatches {
 public:
  /// Source and order must outlive it.
  TokenBatches(TokenSource& source, const SampleOrder& order, const TokenShare& share, BatchPlan plan,
               std::int64_t first_step, const TokenContents& contents = {})
      : samples_(source, order, contents.end_of_document, contents.weigh),
        reader_(samples_, token_layout(order.sequence_length(), share.micro_batch_size, contents),
                {share.most_samples, share.data_rank, share.data_size}, std::move(plan), first_step) {}
  const StepBatch& next() { return reader_.next(); }

 private:
  NextTokenSamples samples_;
  BatchReader reader_;
};

}  // namespace megatron::test
