#include "data/batches.h"

#include <algorithm>
#include <nlohmann/json.hpp>
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

void find_document_starts(std::span<const std::int32_t> tokens, std::int32_t end_of_document,
                          std::span<std::int32_t> starts) {
  std::int32_t start = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    starts[i] = start;
    if (tokens[i] == end_of_document) start = static_cast<std::int32_t>(i) + 1;
  }
}

BatchReader::BatchReader(TokenSource& source, const SampleOrder& order, const BatchShape& shape, BatchPlan plan,
                         std::int64_t first_step, Allocator& memory, BatchContents contents)
    : order_(order),
      shape_(shape),
      plan_(std::move(plan)),
      first_step_(first_step),
      samples_(source, order),
      contents_(std::move(contents)),
      starts_(static_cast<std::size_t>(order.sequence_length())),
      weights_(static_cast<std::size_t>(order.sequence_length())) {
  const std::int64_t s = order_.sequence_length();
  const std::int64_t columns = exact_division(shape_.most_samples, shape_.data_size, "largest batch per data rank");
  const std::int64_t most = exact_division(columns, shape_.micro_batch_size, "micro-batches of the largest batch");
  internal_check(shape_.data_rank >= 0 && shape_.data_rank < shape_.data_size, "data rank outside its group");
  for (Slot& slot : slots_) {
    std::vector<Buffer*> buffers = {&slot.tokens, &slot.targets};
    if (contents_.document_starts) buffers.push_back(&slot.document_starts);
    if (contents_.position_ids) buffers.push_back(&slot.position_ids);
    if (contents_.weights) buffers.push_back(&slot.weights);
    static_assert(sizeof(std::int32_t) == sizeof(float));
    for (Buffer* buffer : buffers) {
      *buffer = Buffer(memory, static_cast<std::size_t>(columns * s) * sizeof(std::int32_t));
    }
    slot.batch.micro_batches.reserve(static_cast<std::size_t>(most));
  }
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

void BatchReader::fill(Slot& slot, std::int64_t step, const GlobalBatch& samples) {
  const std::int64_t s = samples.sequence > 0 ? samples.sequence : order_.sequence_length();
  const std::int64_t b = shape_.micro_batch_size, d = shape_.data_size;
  internal_check(samples.samples <= shape_.most_samples && s <= order_.sequence_length(),
                 "a step larger than the largest batch");
  internal_check(samples.padding == 0 || contents_.weights != nullptr, "padding that counts");
  const std::int64_t count = exact_division(samples.samples, b * d, "samples of a step into micro-batches");
  slot.batch.step = step;
  slot.batch.samples = samples;
  slot.batch.micro_batches.clear();
  slot.batch.loss_count = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    const Columns to = columns(slot, k, s);
    const std::int64_t first = k * b * d + shape_.data_rank * b;
    for (std::int64_t j = 0; j < b; ++j) {
      {
        const std::lock_guard lock(mutex_);
        if (stop_) return;
      }
      slot.batch.loss_count += place_sample(samples.first_sample + static_cast<std::uint64_t>(first + j), j, s,
                                            first + j < samples.samples - samples.padding, to);
    }
    slot.batch.micro_batches.push_back({.main = {.tokens = to.tokens,
                                                 .position_ids = to.position_ids,
                                                 .positions = {},
                                                 .document_starts = to.document_starts,
                                                 .targets = to.targets,
                                                 .weights = to.weights,
                                                 .sequence = s},
                                        .encoder = {},
                                        .first_sample = first,
                                        .samples = b});
  }
}

BatchReader::Columns BatchReader::columns(const Slot& slot, std::int64_t micro_batch, std::int64_t sequence) const {
  const std::int64_t b = shape_.micro_batch_size;
  const auto offset = static_cast<std::size_t>(micro_batch * sequence * b) * sizeof(std::int32_t);
  const auto part = [&](const Buffer& buffer, Shape shape, DType type) {
    return buffer.bytes() == 0 ? Tensor() : buffer.tensor(shape, type, offset);
  };
  return {part(slot.tokens, {sequence, b}, DType::i32), part(slot.targets, {sequence, b}, DType::i32),
          part(slot.document_starts, {b, sequence}, DType::i32), part(slot.position_ids, {sequence, b}, DType::i32),
          part(slot.weights, {sequence, b}, DType::f32)};
}

// Returns what it adds to the count of losses.
double BatchReader::place_sample(std::uint64_t sample, std::int64_t column, std::int64_t sequence, bool counts,
                                 const Columns& to) {
  const std::int64_t b = shape_.micro_batch_size;
  const auto read = samples_.read(sample).first(static_cast<std::size_t>(sequence + 1));
  auto* const tokens = to.tokens.as<std::int32_t>() + column;
  auto* const targets = to.targets.as<std::int32_t>() + column;
  for (std::int64_t i = 0; i < sequence; ++i) {
    tokens[i * b] = read[static_cast<std::size_t>(i)];
    targets[i * b] = read[static_cast<std::size_t>(i + 1)];
  }
  if (contents_.document_starts || contents_.position_ids) place_documents(read, column, to);
  if (contents_.weights == nullptr) return static_cast<double>(sequence);
  const auto weights = std::span(weights_).first(static_cast<std::size_t>(sequence));
  const double count = counts ? contents_.weights(read, weights) : 0;
  if (!counts) std::fill(weights.begin(), weights.end(), 0.0f);
  for (std::int64_t i = 0; i < sequence; ++i) {
    to.weights.as<float>()[i * b + column] = weights[static_cast<std::size_t>(i)];
  }
  return count;
}

void BatchReader::place_documents(std::span<const std::int32_t> tokens, std::int64_t column, const Columns& to) {
  const auto starts = std::span(starts_).first(tokens.size() - 1);
  find_document_starts(tokens, contents_.end_of_document, starts);
  if (to.document_starts) {
    std::copy(starts.begin(), starts.end(),
              to.document_starts.as<std::int32_t>() + column * static_cast<std::int64_t>(starts.size()));
  }
  if (!to.position_ids) return;
  auto* const ids = to.position_ids.as<std::int32_t>() + column;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    ids[static_cast<std::int64_t>(i) * shape_.micro_batch_size] = static_cast<std::int32_t>(i) - starts[i];
  }
}

void print_samples(TokenSource& source, const SampleOrder& order, std::uint64_t first, std::uint64_t count,
                   const DecodeTokens& decode, std::ostream& out) {
  SampleReader reader(source, order);
  for (std::uint64_t sample = first; sample < first + count; ++sample) {
    const std::span<const std::int32_t> tokens = reader.read(sample);
    out << "{\"sample\":" << sample << ",\"tokens\":[";
    for (std::size_t t = 0; t < tokens.size(); ++t) out << (t == 0 ? "" : ",") << tokens[t];
    out << "]";
    if (decode) {
      out << ",\"text\":"
          << nlohmann::json(decode(tokens)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
    out << "}\n";
  }
}

}  // namespace megatron
