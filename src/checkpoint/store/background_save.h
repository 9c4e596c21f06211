// BackgroundSave: saves a run while it continues. The run's numbers are copied into memory that was reserved at the
// start; a thread of each rank then writes its file of the copy, and when all have, one of rank 0 commits. The files
// and the protocol are save_checkpoint()'s (checkpoint.h). Ranks meet only where the caller takes the next step, which
// it does when it knows that no rank's thread is at work: the caller has messages at its steps' boundaries anyway, and
// no rank waits for a disk.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "backend/ops/device.h"
#include "backend/tensor/memory.h"
#include "checkpoint/store/checkpoint.h"

namespace megatron {

class SaveWork;

/// Bytes of the copy of these slices.
std::size_t snapshot_bytes(const std::vector<TensorSlice>& owned);

/// The copy too is made in the background; training reads the same numbers meanwhile: in a step, nothing changes them
/// before its update. So a function that changes them (an update, loading) calls wait_until_copied() first, by when
/// there is mostly nothing left to wait for. Host memory is copied by the thread; a device copies its memory itself,
/// among its copies out, and only the device's thread asks about these copies.
class BackgroundSave {
 public:
  /// Reserves `bytes` of the host's memory, of the kind that `device` copies to best, and touches all of it.
  BackgroundSave(Communicator& world, Device& device, std::size_t bytes);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  ~BackgroundSave();  ///< abandons what is under way: its temporary folder stays, as of a save that died

  /// Begins; the numbers are those that the slices' tensors have now, in the order of the device's operations. The
  /// tensors must live, and not change, until wait_until_copied() has returned or this is destroyed; what
  /// else is passed may change at once. Collective; what save_checkpoint() asks for and throws before it writes, and
  /// then nothing is being copied. None may be under way.
  void start(const std::string& run_directory, const TrainingState& state, const std::vector<TensorSlice>& owned,
             const SaveOptions& options = {});
  bool copying() const { return copying_; }  ///< the slices are being read, as far as is known
  /// For this rank, not collective: when it returns, the slices' numbers may change. Nothing but a look where they have
  /// been copied already, or nothing is under way.
  void wait_until_copied();
  double seconds_waited() const { return waited_; }  ///< in it, for the last that was started
  bool under_way() const { return work_ != nullptr; }
  std::int64_t step() const;  ///< step of the save that is under way
  bool working();             ///< this rank has something to copy or its thread something to write, now
  std::size_t bytes() const { return snapshot_.bytes(); }

  /// The next step of what is under way: nothing, or with the last one the report. Collective; waits for the threads of
  /// those ranks that are still working. Throws as save_checkpoint() does; then nothing is under way. The report's
  /// seconds are those of the work alone, in its writing the slowest rank's: what lies between the steps is not in
  /// them.
  std::optional<SaveReport> advance();

 private:
  void copy();
  void await_copy();
  void begin_to_write();
  void write();
  std::span<const float> numbers(const std::string& dataset, std::int64_t position);
  void begin(std::function<void()> task);
  void collect();  ///< waits for the thread; rethrows what went wrong in it

  Communicator& world_;
  Device& device_;
  Buffer snapshot_;                         // for each dataset all slices, one after the other: as in the file, but
                                            // with the types that they have in memory
  std::map<std::string, Tensor> datasets_;  // parts of it
  std::vector<float> widened_;              // the writer's
  std::unique_ptr<SaveWork> work_;
  bool publishing_ = false;
  double worked_ = 0;  // seconds, of all that has been done so far for what is under way
  double waited_ = 0;
  Ticket copied_;  // the copies of a device whose memory is not the host's
  std::thread thread_;
  std::atomic<bool> copying_ = false, working_ = false, abandoned_ = false;
  std::exception_ptr error_;  // the thread's, until it is joined
};

}  // namespace megatron
