// A backend that behaves like a GPU without one: memory that is not the host's, and work that is done while the host
// does something else. Its mathematics is the CPU backend's, so that whatever comes out must be the same bits. Its
// memory is pages that only the backend may touch, while it works on them: following a pointer there from anywhere else
// ends the process by SIGSEGV. One device per rank, used by the thread that made it.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "backend/ops/backends.h"
#include "backend/ops/device.h"
#include "backend/ops/ops.h"

namespace megatron::test {

/// Operations are carried out when they are waited for, not when they are called; copies as early as their ticket
/// allows, or as late as they may be. Between them the two find what is not ordered: a late copy's bytes are not there
/// for code that did not wait for it (host memory holds poison until then), and all operations that were not told to
/// wait for it come before it; an early one overtakes the operations that it was not told to wait for.
enum class Copies { early, late };

class SeparateDevice final : public Device {
 public:
  explicit SeparateDevice(Copies copies) : copies_(copies), pinned_(*this) {}
  ~SeparateDevice() override;

  void* allocate(std::size_t bytes) override;
  void deallocate(void* memory, std::size_t bytes) noexcept override;
  std::string description() const override { return "separate memory, late work"; }
  std::string identity() const override { return "separate"; }
  std::optional<std::size_t> free_bytes() const override { return free_bytes_; }
  void set_free_bytes(std::optional<std::size_t> bytes) { free_bytes_ = bytes; }  ///< free_bytes()'s answer
  bool is_host_memory() const override { return false; }
  Allocator& pinned() override { return pinned_; }

  void copy_to_device(void* device, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device, std::size_t bytes) override;
  void copy_within(void* to, const void* from, std::size_t bytes) override;
  Ticket mark() override { return {kOperations, operations_.called()}; }
  Ticket start_copy_to_host(void* host, const void* device, std::size_t bytes, Ticket after) override;
  Ticket start_copy_to_device(void* device, const void* host, std::size_t bytes, Ticket after) override;
  void order_after(Ticket ticket) override;
  bool complete(Ticket ticket) override;
  void wait(Ticket ticket) override;
  void synchronize() override;

  /// An operation, to be carried out later.
  void call(std::function<void()> work) { operations_.waiting.push_back(std::move(work)); }

  std::size_t bytes() const { return bytes_; }            ///< held by buffers now
  std::size_t most_bytes() const { return most_bytes_; }  ///< at once since start_most()
  void start_most() { most_bytes_ = bytes_; }
  void refuse_pinned(std::size_t bytes) { refused_pinned_ = bytes; }    ///< an allocation of exactly this size
  std::size_t pinned_bytes() const { return pinned_.bytes; }            ///< held now
  std::size_t most_pinned_bytes() const { return pinned_.most_bytes; }  ///< at once so far
  /// How often the host has waited so far: synchronous copies, and wait() for what was not complete.
  int host_waits() const { return host_waits_; }
  void set_wait_seconds(double seconds) { wait_seconds_ = seconds; }  ///< that wait() for what is not complete takes

 private:
  struct Queue {
    std::deque<std::function<void()>> waiting;
    std::uint64_t done = 0;
    std::uint64_t called() const { return done + waiting.size(); }
  };
  struct Region {
    void* memory;
    std::size_t bytes;
  };
  /// Host memory; giving it back waits for the device, as it does on GPUs.
  struct Pinned final : Allocator {
    explicit Pinned(SeparateDevice& its_device) : device(its_device) {}
    void* allocate(std::size_t wanted) override;
    void deallocate(void* memory, std::size_t size) noexcept override;
    SeparateDevice& device;
    std::size_t bytes = 0, most_bytes = 0;
  };
  class Open;

  static constexpr std::uint32_t kOperations = 1, kCopiesOut = 2, kCopiesIn = 3;
  Queue& queue_of(Ticket ticket);
  bool is_done(Ticket ticket);
  void carry_out(Ticket until);
  Ticket start_copy(std::uint32_t queue, Ticket after, std::function<void()> copy);
  void finish_all();

  Copies copies_;
  Pinned pinned_;
  std::vector<Region> regions_;
  std::optional<std::size_t> free_bytes_ = std::size_t{1} << 40;
  std::optional<std::size_t> refused_pinned_;
  std::size_t bytes_ = 0, most_bytes_ = 0;
  int open_ = 0;       // scopes in which memory may be touched
  int operating_ = 0;  // operations that are being carried out, one within the other
  Queue operations_, copies_out_, copies_in_;
  int host_waits_ = 0;
  double wait_seconds_ = 0;
};

/// A SeparateDevice with the operations of `cpu`.
Backend make_separate_backend(Copies copies = Copies::late, Backend cpu = make_cpu_backend());

}  // namespace megatron::test
