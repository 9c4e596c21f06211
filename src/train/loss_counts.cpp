#include "train/loss_counts.h"

namespace megatron {

void sum_loss_counts(const ProcessGrid& grid, const LossTerms& terms, const DeviceBatches& batches,
                     std::vector<double>& counts) {
  const DeviceBatches::LossCount of_targets = batches.loss_count();
  const GlobalBatch& samples = batches.samples();
  counts.assign(terms.size(), of_targets.value);
  if (!of_targets.complete) grid.control().all_reduce_values(counts);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].per_sample > 0) counts[i] = terms[i].per_sample * static_cast<double>(samples.samples);
    verify(counts[i] > 0, ErrorKind::data,
           "every target of the {} samples from sample {} on is masked (data.eod_mask_loss, or the loss' weights): "
           "there is no loss to speak of; look at the data",
           samples.samples, samples.first_sample);
  }
}

}  // namespace megatron
