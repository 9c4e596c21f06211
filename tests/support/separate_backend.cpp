#include "support/separate_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace megatron::test {

namespace {

constexpr unsigned char kPoison = 0xAB;

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (std::max(bytes, std::size_t{1}) + page - 1) / page * page;
}

void protect(void* memory, std::size_t bytes, int how) {
  internal_check(mprotect(memory, bytes, how) == 0, "mprotect failed");
}

/// Every verb later, with the arguments it was called with.
class SeparateOps final : public Ops {
 public:
  SeparateOps(SeparateDevice& device, Backend cpu) : device_(device), cpu_(std::move(cpu)), ops_(*cpu_.ops) {}

#define MEGATRON_VERB(name, parameters, arguments)    \
  void name parameters override {                     \
    device_.call([=, this] { ops_.name arguments; }); \
  }
  MEGATRON_VERBS(MEGATRON_VERB)
#undef MEGATRON_VERB

  std::size_t workspace_bytes() const override {
    device_.synchronize();
    return ops_.workspace_bytes();
  }
  void reserve(std::size_t bytes) override {
    device_.synchronize();
    ops_.reserve(bytes);
  }
  void read(ConstTensor x, void* host) override {
    device_.copy_to_host(host, x.data(), x.bytes());
  }

 private:
  SeparateDevice& device_;
  Backend cpu_;
  Ops& ops_;
};

}  // namespace

/// While one lives, the device's memory may be touched.
class SeparateDevice::Open {
 public:
  explicit Open(SeparateDevice& device) : device_(device) {
    if (device_.open_++ == 0) protect_all(PROT_READ | PROT_WRITE);
  }
  ~Open() {
    if (--device_.open_ == 0) protect_all(PROT_NONE);
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

 private:
  void protect_all(int how) {
    for (const Region& region : device_.regions_) protect(region.memory, region.bytes, how);
  }
  SeparateDevice& device_;
};

SeparateDevice::~SeparateDevice() {
  for (const Region& region : regions_) munmap(region.memory, region.bytes);  // none, if all buffers are gone
}

void* SeparateDevice::allocate(std::size_t bytes) {
  const std::size_t size = whole_pages(bytes);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  internal_check(memory != MAP_FAILED, "mmap failed");
  std::memset(memory, kPoison, size);
  if (open_ == 0) protect(memory, size, PROT_NONE);
  regions_.push_back({memory, size});
  bytes_ += bytes;
  most_bytes_ = std::max(most_bytes_, bytes_);
  return memory;
}

void SeparateDevice::deallocate(void* memory, std::size_t bytes) noexcept {
  finish_all();  // as on GPUs, memory in use is waited for
  std::erase_if(regions_, [=](const Region& region) { return region.memory == memory; });
  munmap(memory, whole_pages(bytes));
  bytes_ -= bytes;
}

void* SeparateDevice::Pinned::allocate(std::size_t wanted) {
  verify(wanted != device.refused_pinned_, ErrorKind::configuration, "no {} pinned bytes", wanted);
  bytes += wanted;
  most_bytes = std::max(most_bytes, bytes);
  return std::aligned_alloc(64, (std::max(wanted, std::size_t{1}) + 63) / 64 * 64);
}

void SeparateDevice::Pinned::deallocate(void* memory, std::size_t size) noexcept {
  device.finish_all();
  bytes -= size;
  std::free(memory);
}

SeparateDevice::Queue& SeparateDevice::queue_of(Ticket ticket) {
  return ticket.queue == kOperations ? operations_ : ticket.queue == kCopiesOut ? copies_out_ : copies_in_;
}

bool SeparateDevice::is_done(Ticket ticket) {
  return ticket.number <= queue_of(ticket).done;
}

// A queue's work in its order, up to the ticket; what that has to wait for on other queues carries these out first.
void SeparateDevice::carry_out(Ticket until) {
  if (is_done(until)) return;
  const Open open(*this);
  Queue& queue = queue_of(until);
  internal_check(until.number <= queue.called(), "a ticket of another device");
  const bool operates = &queue == &operations_;
  if (copies_ == Copies::late && !operates && operating_ == 0) carry_out({kOperations, operations_.called()});
  operating_ += operates ? 1 : 0;
  while (queue.done < until.number) {
    const std::function<void()> work = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    ++queue.done;
    work();
  }
  operating_ -= operates ? 1 : 0;
}

void SeparateDevice::finish_all() {
  for (const std::uint32_t queue : {kOperations, kCopiesOut, kCopiesIn}) {
    carry_out({queue, queue_of({queue, 0}).called()});
  }
}

void SeparateDevice::order_after(Ticket ticket) {
  call([=, this] { carry_out(ticket); });
}

bool SeparateDevice::complete(Ticket ticket) {
  if (is_done(ticket)) return true;
  carry_out(ticket);  // by the next time that is_done() is called
  return false;
}

void SeparateDevice::wait(Ticket ticket) {
  if (!is_done(ticket)) {
    ++host_waits_;
    std::this_thread::sleep_for(std::chrono::duration<double>(wait_seconds_));
  }
  carry_out(ticket);
}

void SeparateDevice::synchronize() {
  ++host_waits_;
  finish_all();
}

Ticket SeparateDevice::start_copy(std::uint32_t queue, Ticket after, std::function<void()> copy) {
  queue_of({queue, 0}).waiting.emplace_back([=, this, copy = std::move(copy)] {
    carry_out(after);
    copy();
  });
  const Ticket ticket{queue, queue_of({queue, 0}).called()};
  if (copies_ == Copies::early) carry_out(ticket);
  return ticket;
}

Ticket SeparateDevice::start_copy_to_host(void* host, const void* device, std::size_t bytes, Ticket after) {
  std::memset(host, kPoison, bytes);
  return start_copy(kCopiesOut, after, [=] { std::memcpy(host, device, bytes); });
}

Ticket SeparateDevice::start_copy_to_device(void* device, const void* host, std::size_t bytes, Ticket after) {
  return start_copy(kCopiesIn, after, [=] { std::memcpy(device, host, bytes); });
}

void SeparateDevice::copy_to_device(void* device, const void* host, std::size_t bytes) {
  ++host_waits_;
  carry_out(mark());
  const Open open(*this);
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void SeparateDevice::copy_to_host(void* host, const void* device, std::size_t bytes) {
  ++host_waits_;
  carry_out(mark());
  const Open open(*this);
  if (bytes > 0) std::memcpy(host, device, bytes);
}

void SeparateDevice::copy_within(void* to, const void* from, std::size_t bytes) {
  call([=] {
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
}

Backend make_separate_backend(Copies copies, Backend cpu) {
  auto device = std::make_unique<SeparateDevice>(copies);
  auto ops = std::make_unique<SeparateOps>(*device, std::move(cpu));
  return {std::move(device), std::move(ops)};
}

}  // namespace megatron::test
