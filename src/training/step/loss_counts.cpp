#include "training/step/loss_counts.h"

#include <algorithm>

#include "distributed/comm/meanings.h"

namespace megatron {

void sum_loss_counts(const ProcessGrid& grid, const LossTerms& terms, const DeviceBatches& batches,
                     std::vector<double>& counts) {
  const DeviceBatches::LossCounts of_samples = batches.loss_counts();
  const GlobalBatch& samples = batches.samples();
  internal_check(!of_samples.values.empty() && of_samples.values.size() <= terms.size(),
                 "samples that count more terms of the loss than the model has", of_samples.values.size(),
                 terms.size());
  counts.assign(terms.size(), of_samples.values[0]);  // terms that the samples do not count are replaced below
  if (of_samples.values.size() > 1) std::copy(of_samples.values.begin(), of_samples.values.end(), counts.begin());
  if (!of_samples.complete) grid.control().all_reduce_values(counts, kTargetCounts);
  bool any = false;  // a target; what counts samples alone is no loss of a task
  for (std::size_t i = 0; i < terms.size(); ++i) {
    any = any || (terms[i].per_sample == 0 && counts[i] > 0);
    if (terms[i].per_sample > 0) counts[i] = terms[i].per_sample * static_cast<double>(samples.samples);
  }
  verify(any, ErrorKind::data,
         "in the {} samples from sample {} on no target has a weight, so the loss is undefined; check "
         "data.eod_mask_loss and the loss' weights. Where words are to be predicted (BERT), none was chosen: raise "
         "data.mask_probability or train.global_batch_size, or lower data.short_probability",
         samples.samples, samples.first_sample);
}

}  // namespace megatron
