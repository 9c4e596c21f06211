#include "train/loss_counts.h"

#include <algorithm>

namespace megatron {

void sum_loss_counts(const ProcessGrid& grid, const LossTerms& terms, const DeviceBatches& batches,
                     std::vector<double>& counts) {
  const DeviceBatches::LossCounts of_samples = batches.loss_counts();
  const GlobalBatch& samples = batches.samples();
  internal_check(!of_samples.values.empty() && of_samples.values.size() <= terms.size(),
                 "samples that count more terms of the loss than the model has");
  counts.assign(terms.size(), of_samples.values[0]);  // of terms that they do not count: replaced below
  if (of_samples.values.size() > 1) std::copy(of_samples.values.begin(), of_samples.values.end(), counts.begin());
  if (!of_samples.complete) grid.control().all_reduce_values(counts);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].per_sample > 0) counts[i] = terms[i].per_sample * static_cast<double>(samples.samples);
    verify(counts[i] > 0, ErrorKind::data,
           "every target of the {} samples from sample {} on is masked (data.eod_mask_loss, or the loss' weights): "
           "there is no loss to speak of; look at the data",
           samples.samples, samples.first_sample);
  }
}

}  // namespace megatron
