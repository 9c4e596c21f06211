// PrintExchange: what the ranks of a checked group tell each other of their calls, over a separate communicator in
// host memory, so that the group's traffic is the same with and without a check. Each rank sends one print of a tensor,
// and where its parts go to different ranks one of each part: as much as the ranks, not their square.
#pragma once

#include <memory>
#include <vector>

#include "distributed/comm/communicator.h"
#include "distributed/parallel/common_results.h"
#include "distributed/parallel/tensor_print.h"

namespace megatron {

/// A rank's account of a call as it starts.
struct CallPrint {
  std::uint64_t call;            ///< a hash of what must be the same on all ranks
  CommonResults::Print results;  ///< before this call
  bool repeats;                  ///< whether the tensor is the result of an earlier sum
  TensorPrint tensor;            ///< all parts together
};

class PrintExchange {
 public:
  /// Over the ranks of `group`. While a rank waits here, `moved` moves what it has in flight along: the tensors'
  /// transport, which must outlive this. Collective.
  PrintExchange(Communicator& group, Communicator& moved);
  /// Waits for prints under way, but not while an exception unwinds.
  ~PrintExchange();

  /// The ranks' `number`, by rank of the group.
  std::vector<int> gather(int number);
  std::vector<std::uint64_t> gather(const std::vector<std::uint64_t>& numbers);  ///< as many on every rank
  std::vector<CallPrint> gather(const CallPrint& own);
  /// Part i of `own` goes to rank i; by rank of the group, the prints of the parts for this one.
  std::vector<TensorPrint> exchange(std::vector<TensorPrint> own);
  /// The texts of all ranks on all ranks, a line each, after a number of `ranks`. For errors.
  std::string gather_lines(const std::string& own, const std::vector<int>& ranks);

  /// A print that comes with a message, or goes with it, in the order of the messages' starts.
  struct Message {
    TensorPrint print;
    Pending pending;
  };
  void send(const TensorPrint& print, int to, int channel);
  std::unique_ptr<Message> start_receive(int from, int channel);
  TensorPrint finish_receive(Message& message);

 private:
  template <class T>
  void gather_into(const T* own, std::size_t count, std::vector<T>& all);

  Communicator& moved_;
  std::unique_ptr<Communicator> side_;
  std::vector<std::unique_ptr<Message>> sent_;
};

}  // namespace megatron
