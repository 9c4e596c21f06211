// The counts of a step's loss terms: what their sums over the global batch are divided by.
#pragma once

#include <vector>

#include "distributed/comm/process_grid.h"
#include "models/families/loss_terms.h"
#include "training/step/device_batches.h"

namespace megatron {

/// Sets `counts`, by term, for the global batch that batches.next() gave last. Collective over the control group where
/// data ranks know only their own samples' counts: one message for all terms. A term may count nothing (term_mean);
/// errors: data, the same on every rank, if no target of any term counts.
void sum_loss_counts(const ProcessGrid& grid, const LossTerms& terms, const DeviceBatches& batches,
                     std::vector<double>& counts);

/// A term's mean; 0 of a batch without targets of this term (one without masked words, say).
inline double term_mean(double sum, double count) {
  return count > 0 ? sum / count : 0;
}

}  // namespace megatron
