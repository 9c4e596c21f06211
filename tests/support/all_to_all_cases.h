// Cases of all_to_all for every communicator: bodies that run on one rank, listed in communicator_cases.h.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "support/communicator_elements.h"

namespace megatron::communicator_cases {

/// Values that a rank receives if its group's ranks send elements_of(their rank + shift, ranks * part): part by part.
template <class T>
std::vector<T> exchanged(const Communicator& group, std::int64_t part, int shift = 0) {
  std::vector<T> wanted;
  for (int from = 0; from < group.size(); ++from) {
    for (std::int64_t i = 0; i < part; ++i) wanted.push_back(element<T>(from + shift, group.rank() * part + i));
  }
  return wanted;
}

template <class T>
void exchange(Communicator& world, std::int64_t part) {
  const std::vector<T> given = elements_of<T>(world.rank(), part * world.size());
  std::vector<T> send = given, receive(send.size());
  world.all_to_all(tensor_of(send), tensor_of(receive), kPassedOn);
  expect_same_bits(receive, exchanged<T>(world, part).data(), "all-to-all", world);
  expect_same_bits(send, given.data(), "what an all-to-all sent", world);
}

inline void all_to_all_case(Communicator& world) {
  for (const std::int64_t part : awkward_sizes()) exchange<float>(world, part);
  // Shapes are free: only elements count.
  std::vector<float> send = elements_of<float>(world.rank(), 6 * world.size()), receive(send.size());
  world.all_to_all(Tensor(send.data(), {2 * world.size(), 3}, DType::f32),
                   Tensor(receive.data(), {3, world.size(), 2}, DType::f32), kPassedOn);
  expect_same_bits(receive, exchanged<float>(world, 6).data(), "all-to-all of two shapes", world);
}

inline void all_to_all_types_case(Communicator& world) {
  exchange<double>(world, 1001);
  exchange<std::int32_t>(world, 1001);
  exchange<BFloat16>(world, 1001);
  exchange<Float16>(world, 1001);
  exchange<std::uint8_t>(world, 1001);
}

/// More than a backend moves at once: parts that are cut, with ends at other places than chunks', and parts of which a
/// few fit a chunk.
inline void large_all_to_all_case(Communicator& world) {
  const std::int64_t part = 3333337 / std::max(1, world.size() - 1) + 1;
  std::vector<float> send = elements_of<float>(world.rank(), part * world.size()), receive(send.size());
  world.all_to_all(tensor_of(send), tensor_of(receive), kPassedOn);
  expect_same_bits(receive, exchanged<float>(world, part).data(), "large all-to-all", world);
}

/// Several of several groups at once, among other collectives; ranks wait in different orders.
inline void all_to_alls_in_flight_case(Communicator& world) {
  const auto pairs = world.split(world.rank() / 2, world.rank(), "pairs");
  constexpr int kRounds = 6;
  std::vector<std::vector<float>> sent, received, pair_sent, pair_received, sums;
  std::vector<Pending> pending;
  const auto part_of = [](int round) { return static_cast<std::int64_t>(round) * round * round * 300 + 1; };
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t part = part_of(round);
    sent.push_back(elements_of<float>(world.rank() + round, part * world.size()));
    received.emplace_back(sent.back().size());
    pair_sent.push_back(elements_of<float>(pairs->rank() + round, part * pairs->size()));
    pair_received.emplace_back(pair_sent.back().size());
    sums.push_back(elements_of<float>(world.rank(), part));
    pending.push_back(world.start_all_to_all(tensor_of(sent.back()), tensor_of(received.back()), kPassedOn));
    pending.push_back(pairs->start_all_to_all(tensor_of(pair_sent.back()), tensor_of(pair_received.back()), kPassedOn));
    pending.push_back(world.start_all_reduce(tensor_of(sums.back()), kPassedOn));
  }
  for (std::size_t i = 0; i < pending.size(); ++i) {
    pending[world.rank() % 2 == 0 ? i : pending.size() - 1 - i].wait();
  }
  for (int round = 0; round < kRounds; ++round) {
    const auto at = static_cast<std::size_t>(round);
    const std::int64_t part = part_of(round);
    expect_same_bits(received[at], exchanged<float>(world, part, round).data(), "all-to-all", world);
    expect_same_bits(pair_received[at], exchanged<float>(*pairs, part, round).data(), "all-to-all", *pairs);
    expect_same_bits(sums[at], reduced<float>(world.size(), part, Reduce::sum).data(), "all-reduce", world);
  }
}

/// Refused before anything is sent, so the group works afterwards.
inline void refused_all_to_all_case(Communicator& world) {
  const std::int64_t count = 4 * world.size();
  std::vector<float> values(static_cast<std::size_t>(2 * count + 1));
  const auto at = [&](std::int64_t first, std::int64_t elements, DType type = DType::f32) {
    return Tensor(values.data() + first, {elements}, type);
  };
  const auto refused = [&](ConstTensor send, Tensor receive, const char* words) {
    std::string message = "nothing was thrown";
    try {
      world.all_to_all(send, receive, kPassedOn);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal) message = error.what();
    }
    expect(message.find(words) != std::string::npos, "where '{}' was expected: {}", words, message);
  };
  refused(at(0, count), at(count, count - 1), "differ in dtype or elements");
  refused(at(0, count), at(count, count, DType::i32), "differ in dtype or elements");
  refused(at(0, count), at(count - 1, count), "overlap");
  refused(at(1, count), at(0, count), "overlap");
  refused(at(0, count), at(0, count), "overlap");
  refused(at(0, count), Tensor(), "absent");
  if (world.size() > 1) refused(at(0, count - 1), at(count, count - 1), "equal parts");
  world.all_to_all(at(0, count), at(count, count), kPassedOn);
}

}  // namespace megatron::communicator_cases
