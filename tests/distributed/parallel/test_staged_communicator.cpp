// Staged communicators: every verb through memory of another kind, with copies as early and as late as they may be;
// what is ordered and what is waited for; and that pinned buffers are what was planned.
#include <map>

#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/thread_communicator.h"
#include "distributed/parallel/staged_communicator.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/separate_backend.h"

using namespace megatron;
using namespace megatron::test;
using communicator_cases::expect;

namespace {

/// Host tensors taken to the device, moved there by its communicator, and fetched back: so that the cases of host
/// communicators are cases of this one too.
class ThroughDevice final : public Communicator {
 public:
  ThroughDevice(Communicator& staged, Device& device)
      : Communicator(staged.rank(), staged.size(), staged.name()), staged_(staged), device_(device) {}
  ThroughDevice(std::unique_ptr<Communicator> staged, Device& device) : ThroughDevice(*staged, device) {
    owned_ = std::move(staged);
  }
  Communicator& host() override { return staged_.host(); }

 private:
  struct Trip {
    Buffer memory, second;
    Tensor there;
    void* home = nullptr;
    Pending pending;
  };

  Tensor take(ConstTensor values, Buffer& memory) {
    memory = Buffer(device_, values.bytes());
    device_.copy_to_device(memory.data(), values.data(), values.bytes());
    return memory.tensor(values.shape(), values.dtype());
  }
  /// A tensor of another that lies in it on the host, or a separate copy.
  Tensor take_part(ConstTensor part, ConstTensor whole, Tensor whole_there, Buffer& memory) {
    const auto offset = static_cast<const std::byte*>(part.data()) - static_cast<const std::byte*>(whole.data());
    if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(whole.bytes())) return take(part, memory);
    return whole_there.slice(0, rank() * part.elements(), part.elements());
  }
  std::uint64_t keep(Trip trip) {
    trips_.emplace(++last_, std::move(trip));
    return last_;
  }

  std::uint64_t do_all_reduce(Tensor values, Reduce reduce) override {
    Trip trip;
    trip.there = take(values, trip.memory);
    trip.home = values.data();
    trip.pending = staged_.start_all_reduce(trip.there, passed_on(reduce));
    return keep(std::move(trip));
  }
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    Trip trip;
    trip.there = take(whole, trip.memory);
    trip.home = whole.data();
    trip.pending = staged_.start_all_gather(take_part(part, whole, trip.there, trip.second), trip.there, kPassedOn);
    return keep(std::move(trip));
  }
  std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) override {
    Trip trip;
    const Tensor whole_there = take(whole, trip.memory);
    trip.there = take_part(part, whole, whole_there, trip.second);
    trip.home = part.data();
    trip.pending = staged_.start_reduce_scatter(whole_there, trip.there, kPassedOn);
    return keep(std::move(trip));
  }
  std::uint64_t do_broadcast(Tensor values, int root) override {
    Trip trip;
    trip.there = take(values, trip.memory);
    trip.home = values.data();
    trip.pending = staged_.start_broadcast(trip.there, root, kPassedOn);
    return keep(std::move(trip));
  }
  std::uint64_t do_all_to_all(ConstTensor send, Tensor receive) override {
    Trip trip;
    trip.there = take(receive, trip.memory);
    trip.home = receive.data();
    trip.pending = staged_.start_all_to_all(take(send, trip.second), trip.there, kPassedOn);
    return keep(std::move(trip));
  }
  std::uint64_t do_send(ConstTensor values, int to, int channel) override {
    Trip trip;
    trip.pending = staged_.start_send(take(values, trip.memory), to, channel, kPassedOn);
    return keep(std::move(trip));
  }
  std::uint64_t do_receive(Tensor values, int from, int channel) override {
    Trip trip;
    trip.there = take(values, trip.memory);
    trip.home = values.data();
    trip.pending = staged_.start_receive(trip.there, from, channel, kPassedOn);
    return keep(std::move(trip));
  }
  void do_barrier() override { staged_.barrier(); }
  std::unique_ptr<Communicator> do_split(int colour, int key, const std::string& name) override {
    return std::make_unique<ThroughDevice>(staged_.split(colour, key, name), device_);
  }
  bool ready(std::uint64_t ticket) override { return trips_.at(ticket).pending.ready(); }
  void finish(std::uint64_t ticket) override {
    Trip trip = std::move(trips_.extract(ticket).mapped());
    trip.pending.wait();
    if (trip.home != nullptr) device_.copy_to_host(trip.home, trip.there.data(), trip.there.bytes());
  }
  void do_progress() override { staged_.progress(); }
  void abandon(std::uint64_t ticket) noexcept override { trips_.erase(ticket); }

  std::unique_ptr<Communicator> owned_;
  Communicator& staged_;
  Device& device_;
  std::map<std::uint64_t, Trip> trips_;
  std::uint64_t last_ = 0;
};

/// Plays `body` on thread ranks, each with its own device.
void on_devices(int ranks, Copies copies, const std::function<void(Communicator& staged, Backend& backend)>& body) {
  run_as_threads(ranks, [&](Communicator& world) {
    Backend backend = make_separate_backend(copies);
    StagedCommunicator staged(world, *backend.device);
    body(staged, backend);
  });
}

std::vector<float> fetch(Device& device, ConstTensor values) {
  std::vector<float> host(static_cast<std::size_t>(values.elements()));
  device.copy_to_host(host.data(), values.data(), values.bytes());
  return host;
}

}  // namespace

TEST_CASE("staged: every verb gives what the host's communicator gives") {
  for (const auto& test : communicator_cases::all_cases()) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      for (const Copies copies : {Copies::early, Copies::late}) {
        INFO(test.name << ", " << ranks << " ranks, " << (copies == Copies::early ? "early" : "late") << " copies");
        CHECK_NOTHROW(on_devices(ranks, copies, [&](Communicator& staged, Backend& backend) {
          ThroughDevice world(staged, *backend.device);
          test.body(world);
        }));
      }
    }
  }
}

TEST_CASE("staged: operations before the start are in it and later ones follow") {
  const Copies copies = GENERATE(Copies::early, Copies::late);
  CHECK_NOTHROW(on_devices(4, copies, [](Communicator& staged, Backend& backend) {
    Ops& ops = *backend.ops;
    const std::int64_t count = 3000000;  // three chunks
    const Buffer memory(*backend.device, 3 * static_cast<std::size_t>(count) * sizeof(float));
    const Tensor sum = memory.tensor({count}, DType::f32);
    const Tensor before = memory.tensor({count}, DType::f32, static_cast<std::size_t>(count) * sizeof(float));
    const Tensor after = memory.tensor({count}, DType::f32, 2 * static_cast<std::size_t>(count) * sizeof(float));
    ops.fill(sum, staged.rank() + 1);
    Pending pending = staged.start_all_reduce(sum, kPassedOn);
    ops.fill(before, 7);  // something else, under it
    pending.wait();
    ops.copy(sum, after);
    ops.scale(sum, 0);
    expect(fetch(*backend.device, after) == std::vector<float>(static_cast<std::size_t>(count), 10), "sums");

    // The message does not overtake operations that still read the old contents; the receiver sends nothing, so that
    // nothing else has made its operations run.
    ops.fill(after, staged.rank());
    if (staged.rank() % 2 == 0) {
      staged.start_send(after, staged.rank() + 1, 0, kPassedOn).wait();
      ops.fill(after, -1);
      return;
    }
    ops.fill(sum, 100);
    ops.copy(sum, before);
    staged.start_receive(sum, staged.rank() - 1, 0, kPassedOn).wait();
    expect(fetch(*backend.device, before)[0] == 100, "the message came before its place was free");
    const auto wanted = static_cast<float>(staged.rank() - 1);
    expect(fetch(*backend.device, sum) == std::vector<float>(static_cast<std::size_t>(count), wanted), "message");
  }));
}

TEST_CASE("staged: the host does not wait for its device") {
  CHECK_NOTHROW(on_devices(2, Copies::late, [](Communicator& staged, Backend& backend) {
    auto& device = dynamic_cast<SeparateDevice&>(*backend.device);
    const Buffer memory(device, 4096), other_memory(device, 4096);
    const Tensor values = memory.tensor({1024}, DType::f32), exchanged = other_memory.tensor({1024}, DType::f32);
    backend.ops->fill(values, 1);
    const int before = device.host_waits();
    for (int i = 0; i < 5; ++i) {
      staged.all_reduce(values, kPassedOn);
      staged.broadcast(values, 1, kPassedOn);
      staged.all_to_all(values, exchanged, kPassedOn);
    }
    expect(device.host_waits() == before, "{} waits for the device", device.host_waits() - before);
    expect(fetch(device, values)[1023] == 32, "sums of sums");
    expect(fetch(device, exchanged) == std::vector<float>(1024, 32), "parts of sums");
  }));
}

TEST_CASE("staged: pinned buffers are as planned whatever is in flight") {
  const auto play = [](Communicator& group, const std::function<Tensor(std::int64_t)>& tensor) {
    const int rank = group.rank(), size = group.size();
    std::vector<Pending> pending;
    pending.push_back(group.start_all_reduce(tensor(2500000), kPassedOn));
    pending.push_back(group.start_all_gather(tensor(1000), tensor(1000 * size), kPassedOn));
    pending.push_back(group.start_send(tensor(1500), (rank + 1) % size, 0, kPassedOn));
    pending.push_back(group.start_send(tensor(1600), (rank + 1) % size, 0, kPassedOn));
    pending.push_back(group.start_receive(tensor(1500), (rank + size - 1) % size, 0, kPassedOn));
    pending.push_back(group.start_receive(tensor(1600), (rank + size - 1) % size, 0, kPassedOn));
    pending.push_back(group.start_broadcast(tensor(700), 0, kPassedOn));
    pending.push_back(group.start_all_to_all(tensor(1200), tensor(2400).slice(0, 0, 1200), kPassedOn));
    for (Pending& one : pending) one.wait();
  };
  CountingCommunicator counting(0, 4, "world", true);
  play(counting, [](std::int64_t elements) {
    return Tensor(reinterpret_cast<void*>(std::uintptr_t{64} + static_cast<std::uintptr_t>(elements) * 1000000),
                  {elements}, DType::f32);
  });
  const StagingPlan plan = counting.staging_plan();
  CHECK(plan.pinned.count == 6);  // collectives, sends and receives: two each
  CHECK(plan.pinned.bytes_each == 4 << 20);
  CHECK(plan.reductions.count == 2);  // chunks of one tensor

  CHECK_NOTHROW(on_devices(4, Copies::late, [&](Communicator& staged, Backend& backend) {
    auto& device = dynamic_cast<SeparateDevice&>(*backend.device);
    std::vector<Buffer> memory;
    const auto tensor = [&](std::int64_t elements) {
      memory.emplace_back(device, static_cast<std::size_t>(elements) * sizeof(float));
      const Tensor made = memory.back().tensor({elements}, DType::f32);
      backend.ops->fill(made, 1);
      return made;
    };
    expect(device.pinned_bytes() == 0, "pinned memory before anything was staged");
    staged.reserve_staging(plan);
    for (int i = 0; i < 3; ++i) {
      play(staged, tensor);
      expect(device.pinned_bytes() == plan.pinned.bytes(), "{} bytes of pinned memory, {} planned",
             device.pinned_bytes(), plan.pinned.bytes());
      expect(staged.staging_bytes() == plan.pinned.bytes(), "{} bytes said", staged.staging_bytes());
    }
    staged.reserve_staging(plan);  // again, for another replica
    play(staged, tensor);
    expect(device.pinned_bytes() == plan.pinned.bytes(), "after another reservation: {}", device.pinned_bytes());
  }));
}

TEST_CASE("staged: an all-to-all pins memory for what goes out and comes in") {
  const std::int64_t elements = GENERATE(1200, 2500000);
  CountingCommunicator counting(0, 4, "world", true);
  Arena arena("sizing");
  const Tensor from = arena.allocate("from", {elements}, DType::f32), to = arena.allocate("to", {elements}, DType::f32);
  counting.all_to_all(from, to, kPassedOn);
  const StagingPlan plan = counting.staging_plan();
  CHECK(plan.reductions.bytes() == 0);
  CHECK(plan.pinned.count == 2);
  CHECK(plan.pinned.bytes_each == (elements == 1200 ? 9600 : 4 << 20));

  CHECK_NOTHROW(on_devices(4, Copies::late, [&](Communicator& staged, Backend& backend) {
    auto& device = dynamic_cast<SeparateDevice&>(*backend.device);
    const auto bytes = static_cast<std::size_t>(elements) * sizeof(float);
    const Buffer send(device, bytes), first(device, bytes), second(device, bytes);
    backend.ops->fill(send.tensor({elements}, DType::f32), staged.rank());
    Pending one =
        staged.start_all_to_all(send.tensor({elements}, DType::f32), first.tensor({elements}, DType::f32), kPassedOn);
    Pending two =
        staged.start_all_to_all(send.tensor({elements}, DType::f32), second.tensor({elements}, DType::f32), kPassedOn);
    one.wait();
    two.wait();
    expect(device.pinned_bytes() == plan.pinned.bytes(), "{} bytes of pinned memory, {} planned", device.pinned_bytes(),
           plan.pinned.bytes());
    const std::vector<float> received = fetch(device, second.tensor({elements}, DType::f32));
    for (std::int64_t i = 0; i < elements; ++i) {
      const auto wanted = static_cast<float>(i / (elements / 4));
      expect(received[static_cast<std::size_t>(i)] == wanted, "element {} did not come from rank {}", i, wanted);
    }
  }));
}

TEST_CASE("staged: control values need no device") {
  CHECK_NOTHROW(on_devices(3, Copies::late, [](Communicator& staged, Backend& backend) {
    auto& device = dynamic_cast<SeparateDevice&>(*backend.device);
    expect(staged.all_reduce_value(staged.rank(), kPassedOn) == 3, "sum of values");
    expect(staged.broadcast_text(staged.rank() == 1 ? "text" : "", 1) == "text", "text");
    staged.barrier();
    expect(device.pinned_bytes() == 0, "{} bytes of pinned memory for it", device.pinned_bytes());
  }));
}

TEST_CASE("staged: a failing rank wakes those waiting and its error is reported") {
  try {
    on_devices(4, Copies::late, [](Communicator& staged, Backend& backend) {
      const Buffer memory(*backend.device, 4096);
      const Tensor values = memory.tensor({1024}, DType::f32);
      backend.ops->fill(values, 1);
      const auto group = staged.split(0, 0, "group");
      Pending other = group->start_all_reduce(memory.tensor({512}, DType::f32), kPassedOn);
      if (staged.rank() == 2) fail(ErrorKind::data, "shard is gone");
      staged.all_reduce(values, kPassedOn);
    });
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    CHECK(std::string(error.what()) == "shard is gone");
  }
}
