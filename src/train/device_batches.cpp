#include "train/device_batches.h"

#include "train/losses.h"
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
  std::vector<std::int32_t> positions, position_ids;
  for (std::int64_t i = 0; i < s; ++i) {
    positions.push_back(static_cast<std::int32_t>(i));
    position_ids.insert(position_ids.end(), static_cast<std::size_t>(b), static_cast<std::int32_t>(i));
  }
  memory_ = Buffer(device, batch_bytes(config));
  std::size_t used = 0;
  positions_ = upload(device, memory_, used, positions, {s});
  position_ids_ = upload(device, memory_, used, position_ids, {s, b});
  const auto take = [&](bool there, Shape shape, DType type) {
    if (!there) return Tensor();
    const Tensor tensor = memory_.tensor(shape, type, used);
    used += tensor.bytes();
    return tensor;
  };
  const BatchContents contents = training_contents(config);
  for (std::int64_t k = 0; k < micro_batches_per_step(config); ++k) {
    Columns& columns = columns_.emplace_back();
    columns.tokens = take(true, {s, b}, DType::i32);
    columns.targets = take(true, {s, b}, DType::i32);
    columns.document_starts = take(contents.document_starts, {b, s}, DType::i32);
    columns.position_ids = take(contents.position_ids, {s, b}, DType::i32);
    columns.weights = take(true, {s, b}, DType::f32);  // an evaluation's last batch may be padded
  }
}

// A shorter sequence's rows lie together at the beginning.
Tensor BatchMemory::document_starts(std::size_t k, std::int64_t s) const {
  const Tensor& starts = columns_[k].document_starts;
  return starts ? Tensor(starts.data(), {starts.dim(0), s}, DType::i32) : Tensor();
}

DeviceBatches::DeviceBatches(const Config& config, const ProcessGrid& grid, BatchMemory& memory,
                             const SampleSet& samples, BatchPlan plan, const BatchContents& contents)
    : grid_(grid),
      memory_(memory),
      has_weights_(contents.weights != nullptr),
      reads_(grid.first_stage() || grid.last_stage() || contents.any()),
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
  reader_ = std::make_unique<BatchReader>(*samples.source, *samples.order, shape, plan_, 0, memory.device().pinned(),
                                          contents);
}

std::span<const MicroBatch> DeviceBatches::next(double loss_scale) {
  const GlobalBatch step = plan_(step_++);
  internal_check(step.samples > 0, "a batch was asked for after the last step");
  const auto count = static_cast<std::size_t>(exact_division(step.samples, samples_together_, "micro-batches"));
  const std::int64_t s = step.sequence > 0 ? step.sequence : longest_;
  Device& device = memory_.device();
  device.wait(uploaded_);  // of the last step, long ago: its memory is read into from here on
  const StepBatch* const batch = reads_ ? &reader_->next() : nullptr;
  loss_count_ =
      has_weights_ ? grid_.control().all_reduce_value(batch->loss_count) : static_cast<double>(step.samples * s);
  verify(loss_count_ > 0, ErrorKind::data,
         "every target of the {} samples from sample {} on is masked (data.eod_mask_loss, or the loss' weights): there "
         "is no loss to speak of; look at the data",
         step.samples, step.first_sample);
  for (std::size_t k = 0; k < count; ++k) {
    MicroBatch& to = micro_batches_[k];
    if (batch != nullptr) {
      internal_check(batch->micro_batches[k].first_in_batch == to.first_sample, "micro-batch out of place");
      start_uploads(batch->micro_batches[k], k, s);
    }
    to.main.tokens = memory_.tokens(k, s);
    to.targets = memory_.targets(k, s);
    to.main.document_starts = memory_.document_starts(k, s);
    const Tensor within_documents = memory_.document_position_ids(k, s);
    to.main.position_ids = within_documents ? ConstTensor(within_documents) : memory_.position_ids(s);
    to.weights = has_weights_ ? memory_.weights(k, s) : Tensor();
    to.main.positions = memory_.positions(s);
    to.main.sequence = s;
    to.gradient_scale = loss_scale / loss_count_;
  }
  device.order_after(uploaded_);
  return std::span(micro_batches_).first(count);
}

// What this stage reads; stages that need the beginnings of documents have attention.
void DeviceBatches::start_uploads(const HostMicroBatch& from, std::size_t k, std::int64_t s) {
  if (grid_.first_stage()) upload(from.tokens, memory_.tokens(k, s));
  if (grid_.last_stage()) upload(from.targets, memory_.targets(k, s));
  upload(from.document_starts, memory_.document_starts(k, s));
  upload(from.position_ids, memory_.document_position_ids(k, s));
  if (grid_.last_stage()) upload(from.weights, has_weights_ ? memory_.weights(k, s) : Tensor());
}

void DeviceBatches::upload(ConstTensor from, const Tensor& to) {
  internal_check(from.bytes() == to.bytes(), "a micro-batch of another size than its memory");
  if (from) uploaded_ = memory_.device().start_copy_to_device(to.data(), from.data(), to.bytes(), memory_.free());
}

}  // namespace megatron
