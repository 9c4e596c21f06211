#include "distributed/comm/clock_offset.h"

#include <array>
#include <limits>

namespace megatron {

namespace {

constexpr int kRounds = 50, kChannel = 0;

// Numbers as bytes: tensors have no integers of 64 bits.
template <class Numbers>
Tensor as_bytes_tensor(Numbers& numbers) {
  return {&numbers, {sizeof numbers}, DType::u8};
}

// Rank 0's side: how far `other` is ahead.
ClockOffset measure(Communicator& world, int other, const std::function<std::int64_t()>& clock) {
  ClockOffset best{.error = std::numeric_limits<std::int64_t>::max()};
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t theirs = 0;
    const std::int64_t before = clock();
    world.start_send(as_bytes_tensor(theirs), other, kChannel, kReport).wait();
    world.start_receive(as_bytes_tensor(theirs), other, kChannel, kReport).wait();
    const std::int64_t after = clock(), error = (after - before + 1) / 2;
    if (error < best.error) best = {.ahead = theirs - (before + error), .error = error, .read = theirs};
  }
  return best;
}

}  // namespace

ClockOffset measure_clock_offset(Communicator& world, const std::function<std::int64_t()>& clock) {
  Communicator& host = world.host();
  if (host.rank() == 0) {
    for (int other = 1; other < host.size(); ++other) {
      const ClockOffset offset = measure(host, other, clock);
      std::array<std::int64_t, 3> numbers = {offset.ahead, offset.error, offset.read};
      host.start_send(as_bytes_tensor(numbers), other, kChannel, kReport).wait();
    }
    return {.read = clock()};
  }
  for (int round = 0; round < kRounds; ++round) {
    std::int64_t mine = 0;
    host.start_receive(as_bytes_tensor(mine), 0, kChannel, kReport).wait();
    mine = clock();
    host.start_send(as_bytes_tensor(mine), 0, kChannel, kReport).wait();
  }
  std::array<std::int64_t, 3> numbers{};
  host.start_receive(as_bytes_tensor(numbers), 0, kChannel, kReport).wait();
  return {.ahead = numbers[0], .error = numbers[1], .read = numbers[2]};
}

}  // namespace megatron
