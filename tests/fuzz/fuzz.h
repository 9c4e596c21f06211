// Common parts of the fuzz targets. A target is one file of this folder: LLVMFuzzerTestOneInput takes any bytes, hands
// them to one reader, and accepts that it succeeds or throws the Error it promises; whatever else happens is a finding.
//
// With -DMEGATRON_FUZZ=ON (Clang) libFuzzer looks for such bytes: scripts/fuzz.sh. In every other build replay.cpp
// feeds the stored ones, so that what was found once stays fixed.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace megatron::fuzz {

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "finding: %s\n", what);
  std::abort();
}

/// Runs `work`; an Error of another kind than these, or anything else that is thrown, ends the program.
template <class Work>
void allow(std::initializer_list<ErrorKind> kinds, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    if (std::find(kinds.begin(), kinds.end(), error.kind()) == kinds.end()) {
      std::fprintf(stderr, "finding: %s error: %s\n", name_of(error.kind()), error.what());
      std::abort();
    }
  }
}

/// A file for readers that want one; in memory where there is such a place. Gone when it ends.
class ScratchFile {
 public:
  explicit ScratchFile(std::string_view contents = {})
      : path_((::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/megatron_fuzz_XXXXXX")),
        descriptor_(::mkstemp(path_.data())) {
    const bool written =
        ::write(descriptor_, contents.data(), contents.size()) == static_cast<ssize_t>(contents.size());
    require(descriptor_ >= 0 && written, "no scratch file: not a finding");
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    ::close(descriptor_);
    ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_;
};

/// Choices made by the input, from its front; zeros when it is used up.
class Choices {
 public:
  explicit Choices(std::string_view data) : data_(data) {}
  std::string_view take(std::size_t bytes) {
    const std::string_view taken = data_.substr(0, bytes);
    data_.remove_prefix(taken.size());
    return taken;
  }
  /// Little-endian, so that small numbers are found easily.
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0, shift = 0;
    for (const char c : take(bytes)) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(c)) << shift;
      shift += 8;
    }
    return value;
  }
  std::uint64_t below(std::uint64_t end) { return number(1) % end; }
  std::string_view rest() { return take(data_.size()); }

 private:
  std::string_view data_;
};

}  // namespace megatron::fuzz
