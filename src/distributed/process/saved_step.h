// SavedStep: the newest step of a run that is saved, in words for those who report a failure: RunWatch, and
// scripts/launch.sh, which finds them in the file MEGATRON_SAVED_FILE. Rank 0's; set by one thread, read by others.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace megatron {

class SavedStep {
 public:
  /// `resumes`: checkpoint.resume, without which the same command is refused.
  explicit SavedStep(bool resumes) : resumes_(resumes) {}
  /// -1: none. Where the file cannot be written, the script says less.
  void set(std::int64_t step);
  /// Tells the script, by a second line, that the run has saved and stopped: a signal that comes now is not passed on.
  void set_stopped();
  /// "step 200 is saved; the same command continues from it"; "" before the first set().
  std::string words() const;
  /// Whether scripts/launch.sh will say them.
  static bool told_by_script();

 private:
  const bool resumes_;
  mutable std::mutex mutex_;
  std::string words_;
};

}  // namespace megatron
