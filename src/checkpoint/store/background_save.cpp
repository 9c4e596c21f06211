#include "checkpoint/store/background_save.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>

#include "base/core/timers.h"
#include "checkpoint/store/save_work.h"
#include "checkpoint/store/tensor_slices.h"
#include "data/hdf5/hdf5_file.h"
#include "distributed/comm/agreement.h"

namespace megatron {

namespace {

constexpr std::int64_t kBlock = static_cast<std::int64_t>(kHdf5BlockBytes / sizeof(float));

/// The type of a dataset's numbers in memory: values are f32, and all states have the same.
DType type_of(const std::vector<TensorSlice>& slices) {
  const auto first = std::find_if(slices.begin(), slices.end(), [](const TensorSlice& one) { return one.count > 0; });
  const DType type = first == slices.end() ? DType::f32 : first->value.dtype();
  for (const TensorSlice& slice : slices) {
    internal_check(slice.count == 0 || slice.value.dtype() == type, "states of several types", slice.name);
  }
  return type;
}

}  // namespace

std::size_t snapshot_bytes(const std::vector<TensorSlice>& owned) {
  std::size_t bytes = 0;
  for (const TensorSlice& slice : owned) {
    for_each_tensor(slice, [&](const Tensor& tensor) { bytes += tensor.bytes(); });
  }
  return bytes;
}

BackgroundSave::BackgroundSave(Communicator& world, Device& device, std::size_t bytes)
    : world_(world), device_(device), snapshot_(device.pinned(), bytes) {
  if (bytes > 0) std::memset(snapshot_.data(), 0, bytes);  // pages that are there: the first copy is as fast as others
}

BackgroundSave::~BackgroundSave() {
  abandoned_ = true;
  if (thread_.joinable()) thread_.join();
}

std::int64_t BackgroundSave::step() const {
  return work_->step();
}

// Host memory is copied at once; from a device's, copies are only begun here and done when copied_ is complete.
void BackgroundSave::copy() {
  const Ticket now = device_.is_host_memory() ? Ticket{} : device_.mark();
  std::byte* to = snapshot_.data();
  for (const std::string& dataset : datasets_with(state_names(work_->owned()))) {
    for (const TensorSlice& slice : slices_in(dataset, work_->owned())) {
      const Tensor& numbers = slice.value;
      if (abandoned_) return;
      if (device_.is_host_memory()) {
        std::memcpy(to, numbers.data(), numbers.bytes());
      } else {
        copied_ = device_.start_copy_to_host(to, numbers.data(), numbers.bytes(), now);
      }
      to += numbers.bytes();
    }
  }
}

void BackgroundSave::await_copy() {
  if (!copying_) return;
  if (device_.is_host_memory()) return copying_.wait(true);
  device_.wait(copied_);
  begin_to_write();
}

void BackgroundSave::wait_until_copied() {
  if (!copying_) return;
  const double start = Timers::steady_seconds();
  await_copy();
  waited_ += Timers::steady_seconds() - start;
}

bool BackgroundSave::working() {
  if (copying_ && !device_.is_host_memory() && device_.complete(copied_)) begin_to_write();
  return working_;
}

void BackgroundSave::begin_to_write() {
  copying_ = false;
  begin([this] { write(); });
}

void BackgroundSave::write() {
  work_->write_rank_file_here(
      [this](const std::string& dataset, std::int64_t position) { return numbers(dataset, position); });
}

std::span<const float> BackgroundSave::numbers(const std::string& dataset, std::int64_t position) {
  verify(!abandoned_, ErrorKind::filesystem, "abandoned: the run has ended");
  const Tensor& all = datasets_.at(dataset);
  return as_floats(all.slice(0, position, std::min(kBlock, all.elements() - position)), widened_);
}

void BackgroundSave::start(const std::string& run_directory, const TrainingState& state,
                           const std::vector<TensorSlice>& owned, const SaveOptions& options) {
  internal_check(!under_way(), "a save while another one is under way");
  const double start = Timers::steady_seconds();
  work_ = std::make_unique<SaveWork>(world_, run_directory, state, owned, options);
  const std::size_t needed = snapshot_bytes(work_->owned());
  internal_check(needed <= snapshot_.bytes(), "a snapshot larger than its memory", needed, snapshot_.bytes());
  datasets_.clear();
  std::size_t taken = 0;
  for (const std::string& dataset : datasets_with(state_names(work_->owned()))) {
    const std::vector<TensorSlice> slices = slices_in(dataset, work_->owned());
    Tensor& all = datasets_[dataset] = snapshot_.tensor({elements_of(slices)}, type_of(slices), taken);
    taken += all.bytes();
  }
  publishing_ = false;
  waited_ = 0;
  try {
    work_->prepare();
  } catch (const Error&) {
    if (work_->root()) work_->discard();
    work_.reset();
    throw;
  }
  copying_ = working_ = true;
  if (!device_.is_host_memory()) copy();
  worked_ = Timers::steady_seconds() - start;
  if (!device_.is_host_memory()) return;
  begin([this] {
    copy();
    copying_ = false;
    copying_.notify_all();
    write();
  });
}

void BackgroundSave::begin(std::function<void()> task) {
  working_ = true;
  try {
    thread_ = std::thread([this, task = std::move(task)] {
      const double start = Timers::steady_seconds();
      try {
        task();
      } catch (...) {
        error_ = std::current_exception();
      }
      worked_ += Timers::steady_seconds() - start;
      working_ = false;
    });
  } catch (const std::system_error& refused) {  // told when all ranks look at how it went
    error_ = std::make_exception_ptr(
        Error(ErrorKind::filesystem, fmt::format("no thread can be started to write it: {}", refused.what())));
    copying_ = working_ = false;
  }
}

void BackgroundSave::collect() {
  if (thread_.joinable()) thread_.join();
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

std::optional<SaveReport> BackgroundSave::advance() {
  internal_check(under_way(), "continuing a save that is not under way");
  try {
    agree(
        world_,
        [&] {
          await_copy();
          collect();
        },
        ErrorKind::filesystem);
    if (!publishing_) {
      std::array<double, 1> slowest = {worked_};
      world_.all_reduce_values(slowest, kReportMaximum);
      worked_ = slowest[0];
      work_->gather_manifest();
      publishing_ = true;
      if (work_->root()) begin([this] { work_->publish(); });
      return {};
    }
    SaveReport report = work_->report();
    report.seconds = worked_;
    work_.reset();
    return report;
  } catch (const Error&) {
    // All threads have ended (or the job is ending): none writes into the folder any more.
    if (work_->root()) work_->discard();
    work_.reset();
    throw;
  }
}

}  // namespace megatron
