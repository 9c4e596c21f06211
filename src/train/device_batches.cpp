#include "train/device_batches.h"

#include "train/replica.h"

namespace megatron {

namespace {

Tensor upload(Device& device, Buffer& memory, std::size_t& used, const std::vector<std::int32_t>& values, Shape shape) {
  const Tensor tensor = memory.tensor(shape, DType::i32, used);
  used += tensor.bytes();
  device.copy_to_device(tensor.data(), values.data(), tensor.bytes());
  return tensor;
}

}  // namespace

BatchMemory::BatchMemory(const Config& config, Device& device) : device_(device) {
  const std::int64_t s = config.model.sequence_length, b = config.train.micro_batch_size;
  const std::int64_t count = micro_batches_per_step(config);
  std::vector<std::int32_t> positions, position_ids;
  for (std::int64_t i = 0; i < s; ++i) {
    positions.push_back(static_cast<std::int32_t>(i));
    position_ids.insert(position_ids.end(), static_cast<std::size_t>(b), static_cast<std::int32_t>(i));
  }
  memory_ = Buffer(device, static_cast<std::size_t>(s + s * b + 2 * count * s * b) * sizeof(std::int32_t));
  std::size_t used = 0;
  positions_ = upload(device, memory_, used, positions, {s});
  position_ids_ = upload(device, memory_, used, position_ids, {s, b});
  const auto take = [&] {
    const Tensor tensor = memory_.tensor({s, b}, DType::i32, used);
    used += tensor.bytes();
    return tensor;
  };
  for (std::int64_t k = 0; k < count; ++k) {
    const Tensor tokens = take(), targets = take();
    columns_.push_back({tokens, targets});
  }
}

DeviceBatches::DeviceBatches(const Config& config, const ProcessGrid& grid, BatchMemory& memory,
                             const SampleSet& samples, StepPlan plan)
    : memory_(memory),
      reads_(grid.first_stage() || grid.last_stage()),
      plan_(std::move(plan)),
      longest_(config.model.sequence_length),
      samples_together_(config.train.micro_batch_size * grid.data().size()) {
  const std::int64_t b = config.train.micro_batch_size, count = micro_batches_per_step(config);
  for (std::int64_t k = 0; k < count; ++k) {
    MicroBatch& micro_batch = micro_batches_.emplace_back();
    micro_batch.samples = b;
    micro_batch.first_sample = k * samples_together_ + grid.data().rank() * b;
  }
  if (!reads_) return;
  const BatchShape shape{.micro_batch_size = b,
                         .most_samples = config.train.global_batch_size,
                         .data_rank = grid.data().rank(),
                         .data_size = grid.data().size()};
  reader_ = std::make_unique<GptBatches>(*samples.source, *samples.order, shape, plan_, 0, memory.device().pinned());
}

std::span<const MicroBatch> DeviceBatches::next(double loss_scale) {
  const StepSamples step = plan_(step_++);
  internal_check(step.samples > 0, "a batch was asked for after the last step");
  const auto count = static_cast<std::size_t>(exact_division(step.samples, samples_together_, "micro-batches"));
  const std::int64_t s = step.sequence > 0 ? step.sequence : longest_;
  Device& device = memory_.device();
  device.wait(uploaded_);  // of the last step, long ago: its memory is read into from here on
  const StepBatch* const batch = reads_ ? &reader_->next() : nullptr;
  targets_ = static_cast<double>(step.samples * s);
  for (std::size_t k = 0; k < count; ++k) {
    MicroBatch& to = micro_batches_[k];
    const Tensor tokens = memory_.tokens(k, s), targets = memory_.targets(k, s);
    if (batch != nullptr) {
      const MicroBatchTokens& from = batch->micro_batches[k];
      internal_check(from.first_in_batch == to.first_sample && from.tokens.bytes() == tokens.bytes(),
                     "micro-batch out of place");
      device.start_copy_to_device(tokens.data(), from.tokens.data(), tokens.bytes(), memory_.free());
      uploaded_ = device.start_copy_to_device(targets.data(), from.targets.data(), targets.bytes(), memory_.free());
    }
    to.tokens = tokens;
    to.targets = targets;
    to.position_ids = memory_.position_ids(s);
    to.positions = memory_.positions(s);
    to.sequence = s;
    to.gradient_scale = loss_scale / targets_;
  }
  device.order_after(uploaded_);
  return std::span(micro_batches_).first(count);
}

}  // namespace megatron
