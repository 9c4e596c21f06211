// Communicator: a group of ranks that moves and reduces tensors. One interface for MPI, threads (tests) and counting
// (--dry-run), which move host tensors, and for those that move a device's: NCCL, and staged over one of the host.
// docs/communication.md draws each verb.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/tensor/tensor.h"
#include "base/core/activity.h"
#include "base/core/timers.h"
#include "distributed/comm/collective_check.h"
#include "distributed/comm/meaning.h"
#include "distributed/comm/staging.h"

namespace megatron {

/// Traffic of a rank, and where its time for that is charged: for the end table and --dry-run. Not thread-safe: one
/// per rank.
struct TrafficMeter {
  /// Payload this rank hands to others, as a good algorithm would: all-reduce 2·(n-1)/n · bytes, gather, scatter and
  /// all-to-all (n-1)/n · whole, broadcast (n-1) · bytes at the root, send its bytes.
  std::int64_t bytes_sent = 0;
  std::int64_t operations = 0;
  std::int64_t messages = 0;   ///< that MPI's communicators send for them (distributed/comm/messages.h)
  std::int64_t in_flight = 0;  ///< operations that have been started and not waited for
  Timers* timers = nullptr;    ///< optional: wait() and progress() are entered there as Section::communication
};

class Communicator;

/// A started operation. Move-only; wait() exactly once (further calls do nothing).
class Pending {
 public:
  Pending() = default;  ///< already complete
  Pending(Communicator* communicator, std::uint64_t ticket, const Waiting& what, std::int64_t operation,
          std::uint64_t check)
      : communicator_(communicator), ticket_(ticket), what_(what), operation_(operation), check_(check) {}
  Pending(Pending&& other) noexcept;
  Pending& operator=(Pending&& other) noexcept;  ///< the target must be complete
  ~Pending();
  void wait();
  /// The same, for an operation of another transport than `moved`'s: meanwhile that moves what it has in flight along.
  void wait_moving(Communicator& moved);
  /// Whether wait() would return at once. Moves nothing: that is progress(), of its group.
  bool ready() const;
  bool active() const { return communicator_ != nullptr; }

 private:
  Communicator* communicator_ = nullptr;
  std::uint64_t ticket_ = 0;
  Waiting what_;
  std::int64_t operation_ = 0;  // its number, for profilers
  std::uint64_t check_ = 0;     // the check's ticket, if there is one
};

/// Rules:
///   * Verbs take tensors, never counts. Tensors are contiguous. All ranks of the group call the same verb with the
///     same shapes and dtypes, in the same order; checked where it is free.
///   * Every verb takes a TensorMeaning: what the tensor is over the group (distributed/comm/meaning.h). It has no
///     effect but on a check.
///   * Every verb has a `start_` form that returns a Pending. The buffers belong to the communicator until wait(). A
///     Pending that is dropped without wait() is an internal error (terminates): nothing is left in flight by accident.
///     (While an exception unwinds it is abandoned instead.)
///   * Reductions add in rank order (0 + 1 + 2 ...) on every rank, so that results are the same bits everywhere, each
///     time.
///   * In a group of one rank every verb is a copy or nothing.
///   * A device's communicator reads a tensor after the device's operations before start_, and what it wrote may be
///     read by operations after wait(). The host waits for as little of that as it can, and reads none of it.
///   * Bytes are charged to the TrafficMeter, and the time in wait() and progress() to its timers, where they are set.
///     Waits are told to the rank's Activity, here and nowhere else, so that a hang can be explained. The profiler of
///     the meter's timers is told of them too, and of what is started (base/core/ranges.h).
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }  ///< "tensor", "data", ...: for errors and reports
  void set_meter(TrafficMeter* meter) { meter_ = meter; }
  /// This rank's record of what it is doing, which must outlive the communicator; groups split off later share it.
  void set_activity(Activity* activity) { activity_ = activity; }
  Activity* activity() const { return activity_; }  ///< nullptr: there is none
  /// Checks this group's calls from now on; must outlive the communicator or be taken off with nullptr. Groups that are
  /// split off have none. Internal error while calls that the check knows are in flight: it has their results.
  void set_check(CollectiveCheck* check);
  bool checked() const { return check_ != nullptr; }
  /// Says what a tensor is over the ranks, where nothing is moved. Does nothing without a check, and is collective with
  /// one.
  void expects(ConstTensor values, const Said& said) {
    if (check_ != nullptr) check_->expects(values, said);
  }

  // In place over the whole tensor: the sum or the maximum, as the meaning says. Any dtype but u8; 16-bit floats are
  // added up in f32 over all ranks and rounded once.
  Pending start_all_reduce(Tensor values, const Holding<Hold::partial>& said);
  // whole = the parts of all ranks, in rank order; whole.elements() == size() * part.elements().
  Pending start_all_gather(ConstTensor part, Tensor whole, const Holding<Hold::divided>& said);
  // part = this rank's slice of the sum of all ranks' whole. Gather and scatter in place: part may be this rank's slice
  // of whole, other overlap is refused.
  Pending start_reduce_scatter(ConstTensor whole, Tensor part, const Holding<Hold::partial>& said);
  Pending start_broadcast(Tensor values, int root, const Holding<Hold::own>& said);
  // Part i of send goes to rank i, part j of receive comes from rank j: size() equal parts in rank order. The two have
  // the same dtype and number of elements, and do not overlap.
  Pending start_all_to_all(ConstTensor send, Tensor receive, const Holding<Hold::divided>& said);
  // Point to point, never with oneself; messages of the same (peer, channel) arrive in order. `channel` is a number
  // below 1000: one per purpose.
  Pending start_send(ConstTensor values, int to, int channel, const Holding<Hold::own>& said);
  Pending start_receive(Tensor values, int from, int channel, const Holding<Hold::own>& said);

  void all_reduce(Tensor values, const Holding<Hold::partial>& said) { start_all_reduce(values, said).wait(); }
  void all_gather(ConstTensor part, Tensor whole, const Holding<Hold::divided>& said) {
    start_all_gather(part, whole, said).wait();
  }
  void reduce_scatter(ConstTensor whole, Tensor part, const Holding<Hold::partial>& said) {
    start_reduce_scatter(whole, part, said).wait();
  }
  void broadcast(Tensor values, int root, const Holding<Hold::own>& said) {
    start_broadcast(values, root, said).wait();
  }
  void all_to_all(ConstTensor send, Tensor receive, const Holding<Hold::divided>& said) {
    start_all_to_all(send, receive, said).wait();
  }
  void barrier();
  /// Moves along what this rank has in flight, in this group (even of one rank) and in all that share its transport,
  /// without waiting. For the middle of long computations: not every network moves messages by itself, and only a
  /// rank adds.
  void progress();

  /// Memory of this rank that this group's collectives hold now, in addition to their tensors; the transport's own
  /// (MPI's, NCCL's) is not known here.
  virtual std::size_t staging_bytes() const { return 0; }
  /// Staging that a step needs, for counting communicators, which have played it.
  virtual StagingPlan staging_plan() const { return {}; }
  /// Allocates that at once.
  virtual void reserve_staging(const StagingPlan&) {}

  /// The same ranks' communicator for tensors in host memory: itself, unless this one moves a device's.
  virtual Communicator& host() { return *this; }

  // Host scalars and texts, for control decisions (not for the hot path): through host(). In groups of any size no rank
  // sends or receives more than about 2·log2(size) messages for one of them.
  void all_reduce_values(std::span<double> values, const Holding<Hold::partial>& said);
  double all_reduce_value(double value, const Holding<Hold::partial>& said);
  bool any_rank(bool flag) { return all_reduce_value(flag ? 1 : 0, kDecision) != 0; }
  std::string broadcast_text(const std::string& text, int root);
  std::vector<std::string> gather_texts(const std::string& text, int root);  ///< by rank; empty except at root

  /// A new group of the ranks with the same colour, ordered by key. Collective over this group.
  std::unique_ptr<Communicator> split(int colour, int key, const std::string& name);
  /// The same where every rank knows the colours of all (colours[rank]); the order of ranks is kept. Counting
  /// communicators, which receive nothing, can do only this one.
  virtual std::unique_ptr<Communicator> split_known(const std::vector<int>& colours, const std::string& name);

 protected:
  Communicator(int rank, int size, std::string name) : rank_(rank), size_(size), name_(std::move(name)) {}

  // The backend's part. Arguments are checked, and size() > 1, when these are called. They return a ticket for
  // finish().
  virtual std::uint64_t do_all_reduce(Tensor values, Reduce reduce) = 0;
  virtual std::uint64_t do_all_gather(ConstTensor part, Tensor whole) = 0;
  virtual std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) = 0;
  virtual std::uint64_t do_broadcast(Tensor values, int root) = 0;
  virtual std::uint64_t do_all_to_all(ConstTensor send, Tensor receive) = 0;
  virtual std::uint64_t do_send(ConstTensor values, int to, int channel) = 0;
  virtual std::uint64_t do_receive(Tensor values, int from, int channel) = 0;
  virtual void do_barrier() = 0;
  virtual std::unique_ptr<Communicator> do_split(int colour, int key, const std::string& name) = 0;
  virtual bool ready(std::uint64_t ticket) = 0;  ///< finish() would return at once
  virtual void finish(std::uint64_t ticket) = 0;
  virtual void do_progress() {}
  /// A Pending is dropped while an exception unwinds: its buffers may not be touched afterwards. The group is broken.
  virtual void abandon(std::uint64_t) noexcept {}
  /// The whole of a gather, a scatter or an all-to-all in a group of one rank; the tensors have equal sizes and do not
  /// overlap.
  virtual void copy_alone(ConstTensor from, Tensor to);
  virtual bool reduces(DType type) const;  ///< all but u8 unless the backend says otherwise

  static constexpr int kChannels = 1000;  ///< users' channels are 0 .. kChannels - 1; the next one carries texts

 private:
  friend class Pending;
  class Wait;
  Ranges* ranges() const { return meter_ != nullptr && meter_->timers != nullptr ? meter_->timers->ranges() : nullptr; }
  /// The transfer that is started next.
  Transfer next_transfer(const Waiting& what, int channel = -1) const;
  void check_reducible(DType type, const char* verb) const;
  Pending pending(std::uint64_t ticket, double bytes_sent, std::int64_t messages, const Waiting& what,
                  std::uint64_t check);
  /// Tells the check, if there is one.
  CollectiveCheck::Started tell_check(const CheckedCall& call) const;

  int rank_, size_;
  std::string name_;
  TrafficMeter* meter_ = nullptr;
  Activity* activity_ = nullptr;
  CollectiveCheck* check_ = nullptr;
};

}  // namespace megatron
