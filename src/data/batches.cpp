#include "data/batches.h"

#include <ostream>
#include <utility>

namespace megatron {

SampleReader::SampleReader(TokenSource& source, const SampleOrder& order)
    : source_(source), order_(order), tokens_(static_cast<std::size_t>(order.sequence_length() + 1)) {
  pieces_.reserve(tokens_.size());
}

std::span<const std::int32_t> SampleReader::read(std::uint64_t sample) {
  order_.locate(sample, pieces_);
  std::int32_t* to = tokens_.data();
  for (const TokenRange& piece : pieces_) {
    source_.read(piece.first, piece.count, to);
    to += piece.count;
  }
  internal_check(to == tokens_.data() + tokens_.size(), "a sample of another length");
  return tokens_;
}

GptBatches::GptBatches(TokenSource& source, const SampleOrder& order, const BatchShape& shape, StepPlan plan,
                       std::int64_t first_step, Allocator& memory)
    : order_(order), shape_(shape), plan_(std::move(plan)), first_step_(first_step), samples_(source, order) {
  const std::int64_t s = order_.sequence_length();
  const std::int64_t columns = exact_division(shape_.most_samples, shape_.data_size, "largest batch per data rank");
  const std::int64_t most = exact_division(columns, shape_.micro_batch_size, "micro-batches of the largest batch");
  internal_check(shape_.data_rank >= 0 && shape_.data_rank < shape_.data_size, "data rank outside its group");
  for (Slot& slot : slots_) {
    for (Buffer* buffer : {&slot.tokens, &slot.targets}) {
      *buffer = Buffer(memory, static_cast<std::size_t>(columns * s) * sizeof(std::int32_t));
    }
    slot.batch.micro_batches.reserve(static_cast<std::size_t>(most));
  }
  reader_ = std::thread([this] { read_ahead(); });
}

GptBatches::~GptBatches() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  reader_.join();
}

const StepBatch& GptBatches::next() {
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

void GptBatches::read_ahead() {
  try {
    for (std::int64_t step = first_step_;; ++step) {
      {
        // The caller works with slot taken_ - 1, so the other one is free as soon as everything produced is taken.
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || produced_ == taken_; });
        if (stop_) return;
      }
      const StepSamples samples = plan_(step);
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

void GptBatches::fill(Slot& slot, std::int64_t step, const StepSamples& samples) {
  const std::int64_t s = samples.sequence > 0 ? samples.sequence : order_.sequence_length();
  const std::int64_t b = shape_.micro_batch_size, d = shape_.data_size;
  internal_check(samples.samples <= shape_.most_samples && s <= order_.sequence_length(),
                 "a step larger than the largest batch");
  const std::int64_t count = exact_division(samples.samples, b * d, "samples of a step into micro-batches");
  slot.batch.step = step;
  slot.batch.samples = samples;
  slot.batch.micro_batches.clear();
  for (std::int64_t k = 0; k < count; ++k) {
    std::int32_t* tokens = reinterpret_cast<std::int32_t*>(slot.tokens.data()) + k * s * b;
    std::int32_t* targets = reinterpret_cast<std::int32_t*>(slot.targets.data()) + k * s * b;
    const std::int64_t first = k * b * d + shape_.data_rank * b;
    for (std::int64_t j = 0; j < b; ++j) {
      {
        const std::lock_guard lock(mutex_);
        if (stop_) return;
      }
      place_sample(samples.first_sample + static_cast<std::uint64_t>(first + j), s, tokens + j, targets + j);
    }
    slot.batch.micro_batches.push_back(
        {ConstTensor(tokens, {s, b}, DType::i32), ConstTensor(targets, {s, b}, DType::i32), first});
  }
}

void GptBatches::place_sample(std::uint64_t sample, std::int64_t sequence, std::int32_t* tokens,
                              std::int32_t* targets) {
  const std::int64_t b = shape_.micro_batch_size;
  const std::span<const std::int32_t> read = samples_.read(sample);
  for (std::int64_t i = 0; i < sequence; ++i) {
    tokens[i * b] = read[static_cast<std::size_t>(i)];
    targets[i * b] = read[static_cast<std::size_t>(i + 1)];
  }
}

void print_samples(TokenSource& source, const SampleOrder& order, std::uint64_t first, std::uint64_t count,
                   std::ostream& out) {
  SampleReader reader(source, order);
  for (std::uint64_t sample = first; sample < first + count; ++sample) {
    const std::span<const std::int32_t> tokens = reader.read(sample);
    out << "{\"sample\":" << sample << ",\"tokens\":[";
    for (std::size_t t = 0; t < tokens.size(); ++t) out << (t == 0 ? "" : ",") << tokens[t];
    out << "]}\n";
  }
}

}  // namespace megatron
