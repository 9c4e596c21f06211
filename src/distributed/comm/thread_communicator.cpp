#include "distributed/comm/thread_communicator.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "distributed/comm/ordered_reduction.h"

namespace megatron {

namespace {

// Thrown into ranks that wait for one that failed: the reason is elsewhere, so run_as_threads prefers other exceptions.
class OtherRankFailed : public Error {
 public:
  explicit OtherRankFailed(const std::string& message) : Error(ErrorKind::communication, message) {}
};

// Arguments that the ranks of a collective must agree on.
struct Signature {
  Verb verb = Verb::barrier;
  DType dtype = DType::u8;
  std::int64_t elements = 0;  // in the part, where there is one
  Reduce reduce = Reduce::sum;
  int root = 0;

  bool operator==(const Signature&) const = default;
  std::string to_string() const {
    return fmt::format("{} of {} {}{}{}", name_of(verb), elements, name_of(dtype),
                       reduce == Reduce::maximum ? ", maximum" : "",
                       verb == Verb::broadcast ? fmt::format(" from {}", root) : "");
  }
};

// One collective in progress: the buffers of the ranks that have come so far.
struct Meeting {
  Signature signature;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  int arrived = 0, left = 0;
  bool working = false, complete = false;
};

// Messages of one (from, to, channel), by number: the k-th receive takes the k-th message, whenever it waits.
struct Mailbox {
  std::uint64_t sent = 0, asked = 0;
  std::map<std::uint64_t, std::vector<std::byte>> messages;
};

struct World;

// State that the communicators of one group share, guarded by the mutex, but for the buffers of a Meeting that
// is `working`: these belong to the thread that arrived last.
struct ThreadGroup {
  ThreadGroup(World& its_world, std::string its_name, std::vector<int> its_world_ranks)
      : world(its_world), name(std::move(its_name)), world_ranks(std::move(its_world_ranks)) {}

  World& world;
  const std::string name;
  const std::vector<int> world_ranks;
  std::mutex mutex;
  std::condition_variable changed;
  bool broken = false;
  std::map<std::uint64_t, Meeting> meetings;
  std::map<std::tuple<int, int, int>, Mailbox> mailboxes;
  struct Child {
    std::shared_ptr<ThreadGroup> group;
    std::size_t taken = 0;
  };
  std::map<std::pair<std::uint64_t, int>, Child> children;  // by (number of the split, colour), until all have it
};

// All ranks of one run_as_threads. Its mutex is taken after a group's, never before.
struct World {
  std::chrono::milliseconds timeout;
  std::mutex mutex;
  std::vector<std::weak_ptr<ThreadGroup>> groups;
  bool failed = false;
  std::string failure;

  std::shared_ptr<ThreadGroup> add_group(std::string name, std::vector<int> world_ranks) {
    auto group = std::make_shared<ThreadGroup>(*this, std::move(name), std::move(world_ranks));
    const std::lock_guard lock(mutex);
    group->broken = failed;
    std::erase_if(groups, [](const std::weak_ptr<ThreadGroup>& other) { return other.expired(); });
    groups.push_back(group);
    return group;
  }

  void fail(int rank, const std::string& what) {
    std::vector<std::weak_ptr<ThreadGroup>> all;
    {
      const std::lock_guard lock(mutex);
      if (!failed) failure = fmt::format("rank {} failed: {}", rank, what);
      failed = true;
      all = groups;
    }
    for (const std::weak_ptr<ThreadGroup>& weak : all) {
      const std::shared_ptr<ThreadGroup> group = weak.lock();
      if (!group) continue;
      const std::lock_guard lock(group->mutex);
      group->broken = true;
      group->changed.notify_all();
    }
  }

  std::string reason() {
    const std::lock_guard lock(mutex);
    return failed ? failure : "another rank of the group gave up";
  }
};

// Does a collective for all its ranks; all have arrived and no other touches the buffers.
void perform(const Meeting& meeting) {
  const Signature& signature = meeting.signature;
  const std::size_t bytes = static_cast<std::size_t>(signature.elements) * size_of(signature.dtype);
  const std::size_t ranks = meeting.inputs.size();
  switch (signature.verb) {
    case Verb::all_reduce:
      // Input and output are the same buffer: the sum goes to rank 0's first, from there to the others.
      reduce_in_rank_order(signature.dtype, signature.reduce, meeting.inputs, meeting.outputs[0], signature.elements);
      for (std::size_t to = 1; to < ranks; ++to) std::memcpy(meeting.outputs[to], meeting.outputs[0], bytes);
      return;
    case Verb::all_gather:
      for (std::size_t to = 0; to < ranks; ++to) {
        for (std::size_t from = 0; from < ranks; ++from) {
          void* target = static_cast<std::byte*>(meeting.outputs[to]) + from * bytes;
          if (target != meeting.inputs[from]) std::memcpy(target, meeting.inputs[from], bytes);
        }
      }
      return;
    case Verb::reduce_scatter:
      // In place, rank `to` overwrites only its own slice, which the others do not need.
      for (std::size_t to = 0; to < ranks; ++to) {
        std::vector<const void*> slices;
        for (const void* whole : meeting.inputs) slices.push_back(static_cast<const std::byte*>(whole) + to * bytes);
        reduce_in_rank_order(signature.dtype, signature.reduce, slices, meeting.outputs[to], signature.elements);
      }
      return;
    case Verb::broadcast:
      for (std::size_t to = 0; to < ranks; ++to) {
        if (to == static_cast<std::size_t>(signature.root)) continue;
        std::memcpy(meeting.outputs[to], meeting.inputs[static_cast<std::size_t>(signature.root)], bytes);
      }
      return;
    case Verb::all_to_all:
      for (std::size_t to = 0; to < ranks; ++to) {
        for (std::size_t from = 0; from < ranks; ++from) {
          std::memcpy(static_cast<std::byte*>(meeting.outputs[to]) + from * bytes,
                      static_cast<const std::byte*>(meeting.inputs[from]) + to * bytes, bytes);
        }
      }
      return;
    default: return;
  }
}

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : Communicator(rank, static_cast<int>(group->world_ranks.size()), group->name), group_(std::move(group)) {}

 private:
  struct Started {
    Verb verb;
    std::uint64_t number;  // the meeting's, or the message's
    Tensor target;         // receive
    int from = 0, channel = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  std::uint64_t do_all_reduce(Tensor values, Reduce reduce) override {
    return meet({Verb::all_reduce, values.dtype(), values.elements(), reduce}, values.data(), values.data());
  }
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    return meet({Verb::all_gather, part.dtype(), part.elements()}, part.data(), whole.data());
  }
  std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) override {
    return meet({Verb::reduce_scatter, part.dtype(), part.elements()}, whole.data(), part.data());
  }
  std::uint64_t do_broadcast(Tensor values, int root) override {
    return meet({Verb::broadcast, values.dtype(), values.elements(), Reduce::sum, root}, values.data(), values.data());
  }
  std::uint64_t do_all_to_all(ConstTensor send, Tensor receive) override {
    return meet({Verb::all_to_all, send.dtype(), send.elements() / size()}, send.data(), receive.data());
  }
  std::unique_ptr<Communicator> do_split(int colour, int key, const std::string& name) override;
  void do_barrier() override { finish(meet({Verb::barrier, DType::u8, 0}, nullptr, nullptr)); }
  std::uint64_t do_send(ConstTensor values, int to, int channel) override;
  std::uint64_t do_receive(Tensor values, int from, int channel) override;
  bool ready(std::uint64_t ticket) override;
  void finish(std::uint64_t ticket) override;
  void abandon(std::uint64_t ticket) noexcept override;

  std::uint64_t meet(const Signature& signature, const void* input, void* output);
  void finish_meeting(std::uint64_t number, Verb verb);
  void finish_receive(const Started& started);
  // Waits until done() or the group breaks; false after the world's timeout.
  template <class Done>
  void wait_for(Lock& lock, Verb verb, Done done);
  void check_unbroken(Verb verb) const;
  std::uint64_t add(Started started) {
    started_.emplace(++last_ticket_, std::move(started));
    return last_ticket_;
  }

  std::shared_ptr<ThreadGroup> group_;
  // This rank's alone: no lock.
  std::uint64_t meetings_ = 0, splits_ = 0, last_ticket_ = 0;
  std::map<std::uint64_t, Started> started_;
};

// The group's mutex is held.
void ThreadCommunicator::check_unbroken(Verb verb) const {
  if (!group_->broken) return;
  throw OtherRankFailed(fmt::format("{} in group '{}', rank {} of {}: {}", name_of(verb), name(), rank(), size(),
                                    group_->world.reason()));
}

template <class Done>
void ThreadCommunicator::wait_for(Lock& lock, Verb verb, Done done) {
  const auto awake = [&] { return done() || group_->broken; };
  if (group_->changed.wait_for(lock, group_->world.timeout, awake)) {
    if (!done()) check_unbroken(verb);
    return;
  }
  group_->broken = true;  // no rank may use this rank's buffers any more
  group_->changed.notify_all();
  fail(ErrorKind::communication, "rank {} of {} in group '{}' (world rank {}) has waited {} ms in {}: deadlock?",
       rank(), size(), name(), group_->world_ranks[static_cast<std::size_t>(rank())], group_->world.timeout.count(),
       name_of(verb));
}

std::uint64_t ThreadCommunicator::meet(const Signature& signature, const void* input, void* output) {
  const std::uint64_t number = meetings_++;
  Lock lock(group_->mutex);
  check_unbroken(signature.verb);
  Meeting& meeting = group_->meetings[number];  // map nodes stay where they are
  if (meeting.arrived == 0) {
    meeting.signature = signature;
    meeting.inputs.resize(static_cast<std::size_t>(size()));
    meeting.outputs.resize(static_cast<std::size_t>(size()));
  } else if (meeting.signature != signature) {
    fail(ErrorKind::internal, "rank {} of group '{}' calls {} where others call {} (operation {} of the group)", rank(),
         name(), signature.to_string(), meeting.signature.to_string(), number);
  }
  meeting.inputs[static_cast<std::size_t>(rank())] = input;
  meeting.outputs[static_cast<std::size_t>(rank())] = output;
  if (++meeting.arrived == size()) {
    meeting.working = true;
    lock.unlock();
    perform(meeting);
    lock.lock();
    meeting.working = false;
    meeting.complete = true;
    lock.unlock();  // first: ranks that wake take it
    group_->changed.notify_all();
  }
  return add({signature.verb, number, {}});
}

void ThreadCommunicator::finish_meeting(std::uint64_t number, Verb verb) {
  Lock lock(group_->mutex);
  Meeting& meeting = group_->meetings.at(number);
  wait_for(lock, verb, [&] { return meeting.complete || meeting.working; });
  group_->changed.wait(lock, [&] { return meeting.complete; });  // at work: done soon, whatever else breaks
  if (++meeting.left == size()) group_->meetings.erase(number);
}

std::uint64_t ThreadCommunicator::do_send(ConstTensor values, int to, int channel) {
  const auto* bytes = static_cast<const std::byte*>(values.data());
  std::vector<std::byte> message(bytes, bytes + values.bytes());
  {
    const Lock lock(group_->mutex);
    check_unbroken(Verb::send);
    Mailbox& mailbox = group_->mailboxes[{rank(), to, channel}];
    mailbox.messages.emplace(mailbox.sent++, std::move(message));
  }
  group_->changed.notify_all();
  return add({Verb::send, 0, {}});
}

std::uint64_t ThreadCommunicator::do_receive(Tensor values, int from, int channel) {
  const Lock lock(group_->mutex);
  check_unbroken(Verb::receive);
  return add({Verb::receive, group_->mailboxes[{from, rank(), channel}].asked++, values, from, channel});
}

void ThreadCommunicator::finish_receive(const Started& started) {
  std::vector<std::byte> message;
  {
    Lock lock(group_->mutex);
    auto& messages = group_->mailboxes[{started.from, rank(), started.channel}].messages;
    wait_for(lock, Verb::receive, [&] { return messages.contains(started.number); });
    message = std::move(messages.extract(started.number).mapped());
  }
  verify(message.size() == started.target.bytes(), ErrorKind::communication,
         "rank {} of group '{}' expects {} bytes from rank {} on channel {} but gets {}", rank(), name(),
         started.target.bytes(), started.from, started.channel, message.size());
  std::memcpy(started.target.data(), message.data(), message.size());
}

bool ThreadCommunicator::ready(std::uint64_t ticket) {
  const Started& started = started_.at(ticket);
  if (started.verb == Verb::send) return true;
  const Lock lock(group_->mutex);
  if (group_->broken) return true;  // finish() says why
  if (started.verb != Verb::receive) return group_->meetings.at(started.number).complete;
  return group_->mailboxes[{started.from, rank(), started.channel}].messages.contains(started.number);
}

void ThreadCommunicator::finish(std::uint64_t ticket) {
  const auto node = started_.extract(ticket);
  internal_check(!node.empty(), "an operation is waited for twice");
  const Started& started = node.mapped();
  if (started.verb == Verb::send) return;  // copied at once
  if (started.verb == Verb::receive) return finish_receive(started);
  finish_meeting(started.number, started.verb);
}

void ThreadCommunicator::abandon(std::uint64_t ticket) noexcept {
  const auto node = started_.extract(ticket);
  if (node.empty() || node.mapped().verb == Verb::send || node.mapped().verb == Verb::receive) return;
  Lock lock(group_->mutex);
  group_->broken = true;  // ranks that come now find no meeting; those at work may finish it
  group_->changed.notify_all();
  const Meeting& meeting = group_->meetings.at(node.mapped().number);
  group_->changed.wait(lock, [&] { return !meeting.working; });
}

std::unique_ptr<Communicator> ThreadCommunicator::do_split(int colour, int key, const std::string& name) {
  const std::array<std::int32_t, 2> mine{colour, key};
  std::vector<std::int32_t> all(static_cast<std::size_t>(size()) * 2);
  all_gather(ConstTensor(mine.data(), {2}, DType::i32), Tensor(all.data(), {size(), 2}, DType::i32), kPassedOn);

  std::vector<std::pair<int, int>> members;  // (key, rank) of my colour, in the new order
  for (int other = 0; other < size(); ++other) {
    const auto at = static_cast<std::size_t>(other) * 2;
    if (all[at] == colour) members.emplace_back(all[at + 1], other);
  }
  std::sort(members.begin(), members.end());
  const auto self = std::find(members.begin(), members.end(), std::pair(key, rank()));
  std::vector<int> world_ranks;
  for (const auto& member : members) {
    world_ranks.push_back(group_->world_ranks[static_cast<std::size_t>(member.second)]);
  }

  const std::pair<std::uint64_t, int> place{splits_++, colour};
  const Lock lock(group_->mutex);
  ThreadGroup::Child& child = group_->children[place];
  if (!child.group) child.group = group_->world.add_group(name, std::move(world_ranks));
  const std::shared_ptr<ThreadGroup> group = child.group;
  if (++child.taken == members.size()) group_->children.erase(place);
  return std::make_unique<ThreadCommunicator>(group, static_cast<int>(self - members.begin()));
}

}  // namespace

void run_as_threads(int ranks, const std::function<void(Communicator& world)>& body,
                    std::chrono::milliseconds timeout) {
  internal_check(ranks > 0, "run_as_threads needs at least one rank", ranks);
  World world{.timeout = timeout, .mutex = {}, .groups = {}, .failed = false, .failure = {}};
  std::vector<int> all_ranks;
  for (int rank = 0; rank < ranks; ++rank) all_ranks.push_back(rank);
  const std::shared_ptr<ThreadGroup> group = world.add_group("world", all_ranks);

  std::mutex mutex;
  std::exception_ptr first, first_consequence;
  const auto run = [&](int rank) {
    const auto failed = [&](std::exception_ptr& kept, const char* what) {
      {
        const std::lock_guard lock(mutex);
        if (!kept) kept = std::current_exception();
      }
      world.fail(rank, what);
    };
    try {
      ThreadCommunicator communicator(group, rank);
      body(communicator);
    } catch (const OtherRankFailed& error) {
      failed(first_consequence, error.what());
    } catch (const std::exception& error) {
      failed(first, error.what());
    } catch (...) {
      failed(first, "an exception of unknown type");
    }
  };
  std::vector<std::thread> threads;
  for (const int rank : all_ranks) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
  if (first_consequence) std::rethrow_exception(first_consequence);
}

}  // namespace megatron
