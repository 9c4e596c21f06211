// BackgroundSave: saves a run while it goes on. What is saved is copied at once, into memory that was reserved at the
// start; a thread of each rank then writes its file of the copy, and when all have, one of rank 0 commits. The files
// and the protocol are save_checkpoint()'s (checkpoint.h).
//
// Ranks meet only where the caller takes the next step, which it does when it knows that no rank's thread is at work:
// the caller has messages at its steps' boundaries anyway, and nobody waits for a disk.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "tensor/memory.h"

namespace megatron {

class SaveWork;

/// Of the copy of so many elements with these moments.
std::size_t snapshot_bytes(std::int64_t elements, int moments);
std::size_t snapshot_bytes(const std::vector<Piece>& owned);

class BackgroundSave {
 public:
  /// Reserves `bytes` of the host's memory, of the kind that `device` copies to best, and touches all of it.
  BackgroundSave(Communicator& world, Device& device, std::size_t bytes);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  ~BackgroundSave();  ///< abandons what is under way: its temporary folder stays, as of a save that died

  /// Copies the pieces and begins. Collective; what save_checkpoint() asks for and throws before it writes. None may be
  /// under way.
  void start(const std::string& run_directory, const TrainingState& state, const std::vector<Piece>& owned,
             const SaveOptions& options = {});
  bool under_way() const { return work_ != nullptr; }
  std::int64_t step() const;                 ///< of what is under way
  bool working() const { return working_; }  ///< this rank's thread, now
  std::size_t bytes() const { return snapshot_.bytes(); }

  /// The next step of what is under way: nothing, or with the last one the report. Collective; waits for the threads of
  /// those ranks that are still working. Throws as save_checkpoint() does; then nothing is under way. The report's
  /// seconds are those of the work alone, in its writing the slowest rank's: what lies between the steps is not in
  /// them.
  std::optional<SaveReport> go_on();
  SaveReport finish();  ///< all of them

 private:
  void copy(const std::vector<Piece>& owned);
  std::span<const float> numbers(Stored kind, std::int64_t position) const;
  void begin(std::function<void()> task);
  void collect();  ///< waits for the thread; rethrows what went wrong in it

  Communicator& world_;
  Device& device_;
  Buffer snapshot_;            // of each kind of number, all pieces one behind the other: as in the file
  std::int64_t elements_ = 0;  // of one kind
  std::unique_ptr<SaveWork> work_;
  bool publishing_ = false;
  double worked_ = 0;  // seconds, of all that has been done so far for what is under way
  std::thread thread_;
  std::atomic<bool> working_ = false, abandoned_ = false;
  std::exception_ptr error_;  // the thread's, until it is joined
};

}  // namespace megatron
