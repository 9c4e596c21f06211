#include "data/duplicates/record_sorter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/core/error.h"
#include "base/system/durable_file.h"

namespace megatron {

namespace {

constexpr std::size_t kLeastBlock = 4096, kMostBlock = std::size_t{1} << 20, kMostRuns = 256;

template <class Run>
bool is_later(const Run& a, const Run& b) {
  return a.first > b.first;
}

}  // namespace

template <std::size_t Words>
RecordSorter<Words>::RecordSorter(std::string path, std::size_t memory_bytes)
    : path_(std::move(path)),
      block_bytes_(std::clamp(memory_bytes / kMostRuns, kLeastBlock, kMostBlock)),
      // A block of each file that is read, one of the file that is written, and of the buffer while it is spilled.
      most_runs_(std::min(kMostRuns, memory_bytes / block_bytes_ - 1)) {
  internal_check(memory_bytes >= kLeastSorterBytes, "memory of a sorter", memory_bytes);
  capacity_ = (memory_bytes - block_bytes_) / sizeof(Record);
}

template <std::size_t Words>
RecordSorter<Words>::~RecordSorter() {
  runs_.clear();
  for (std::size_t number = oldest_; number < made_; ++number) remove_quietly(file_name(number));
}

template <std::size_t Words>
std::string RecordSorter<Words>::file_name(std::size_t number) const {
  return fmt::format("{}-{}", path_, number);
}

template <std::size_t Words>
void RecordSorter<Words>::add(const Record& record) {
  if (buffer_.size() == capacity_) spill();
  if (buffer_.size() == buffer_.capacity()) buffer_.reserve(capacity_);
  buffer_.push_back(record);
  ++records_;
}

template <std::size_t Words>
void RecordSorter<Words>::spill() {
  std::sort(buffer_.begin(), buffer_.end());
  SignatureFileWriter file(file_name(made_), Words, block_bytes_);
  for (const Record& record : buffer_) file.append(record);
  file.finish();
  ++made_;
  buffer_.clear();
}

template <std::size_t Words>
void RecordSorter<Words>::open(std::size_t count) {
  for (read_ = oldest_; read_ < oldest_ + count; ++read_) {
    Run run{{}, read_, std::make_unique<SignatureFileReader>(file_name(read_), Words)};
    const std::span<const std::uint64_t> first = run.file->next();
    if (first.empty()) continue;
    std::copy(first.begin(), first.end(), run.first.begin());
    runs_.push_back(std::move(run));
  }
  std::make_heap(runs_.begin(), runs_.end(), is_later<Run>);
}

template <std::size_t Words>
bool RecordSorter<Words>::next_of_runs(Record& record) {
  if (runs_.empty()) return false;
  std::pop_heap(runs_.begin(), runs_.end(), is_later<Run>);
  Run& run = runs_.back();
  record = run.first;
  const std::span<const std::uint64_t> following = run.file->next();
  if (following.empty()) {
    runs_.pop_back();
  } else {
    std::copy(following.begin(), following.end(), run.first.begin());
    std::push_heap(runs_.begin(), runs_.end(), is_later<Run>);
  }
  return true;
}

template <std::size_t Words>
void RecordSorter<Words>::remove_merged() {
  for (; oldest_ < read_; ++oldest_) remove_quietly(file_name(oldest_));
}

template <std::size_t Words>
void RecordSorter<Words>::sort() {
  if (made_ == 0) {
    std::sort(buffer_.begin(), buffer_.end());
    return;
  }
  if (!buffer_.empty()) spill();
  buffer_ = {};
  while (made_ - oldest_ > most_runs_) {
    open(most_runs_);
    SignatureFileWriter merged(file_name(made_), Words, block_bytes_);
    Record record;
    while (next_of_runs(record)) merged.append(record);
    merged.finish();
    ++made_;
    remove_merged();
  }
  open(made_ - oldest_);
}

template <std::size_t Words>
bool RecordSorter<Words>::next(Record& record) {
  if (made_ > 0) {
    if (next_of_runs(record)) return true;
    remove_merged();
    return false;
  }
  if (at_ < buffer_.size()) {
    record = buffer_[at_++];
    return true;
  }
  buffer_ = {};
  at_ = 0;
  return false;
}

template class RecordSorter<2>;
template class RecordSorter<3>;

}  // namespace megatron
