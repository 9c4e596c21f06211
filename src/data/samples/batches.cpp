#include "data/samples/batches.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace megatron {

BatchReader::BatchReader(Samples& samples, const BatchLayout& layout, const BatchShare& share, BatchPlan plan,
                         std::int64_t first_step, Allocator& memory)
    : samples_(samples),
      layout_(layout),
      share_(share),
      plan_(std::move(plan)),
      first_step_(first_step),
      no_counts_(samples.terms()) {
  const std::int64_t own = exact_division(share_.most_samples, share_.data_size, "largest batch per data rank");
  const std::int64_t most = exact_division(own, layout_.sizes.whole_samples(), "micro-batches of the largest batch");
  internal_check(share_.data_rank >= 0 && share_.data_rank < share_.data_size, "data rank outside its group",
                 share_.data_rank, share_.data_size);
  for (Slot& slot : slots_) {
    slot.memory = BatchBuffer(layout_, most, memory);
    slot.memory.write_row_numbers(
        [](void* to, const void* values, std::size_t bytes) { std::memcpy(to, values, bytes); });
    slot.batch.micro_batches.reserve(static_cast<std::size_t>(most));
    slot.batch.loss_counts.resize(samples.terms());
  }
  if (layout_.sizes.cut.cuts()) whole_ = BatchBuffer(layout_.whole(), 1, host_memory());
  reader_ = std::thread([this] { read_ahead(); });
}

BatchReader::~BatchReader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  reader_.join();
}

const StepBatch& BatchReader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return produced_ > taken_ || error_ != nullptr || ended_; });
  if (produced_ == taken_) {
    if (error_ != nullptr) std::rethrow_exception(error_);
    internal_check(false, "a batch was asked for after the last step");
  }
  const StepBatch& batch = slots_[taken_ % 2].batch;
  ++taken_;
  lock.unlock();
  changed_.notify_all();
  return batch;
}

void BatchReader::read_ahead() {
  try {
    for (std::int64_t step = first_step_;; ++step) {
      {
        // The caller works with slot taken_ - 1, so the other one is free as soon as everything produced is taken.
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || produced_ == taken_; });
        if (stop_) return;
      }
      const GlobalBatch samples = plan_(step);
      if (samples.samples > 0) fill(slots_[produced_ % 2], step, samples);  // only this thread changes produced_
      {
        const std::lock_guard lock(mutex_);
        if (samples.samples > 0) {
          ++produced_;
        } else {
          ended_ = true;
        }
      }
      changed_.notify_all();
      if (samples.samples == 0) return;
    }
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

bool BatchReader::stopped() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

void BatchReader::fill(Slot& slot, std::int64_t step, const GlobalBatch& samples) {
  const BatchSizes sizes = layout_.sizes.with_sequence(samples.sequence), whole = sizes.whole();
  const bool cuts = sizes.cut.cuts();
  const std::int64_t b = sizes.whole_samples(), d = share_.data_size;
  internal_check(samples.samples <= share_.most_samples && sizes.rows[0] <= layout_.sizes.rows[0],
                 "a step larger than the largest batch", samples.samples, share_.most_samples, sizes.rows[0],
                 layout_.sizes.rows[0]);
  internal_check(
      samples.padding == 0 || layout_.find(&Rows::weights) != nullptr || layout_.find(&Rows::labels) != nullptr,
      "padding that counts", samples.padding);
  const std::int64_t count = exact_division(samples.samples, b * d, "samples of a step into micro-batches");
  StepBatch& batch = slot.batch;
  batch.step = step;
  batch.samples = samples;
  batch.micro_batches.clear();
  std::fill(batch.loss_counts.begin(), batch.loss_counts.end(), 0.0);
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t first = k * b * d + share_.data_rank * b;
    for (std::int64_t j = 0; j < b; ++j) {
      if (stopped()) return;
      const SampleColumn to(cuts ? whole_ : slot.memory, whole, cuts ? 0 : static_cast<std::size_t>(k),
                            j * sizes.columns);
      const bool counts = first + j < samples.samples - samples.padding;
      samples_.make(samples.first_sample + static_cast<std::uint64_t>(first + j), to,
                    counts ? batch.loss_counts : no_counts_);
      if (counts) continue;
      const Column<float> weights = to.of<float>(&Rows::weights);
      for (std::int64_t i = 0; i < weights.size(); ++i) weights[i] = 0;
      if (const Column<std::int32_t> labels = to.of<std::int32_t>(&Rows::labels)) labels[0] = -1;
    }
    if (cuts) cut_batch(whole_.view(whole_.layout(), whole, 0), slot.memory, sizes, static_cast<std::size_t>(k));
    MicroBatch& micro_batch = batch.micro_batches.emplace_back();
    micro_batch = slot.memory.view(layout_, sizes, static_cast<std::size_t>(k));
    micro_batch.first_sample = first * sizes.columns;
  }
}

}  // namespace megatron
