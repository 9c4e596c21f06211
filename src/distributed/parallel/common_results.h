// CommonResults: results that all ranks of a group must have, in the order in which their calls started, whatever the
// order in which a rank waits for them. Ranks compare one hash of them; where it differs, the calls since the last
// comparison say which result it was.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "distributed/parallel/checked_group.h"

namespace megatron {

class CommonResults {
 public:
  struct Result {
    std::uint64_t bits;  ///< a hash of them
    SaidCall call;
  };
  /// Results that are there, without one missing in between.
  struct Print {
    std::uint64_t count = 0, bits = 0;
    bool operator==(const Print&) const = default;
  };

  /// The number of a call that starts, for ends().
  std::uint64_t starts() { return ++started_; }
  void ends(std::uint64_t number, const Result& result);
  const Print& print() const { return print_; }
  /// All ranks have the same so far.
  void compared() { since_.clear(); }
  /// By number, since compared().
  const std::vector<Result>& since() const { return since_; }
  bool all_ended() const { return print_.count == started_; }

 private:
  std::uint64_t started_ = 0;
  Print print_;
  std::map<std::uint64_t, Result> early_;  // by number: earlier ones have not ended
  std::vector<Result> since_;
};

}  // namespace megatron
