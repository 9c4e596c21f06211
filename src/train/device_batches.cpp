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

DeviceBatches::DeviceBatches(const Config& config, const ProcessGrid& grid, Device& device, const SampleSet& samples,
                             std::int64_t first_sample, std::int64_t steps)
    : device_(device), reads_(grid.first_stage() || grid.last_stage()) {
  const std::int64_t s = config.model.sequence_length, b = config.train.micro_batch_size;
  const std::int64_t batch = config.train.global_batch_size, count = micro_batches_per_step(config);
  targets_ = static_cast<double>(batch * s);
  std::vector<std::int32_t> positions, position_ids;
  for (std::int64_t i = 0; i < s; ++i) {
    positions.push_back(static_cast<std::int32_t>(i));
    position_ids.insert(position_ids.end(), static_cast<std::size_t>(b), static_cast<std::int32_t>(i));
  }
  memory_ = Buffer(device, static_cast<std::size_t>(s + s * b + 2 * count * s * b) * sizeof(std::int32_t));
  std::size_t used = 0;
  MicroBatch shared;
  shared.positions = upload(device, memory_, used, positions, {s});
  shared.position_ids = upload(device, memory_, used, position_ids, {s, b});
  shared.sequence = s;
  shared.samples = b;
  shared.gradient_scale = 1 / targets_;
  for (std::int64_t k = 0; k < count; ++k) {
    tokens_.push_back(memory_.tensor({s, b}, DType::i32, used));
    used += tokens_.back().bytes();
    targets_of_.push_back(memory_.tensor({s, b}, DType::i32, used));
    used += targets_of_.back().bytes();
    shared.tokens = tokens_.back();
    shared.targets = targets_of_.back();
    shared.first_sample = (k * grid.data().size() + grid.data().rank()) * b;
    micro_batches_.push_back(shared);
  }
  if (!reads_) return;
  const auto plan = [=](std::int64_t step) {
    const bool exists = step < steps;
    return StepSamples{static_cast<std::uint64_t>(first_sample + step * batch), exists ? batch : 0};
  };
  const BatchShape shape{
      .micro_batch_size = b, .most_samples = batch, .data_rank = grid.data().rank(), .data_size = grid.data().size()};
  reader_ = std::make_unique<GptBatches>(*samples.source, *samples.order, shape, plan, 0);
}

std::span<const MicroBatch> DeviceBatches::next() {
  if (reads_) {
    const StepBatch& batch = reader_->next();
    for (std::size_t k = 0; k < micro_batches_.size(); ++k) {
      const MicroBatchTokens& from = batch.micro_batches[k];
      internal_check(from.first_in_batch == micro_batches_[k].first_sample, "micro-batch out of place");
      device_.copy_to_device(tokens_[k].data(), from.tokens.data(), from.tokens.bytes());
      device_.copy_to_device(targets_of_[k].data(), from.targets.data(), from.targets.bytes());
    }
  }
  return micro_batches_;
}

}  // namespace megatron
