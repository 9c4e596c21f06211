#include "distributed/process/saved_step.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>

namespace megatron {

namespace {

const char* file_of_script() {
  return std::getenv("MEGATRON_SAVED_FILE");
}

}  // namespace

bool SavedStep::told_by_script() {
  return file_of_script() != nullptr;
}

void SavedStep::set(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  words_ = step < 0 ? "nothing is saved yet; the same command starts again"
                    : fmt::format("step {} is saved; the same command{} continues from it", step,
                                  resumes_ ? "" : " with checkpoint.resume = true");
  if (told_by_script()) std::ofstream(file_of_script()) << words_ << "\n";
}

void SavedStep::set_stopped() {
  const std::lock_guard lock(mutex_);
  if (told_by_script()) std::ofstream(file_of_script()) << words_ << "\nstopped\n";
}

std::string SavedStep::words() const {
  const std::lock_guard lock(mutex_);
  return words_;
}

}  // namespace megatron
