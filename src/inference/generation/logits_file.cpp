#include "inference/generation/logits_file.h"

namespace megatron {

LogitsFile::LogitsFile(OutputFile output, std::int64_t vocab_size)
    : output_(std::move(output)), temporary_(temporary_name(output_.path)) {
  try {
    file_ = Hdf5File::create(temporary_);
    file_->write_attribute("vocab_size", static_cast<std::uint64_t>(vocab_size));
    logits_ = file_->create_growable_dataset("logits", Hdf5Type::f32);
  } catch (...) {
    remove_quietly(temporary_);
    throw;
  }
}

LogitsFile::~LogitsFile() {
  if (published_) return;
  logits_ = {};
  file_.reset();
  remove_quietly(temporary_);
}

void LogitsFile::add(std::int64_t text, std::int64_t position, std::span<const float> logits) {
  logits_.append(logits.data(), logits.size());
  texts_.push_back(text);
  positions_.push_back(position);
}

void LogitsFile::publish() {
  file_->finish(logits_);
  for (const auto& [name, values] : {std::pair("texts", &texts_), std::pair("positions", &positions_)}) {
    Hdf5Dataset dataset = file_->create_growable_dataset(name, Hdf5Type::i64);
    dataset.append(*values);
    file_->finish(dataset);
  }
  file_->close();
  sync_path(temporary_);
  publish_output(temporary_, output_);
  published_ = true;
}

}  // namespace megatron
