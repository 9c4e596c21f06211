#include "distributed/parallel/common_results.h"

#include "base/core/philox.h"

namespace megatron {

void CommonResults::ends(std::uint64_t number, const Result& result) {
  early_.emplace(number, result);
  for (auto next = early_.find(print_.count + 1); next != early_.end(); next = early_.find(print_.count + 1)) {
    print_ = {next->first, mix64(print_.bits ^ next->second.bits)};
    since_.push_back(next->second);
    early_.erase(next);
  }
}

}  // namespace megatron
