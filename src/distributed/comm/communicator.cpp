#include "distributed/comm/communicator.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "distributed/comm/messages.h"
#include "distributed/comm/poll_backoff.h"

namespace megatron {

namespace {

void check_tensor(ConstTensor tensor, const char* verb, const std::string& group) {
  if (tensor.rank() == 0 || (tensor.elements() > 0 && tensor.empty())) {
    fail(ErrorKind::internal, "{} in group '{}': a tensor is absent", verb, group);
  }
  if (!tensor.contiguous()) {
    fail(ErrorKind::internal, "{} in group '{}': tensor {} is not contiguous", verb, group, tensor.shape().to_string());
  }
}

bool lie_apart(ConstTensor a, ConstTensor b) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data()), b_begin = reinterpret_cast<std::uintptr_t>(b.data());
  return a_begin + a.bytes() <= b_begin || b_begin + b.bytes() <= a_begin;
}

// whole is made of `size` parts; they lie apart, or part is exactly this rank's slice of whole.
void check_parts(ConstTensor whole, ConstTensor part, int rank, int size, const char* verb, const std::string& group) {
  if (whole.dtype() != part.dtype() || whole.elements() != size * part.elements()) {
    fail(ErrorKind::internal, "{} in group '{}' of {}: whole {} {} is not {} parts {} {}", verb, group, size,
         name_of(whole.dtype()), whole.shape().to_string(), size, name_of(part.dtype()), part.shape().to_string());
  }
  const auto whole_begin = reinterpret_cast<std::uintptr_t>(whole.data());
  const auto part_begin = reinterpret_cast<std::uintptr_t>(part.data());
  const bool in_place = part_begin == whole_begin + static_cast<std::size_t>(rank) * part.bytes();
  if (!in_place && !lie_apart(whole, part)) {
    fail(ErrorKind::internal, "{} in group '{}': part and whole overlap, and part is not rank {}'s slice of it", verb,
         group, rank);
  }
}

// Equal parts for all ranks, in two tensors that lie apart.
void check_exchange(ConstTensor send, ConstTensor receive, int size, const std::string& group) {
  if (send.dtype() != receive.dtype() || send.elements() != receive.elements()) {
    fail(ErrorKind::internal, "all-to-all in group '{}': send {} {} and receive {} {} differ in dtype or elements",
         group, name_of(send.dtype()), send.shape().to_string(), name_of(receive.dtype()), receive.shape().to_string());
  }
  if (send.elements() % size != 0) {
    fail(ErrorKind::internal, "all-to-all in group '{}': {} elements {} are not {} equal parts", group, send.elements(),
         send.shape().to_string(), size);
  }
  if (!lie_apart(send, receive)) {
    fail(ErrorKind::internal, "all-to-all in group '{}': send and receive overlap; give it separate buffers", group);
  }
}

std::int64_t bytes_of(ConstTensor tensor) {
  return static_cast<std::int64_t>(tensor.bytes());
}

std::int64_t width_of(ConstTensor tensor) {
  return static_cast<std::int64_t>(size_of(tensor.dtype()));
}

}  // namespace

// The scope of waiting for other ranks: told to the activity, its time charged to the meter's timers, if there are any.
class Communicator::Wait {
 public:
  Wait(const Communicator& group, const Waiting& what, std::int64_t operation = 0) : activity_(group.activity_) {
    if (activity_ != nullptr) {
      outer_ = activity_->waiting();
      outer_group_ = activity_->group();
      activity_->begin_waiting(what, group.name_);
    }
    TrafficMeter* meter = group.meter_;
    if (meter != nullptr && meter->timers != nullptr) section_.emplace(*meter->timers, Section::communication);
    range_.emplace(group.ranges(), Transfer{.what = what, .group = group.name_.c_str(), .operation = operation});
  }
  ~Wait() {
    if (activity_ == nullptr) return;
    activity_->end_waiting();
    if (outer_.verb != Verb::none) activity_->begin_waiting(outer_, outer_group_.data());
  }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

 private:
  Activity* activity_;
  Waiting outer_;  // a device's communicator waits in one of the host's
  ShortText::Characters outer_group_{};
  std::optional<Timers::Scope> section_;
  std::optional<Range> range_;  // within the section
};

Transfer Communicator::next_transfer(const Waiting& what, int channel) const {
  return {.what = what,
          .group = name_.c_str(),
          .channel = channel,
          .operation = meter_ != nullptr ? meter_->operations + 1 : 0,
          .starts = true};
}

Pending::Pending(Pending&& other) noexcept
    : communicator_(std::exchange(other.communicator_, nullptr)),
      ticket_(other.ticket_),
      what_(other.what_),
      operation_(other.operation_),
      check_(other.check_) {}

Pending& Pending::operator=(Pending&& other) noexcept {
  if (this == &other) return *this;
  internal_check(!active(), "a started operation is overwritten before its wait()");  // noexcept: terminates
  communicator_ = std::exchange(other.communicator_, nullptr);
  ticket_ = other.ticket_;
  what_ = other.what_;
  operation_ = other.operation_;
  check_ = other.check_;
  return *this;
}

Pending::~Pending() {
  if (!active()) return;
  if (communicator_->meter_ != nullptr) --communicator_->meter_->in_flight;
  if (std::uncaught_exceptions() > 0) {
    communicator_->abandon(ticket_);
    if (check_ != 0 && communicator_->check_ != nullptr) communicator_->check_->abandons(check_);
    return;
  }
  std::fprintf(stderr, "internal error: an operation in group '%s' was dropped without wait()\n",
               communicator_->name().c_str());
  std::terminate();
}

void Pending::wait() {
  Communicator* communicator = std::exchange(communicator_, nullptr);
  if (communicator == nullptr) return;
  const Communicator::Wait wait(*communicator, what_, operation_);
  if (communicator->meter_ != nullptr) --communicator->meter_->in_flight;
  communicator->finish(ticket_);
  if (check_ != 0 && communicator->check_ != nullptr) communicator->check_->ends(check_);
}

// A transport of the host moves everything in wait().
void Pending::wait_moving(Communicator& moved) {
  if (active() && &moved.host() != &moved) {
    const Communicator::Wait wait(*communicator_, what_, operation_);
    for (PollBackoff backoff; !ready(); backoff.rest()) {
      communicator_->do_progress();
      moved.do_progress();
    }
  }
  wait();
}

bool Pending::ready() const {
  return communicator_ == nullptr || communicator_->ready(ticket_);
}

void Communicator::set_check(CollectiveCheck* check) {
  // While an exception unwinds, operations are abandoned.
  internal_check(check_ == nullptr || check_->in_flight() == 0 || std::uncaught_exceptions() > 0,
                 "a group's check changes while calls that it knows are in flight", name_);
  check_ = check;
}

CollectiveCheck::Started Communicator::tell_check(const CheckedCall& call) const {
  if (check_ == nullptr) return {0, call.output};
  return check_->starts(call);
}

Pending Communicator::pending(std::uint64_t ticket, double bytes_sent, std::int64_t messages, const Waiting& what,
                              std::uint64_t check) {
  if (meter_ != nullptr) {
    meter_->bytes_sent += std::llround(bytes_sent);
    meter_->operations += 1;
    meter_->messages += messages;
    meter_->in_flight += 1;
  }
  return {this, ticket, what, meter_ != nullptr ? meter_->operations : 0, check};
}

void Communicator::check_reducible(DType type, const char* verb) const {
  if (reduces(type)) return;
  fail(ErrorKind::internal, "{} in group '{}': {} cannot be reduced", verb, name_, name_of(type));
}

bool Communicator::reduces(DType type) const {
  return type != DType::u8;
}

Pending Communicator::start_all_reduce(Tensor values, const Holding<Hold::partial>& said) {
  check_tensor(values, "all-reduce", name_);
  check_reducible(values.dtype(), "all-reduce");
  if (values.elements() == 0) return {};
  const std::uint64_t check = tell_check({Verb::all_reduce, said, values, values}).ticket;
  if (size_ == 1) return {};
  const Waiting what{Verb::all_reduce, -1, bytes_of(values)};
  const Range range(ranges(), next_transfer(what));
  return pending(do_all_reduce(values, said.meaning->reduce),
                 2.0 * (size_ - 1) / size_ * static_cast<double>(values.bytes()),
                 messages_of_all_reduce(values.elements(), width_of(values), rank_, size_), what, check);
}

Pending Communicator::start_all_gather(ConstTensor part, Tensor whole, const Holding<Hold::divided>& said) {
  check_tensor(part, "all-gather", name_);
  check_tensor(whole, "all-gather", name_);
  check_parts(whole, part, rank_, size_, "all-gather", name_);
  if (part.elements() == 0) return {};
  const CollectiveCheck::Started check = tell_check({Verb::all_gather, said, part, whole});
  if (size_ == 1) {
    if (part.data() != whole.data()) copy_alone(part, whole);
    return {};
  }
  const Waiting what{Verb::all_gather, -1, bytes_of(whole)};
  const Range range(ranges(), next_transfer(what));
  return pending(do_all_gather(part, check.output), static_cast<double>(part.bytes()) * (size_ - 1),
                 messages_of_all_gather(part.elements(), width_of(part), size_), what, check.ticket);
}

Pending Communicator::start_reduce_scatter(ConstTensor whole, Tensor part, const Holding<Hold::partial>& said) {
  internal_check(said.meaning->reduce == Reduce::sum, "a reduce-scatter of maxima");
  check_tensor(whole, "reduce-scatter", name_);
  check_tensor(part, "reduce-scatter", name_);
  check_reducible(part.dtype(), "reduce-scatter");
  check_parts(whole, part, rank_, size_, "reduce-scatter", name_);
  if (part.elements() == 0) return {};
  const std::uint64_t check = tell_check({Verb::reduce_scatter, said, whole, part}).ticket;
  if (size_ == 1) {
    if (part.data() != whole.data()) copy_alone(whole, part);
    return {};
  }
  const Waiting what{Verb::reduce_scatter, -1, bytes_of(whole)};
  const Range range(ranges(), next_transfer(what));
  return pending(do_reduce_scatter(whole, part), static_cast<double>(part.bytes()) * (size_ - 1),
                 messages_of_reduce_scatter(part.elements(), width_of(part), size_), what, check);
}

Pending Communicator::start_broadcast(Tensor values, int root, const Holding<Hold::own>& said) {
  check_tensor(values, "broadcast", name_);
  internal_check(root >= 0 && root < size_, "broadcast from a rank outside the group", root, size_);
  if (values.elements() == 0) return {};
  const CollectiveCheck::Started check = tell_check({Verb::broadcast, said, values, values, root});
  if (size_ == 1) return {};
  const Waiting what{Verb::broadcast, root, bytes_of(values)};
  const Range range(ranges(), next_transfer(what));
  return pending(do_broadcast(check.output, root),
                 root == rank_ ? static_cast<double>(values.bytes()) * (size_ - 1) : 0.0,
                 messages_of_broadcast(values.elements(), width_of(values), root, rank_, size_), what, check.ticket);
}

Pending Communicator::start_all_to_all(ConstTensor send, Tensor receive, const Holding<Hold::divided>& said) {
  check_tensor(send, "all-to-all", name_);
  check_tensor(receive, "all-to-all", name_);
  check_exchange(send, receive, size_, name_);
  if (send.elements() == 0) return {};
  const std::uint64_t check = tell_check({Verb::all_to_all, said, send, receive}).ticket;
  if (size_ == 1) {
    copy_alone(send, receive);
    return {};
  }
  const Waiting what{Verb::all_to_all, -1, bytes_of(send)};
  const Range range(ranges(), next_transfer(what));
  return pending(do_all_to_all(send, receive), static_cast<double>(send.bytes()) / size_ * (size_ - 1),
                 messages_of_all_to_all(send.elements() / size_, width_of(send), size_), what, check);
}

Pending Communicator::start_send(ConstTensor values, int to, int channel, const Holding<Hold::own>& said) {
  check_tensor(values, "send", name_);
  internal_check(to >= 0 && to < size_ && to != rank_, "send to oneself or to a rank outside the group", to, rank_,
                 size_);
  internal_check(channel >= 0 && channel <= kChannels, "send on a channel out of range", channel);
  if (values.elements() == 0) return {};
  const std::uint64_t check = tell_check({Verb::send, said, values, {}, to, channel}).ticket;
  const Waiting what{Verb::send, to, bytes_of(values)};
  const Range range(ranges(), next_transfer(what, channel));
  return pending(do_send(values, to, channel), static_cast<double>(values.bytes()), messages_of_send(bytes_of(values)),
                 what, check);
}

Pending Communicator::start_receive(Tensor values, int from, int channel, const Holding<Hold::own>& said) {
  check_tensor(values, "receive", name_);
  internal_check(from >= 0 && from < size_ && from != rank_, "receive from oneself or from a rank outside the group",
                 from, rank_, size_);
  internal_check(channel >= 0 && channel <= kChannels, "receive on a channel out of range", channel);
  if (values.elements() == 0) return {};
  const std::uint64_t check = tell_check({Verb::receive, said, {}, values, from, channel}).ticket;
  const Waiting what{Verb::receive, from, bytes_of(values)};
  const Range range(ranges(), next_transfer(what, channel));
  return pending(do_receive(values, from, channel), 0, 0, what, check);
}

void Communicator::barrier() {
  if (size_ == 1) return;
  if (meter_ != nullptr) meter_->operations += 1;
  const Wait wait(*this, {Verb::barrier}, meter_ != nullptr ? meter_->operations : 0);
  do_barrier();
}

void Communicator::progress() {
  std::optional<Timers::Scope> section;
  if (meter_ != nullptr && meter_->timers != nullptr) section.emplace(*meter_->timers, Section::communication);
  const Range range(meter_ != nullptr && meter_->in_flight > 0 ? ranges() : nullptr, "progress");
  do_progress();
}

void Communicator::all_reduce_values(std::span<double> values, const Holding<Hold::partial>& said) {
  host().all_reduce(Tensor(values.data(), {static_cast<std::int64_t>(values.size())}, DType::f64), said);
}

double Communicator::all_reduce_value(double value, const Holding<Hold::partial>& said) {
  all_reduce_values(std::span(&value, 1), said);
  return value;
}

std::unique_ptr<Communicator> Communicator::split(int colour, int key, const std::string& name) {
  const Wait wait(*this, {Verb::split});
  std::unique_ptr<Communicator> part = do_split(colour, key, name);
  part->set_activity(activity_);
  return part;
}

std::unique_ptr<Communicator> Communicator::split_known(const std::vector<int>& colours, const std::string& name) {
  internal_check(colours.size() == static_cast<std::size_t>(size_), "split needs one colour for every rank",
                 colours.size(), size_);
  return split(colours[static_cast<std::size_t>(rank_)], rank_, name);
}

void Communicator::copy_alone(ConstTensor from, Tensor to) {
  std::memcpy(to.data(), from.data(), from.bytes());
}

}  // namespace megatron
