// Activity: what a rank is doing right now, for others to read while it does it.
//
// Written by the thread that computes, at each beginning and end of a section of its timers or of a wait for other
// ranks: a few plain stores, no clock, no memory. Read by the hang watch, from other threads and other processes of the
// node, which sees by `changes` whether anything has moved since its last look; and by the crash report, from a signal
// handler. So a record holds lock-free atomics and no pointers: it may lie in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace megatron {

/// Operations in which a rank can be waiting for others.
enum class Verb : std::int32_t {
  none,
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  send,
  receive,
  barrier,
  split
};

/// "all-reduce", "receive", ...
const char* name_of(Verb verb);

/// A communication as the activity tells it. The peer is a rank of the group: the other side, or the root; -1:
/// all.
struct Waiting {
  Verb verb = Verb::none;
  std::int32_t peer = -1;
  std::int64_t bytes = 0;
};

/// At most 16 characters, the rest is cut off; copied word by word.
class ShortText {
 public:
  static constexpr std::size_t kLength = 16;
  using Characters = std::array<char, kLength + 1>;  ///< with a zero at the end

  void set(std::string_view text) {
    std::array<std::uint64_t, 2> words{};
    std::memcpy(words.data(), text.data(), text.size() < kLength ? text.size() : kLength);
    for (std::size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_relaxed);
  }
  Characters get() const {
    std::array<std::uint64_t, 2> words{};
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    Characters text{};
    std::memcpy(text.data(), words.data(), kLength);
    return text;
  }

 private:
  std::array<std::atomic<std::uint64_t>, 2> words_{};
};

/// A reader may see a record between two stores: half of it old, half new.
class alignas(64) Activity {
 public:
  // For the rank itself.
  void set_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed), changed(); }
  void set_phase(std::string_view phase) { phase_.set(phase), changed(); }
  void begin_waiting(const Waiting& what, std::string_view group) {
    group_.set(group);
    peer_.store(what.peer, std::memory_order_relaxed);
    bytes_.store(what.bytes, std::memory_order_relaxed);
    verb_.store(static_cast<std::int32_t>(what.verb), std::memory_order_relaxed);
    changed();
  }
  void end_waiting() { verb_.store(0, std::memory_order_relaxed), changed(); }
  /// The wait may take any time: it is not a hang.
  void set_patient(bool patient) { patient_.store(patient, std::memory_order_relaxed), changed(); }
  /// The rank that writes here; -1: none (yet, or any more).
  void set_owner(std::int32_t rank, std::int32_t process) {
    process_.store(process, std::memory_order_relaxed);
    rank_.store(rank, std::memory_order_release);
  }

  // For all readers.
  std::uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }
  std::int32_t rank() const { return rank_.load(std::memory_order_acquire); }
  std::int32_t process() const { return process_.load(std::memory_order_relaxed); }
  bool patient() const { return patient_.load(std::memory_order_relaxed); }
  std::int64_t step() const { return step_.load(std::memory_order_relaxed); }
  ShortText::Characters phase() const { return phase_.get(); }
  ShortText::Characters group() const { return group_.get(); }
  Waiting waiting() const {
    return {static_cast<Verb>(verb_.load(std::memory_order_relaxed)), peer_.load(std::memory_order_relaxed),
            bytes_.load(std::memory_order_relaxed)};
  }

  /// One of the readers at a time speaks for all: true for the one that gets to.
  bool claim_report() { return !reporting_.exchange(true); }
  void release_report() { reporting_.store(false); }

 private:
  // One writer: no read-modify-write needed.
  void changed() { changes_.store(changes_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }

  std::atomic<std::uint64_t> changes_{0};
  std::atomic<std::int32_t> rank_{-1}, process_{0}, verb_{0}, peer_{-1};
  std::atomic<std::int64_t> step_{0}, bytes_{0};
  ShortText phase_, group_;
  std::atomic<bool> patient_{false}, reporting_{false};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

/// "step 41, backward, waits in all-reduce of 4.2 MB over 'tensor'": one line, without rank and time.
std::string describe(const Activity& activity);

}  // namespace megatron
