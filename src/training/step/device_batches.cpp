#include "training/step/device_batches.h"

#include <algorithm>

#include "training/step/replica.h"

namespace megatron {

BatchMemory::BatchMemory(const BatchLayout& layout, std::int64_t micro_batches, Device& device)
    : device_(device), numbered_(-1), buffer_(layout, micro_batches, device) {
  number_rows(layout.sizes);
}

void BatchMemory::number_rows(const BatchSizes& sizes) {
  if (numbered_ >= 0 && (!sizes.cut.cuts() || sizes.rows[0] == numbered_)) return;
  numbered_ = sizes.rows[0];
  device_.wait(free_);
  buffer_.write_row_numbers(
      sizes, [&](void* to, const void* values, std::size_t bytes) { device_.copy_to_device(to, values, bytes); });
}

DeviceBatches::DeviceBatches(const Config& config, const ProcessGrid& grid, BatchMemory& memory, Samples& samples,
                             BatchPlan plan, bool padded, const std::function<bool(const BatchField&)>& reads)
    : grid_(grid),
      memory_(memory),
      source_(samples),
      layout_(used_layout(memory.buffer().layout(), samples, padded)),
      plan_(std::move(plan)),
      samples_together_(config.train.micro_batch_size * grid.data().size()) {
  micro_batches_.reserve(static_cast<std::size_t>(micro_batches_per_step(config)));
  std::copy_if(layout_.fields.begin(), layout_.fields.end(), std::back_inserter(uploaded_),
               [&](const BatchField& field) { return field.source == FieldSource::sample && reads(field); });
  if (uploaded_.empty() && samples.count_per_sample(layout_.sizes)) return;
  const BatchShare share{
      .most_samples = config.train.global_batch_size, .data_rank = grid.data().rank(), .data_size = grid.data().size()};
  reader_ = std::make_unique<BatchReader>(samples, layout_, share, plan_, 0, memory.device().pinned());
}

std::span<const MicroBatch> DeviceBatches::next() {
  samples_ = plan_(step_++);
  const GlobalBatch& step = samples_;
  internal_check(step.samples > 0, "a batch was asked for after the last step", step.samples);
  const auto count = static_cast<std::size_t>(exact_division(step.samples, samples_together_, "micro-batches"));
  const BatchSizes sizes = layout_.sizes.with_sequence(step.sequence);
  Device& device = memory_.device();
  device.wait(upload_done_);  // the last step's, long ago: its memory is read into from here on
  const StepBatch* const batch = reader_ ? &reader_->next() : nullptr;
  const std::optional<double> each = source_.count_per_sample(sizes.whole());
  complete_counts_ = each.has_value();
  if (each) {
    loss_counts_.assign(1, *each * static_cast<double>(step.samples - step.padding));
  } else {
    loss_counts_ = batch->loss_counts;
  }
  memory_.number_rows(sizes);
  micro_batches_.resize(count);
  for (std::size_t k = 0; k < count; ++k) {
    MicroBatch& to = micro_batches_[k];
    to = memory_.buffer().view(layout_, sizes, k);
    to.first_sample =
        static_cast<std::int64_t>(k) * samples_together_ * sizes.columns + grid_.data().rank() * to.samples;
    if (batch != nullptr) start_uploads(batch->micro_batches[k], k);
  }
  device.order_after(upload_done_);
  return micro_batches_;
}

void DeviceBatches::start_uploads(const MicroBatch& from, std::size_t k) {
  const MicroBatch& to = micro_batches_[k];
  internal_check(from.first_sample == to.first_sample, "micro-batch out of place", from.first_sample, to.first_sample);
  for (const BatchField& field : uploaded_) {
    const ConstTensor tensor = from.rows(field.stream).*field.view;
    internal_check(tensor.shape() == (to.rows(field.stream).*field.view).shape(),
                   "a micro-batch of another size than its memory", tensor.shape(),
                   (to.rows(field.stream).*field.view).shape());
    upload_done_ = memory_.device().start_copy_to_device(memory_.buffer().at(field, k), tensor.data(), tensor.bytes(),
                                                         memory_.free());
  }
}

}  // namespace megatron
