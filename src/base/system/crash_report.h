// CrashReport: reports a process that dies of a defect: one line on standard error with the signal, the step and what
// the rank was doing, and the stack in a separate file. For the signals of broken programs (SIGSEGV, SIGBUS, SIGFPE,
// SIGILL, SIGABRT, which failed assertions and escaped exceptions raise), and, stack only, for the first internal error
// or lack of memory, whose message is printed elsewhere. Afterwards a signal does what it would have done, so that
// launchers see it and end the job. Process-wide like the signals themselves: one at a time, made by main after
// MPI_Init, which installs its own handlers.
#pragma once

#include <cstddef>
#include <string>

#include "base/core/activity.h"

namespace megatron {

/// While it lives, this thread runs machine code that a library made as it ran, which no stack can be told through: a
/// crash in it is told with the stack of the function that holds this. Costs two stores.
class GeneratedCode {
 public:
  [[gnu::always_inline]] GeneratedCode() { caller_ = __builtin_frame_address(0); }
  ~GeneratedCode() { caller_ = nullptr; }
  GeneratedCode(const GeneratedCode&) = delete;
  GeneratedCode& operator=(const GeneratedCode&) = delete;

  /// Frame of the function that holds one on this thread; null where none does.
  static const void* caller() { return caller_; }

 private:
  static inline thread_local constinit const void* volatile caller_ = nullptr;
};

/// While it lives, SIGBUS at an address in this memory, which a file is mapped to, is no defect: the disk has failed.
/// A CrashReport then prints `line`, and ends the process at once with the code of ErrorKind::filesystem. Beyond 256 at
/// a time it does nothing.
class MappedFromDisk {
 public:
  MappedFromDisk(const void* memory, std::size_t bytes, std::string line);
  ~MappedFromDisk();
  MappedFromDisk(const MappedFromDisk&) = delete;
  MappedFromDisk& operator=(const MappedFromDisk&) = delete;

  /// The line of the memory that has this address; null where none has. For signal handlers.
  static const char* line_at(const void* address);

 private:
  const std::byte *first_, *end_;
  std::string line_;
};

class CrashReport {
 public:
  /// `where` is put in front ("rank 3 of 8 on node07"). The stack goes to `file`, or to standard error if that is empty
  /// or cannot be written when it comes to it. `activity` must outlive the object.
  CrashReport(const std::string& where, const std::string& file, const Activity* activity);
  ~CrashReport();  ///< back to the default actions
  /// The file of a run's rank: directory/backtrace_rank_3.txt.
  static std::string file_in(const std::string& directory, int rank);
  /// The stack goes to this file from here on. Only while one exists.
  static void write_to(const std::string& file);
  CrashReport(const CrashReport&) = delete;
  CrashReport& operator=(const CrashReport&) = delete;
};

}  // namespace megatron
