// Cases for every communicator, as bodies that run on one rank: tests/distributed/comm plays them on threads, tests/mpi
// on MPI.
//
// Test frameworks are not thread-safe, so a body throws on the first difference; the caller reports it.
#pragma once

#include <cmath>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "support/all_to_all_cases.h"
#include "support/communicator_elements.h"

namespace megatron::communicator_cases {

template <class T>
void all_reduce_case(Communicator& world) {
  for (const std::int64_t count : awkward_sizes()) {
    for (const Reduce reduce : {Reduce::sum, Reduce::maximum}) {
      std::vector<T> values = elements_of<T>(world.rank(), count);
      world.all_reduce(tensor_of(values), passed_on(reduce));
      expect_same_bits(values, reduced<T>(world.size(), count, reduce).data(), "all-reduce", world);
    }
  }
  if constexpr (std::is_floating_point_v<T>) {  // the order must matter for this input, or the test proves nothing
    if (world.size() < 3) return;
    expect(reduced<T>(world.size(), 1000, Reduce::sum) != reduced<T>(world.size(), 1000, Reduce::sum, true),
           "the input does not tell the orders of a sum apart");
  }
}

/// More than a backend moves at once, with a ragged end.
inline void large_tensor_case(Communicator& world) {
  std::vector<float> values = elements_of<float>(world.rank(), 3333337);
  world.all_reduce(tensor_of(values), kPassedOn);
  const std::vector<float> total = reduced<float>(world.size(), 3333337, Reduce::sum);
  expect_same_bits(values, total.data(), "large all-reduce", world);
  if (world.rank() != world.size() - 1) std::fill(values.begin(), values.end(), 0.0F);
  world.broadcast(tensor_of(values), world.size() - 1, kPassedOn);
  expect_same_bits(values, total.data(), "large broadcast", world);
}

template <class T>
void maximum_keeps_nan_case(Communicator& world) {
  std::vector<T> value{narrow<T>(world.rank() == world.size() - 1 ? NAN : 1.0F)};
  world.all_reduce(tensor_of(value), kPassedOnMaximum);
  expect(std::isnan(wide(value[0])), "the maximum of a NaN and numbers is {}", wide(value[0]));
}

/// Sums of 16-bit floats pass the largest of them on the way without harm, and end at infinity if they end past it.
inline void overflow_case(Communicator& world) {
  if (world.size() < 3) return;
  const float past = world.rank() < 2 ? 60000.0F : 0, back = world.rank() == 2 ? -60000.0F : past;
  std::vector<Float16> values{narrow<Float16>(back), narrow<Float16>(past)};
  world.all_reduce(tensor_of(values), kPassedOn);
  expect(wide(values[0]) == wide(narrow<Float16>(60000)), "60000 + 60000 - 60000 is {}", wide(values[0]));
  expect(wide(values[1]) == INFINITY, "60000 + 60000 is {} in f16", wide(values[1]));
}

template <class T>
void all_gather_case(Communicator& world) {
  for (const std::int64_t count : awkward_sizes()) {
    const auto part_elements = static_cast<std::size_t>(count);
    const auto ranks = static_cast<std::size_t>(world.size());
    std::vector<T> part = elements_of<T>(world.rank(), count);
    std::vector<T> whole(part_elements * ranks), in_place(part_elements * ranks), wanted;
    for (int rank = 0; rank < world.size(); ++rank) {
      const std::vector<T> theirs = elements_of<T>(rank, count);
      wanted.insert(wanted.end(), theirs.begin(), theirs.end());
    }
    world.all_gather(tensor_of(part), tensor_of(whole), kPassedOn);
    expect_same_bits(whole, wanted.data(), "all-gather", world);

    const Tensor slice = tensor_of(in_place).slice(0, world.rank() * count, count);
    if (count > 0) std::memcpy(slice.data(), part.data(), part.size() * sizeof(T));
    world.all_gather(slice, tensor_of(in_place), kPassedOn);
    expect_same_bits(in_place, wanted.data(), "all-gather in place", world);
  }
}

template <class T>
void reduce_scatter_case(Communicator& world) {
  for (const std::int64_t count : awkward_sizes()) {
    std::vector<T> whole = elements_of<T>(world.rank(), count * world.size());
    std::vector<T> part(static_cast<std::size_t>(count));
    const std::vector<T> total = reduced<T>(world.size(), count * world.size(), Reduce::sum);
    const T* wanted = total.data() + count * world.rank();
    world.reduce_scatter(tensor_of(whole), tensor_of(part), kPassedOn);
    expect_same_bits(part, wanted, "reduce-scatter", world);
    expect(whole == elements_of<T>(world.rank(), count * world.size()), "reduce-scatter changed its input");

    const Tensor slice = tensor_of(whole).slice(0, world.rank() * count, count);
    world.reduce_scatter(tensor_of(whole), slice, kPassedOn);
    if (count > 0) std::memcpy(part.data(), slice.data(), part.size() * sizeof(T));
    expect_same_bits(part, wanted, "reduce-scatter in place", world);
  }
}

inline void broadcast_case(Communicator& world) {
  for (int root = 0; root < world.size(); ++root) {
    for (const std::int64_t count : awkward_sizes()) {
      std::vector<double> values = elements_of<double>(world.rank(), count);
      world.broadcast(tensor_of(values), root, kPassedOn);
      expect_same_bits(values, elements_of<double>(root, count).data(), "broadcast", world);
    }
  }
}

/// Every rank sends to the right before any receives; three messages on a channel, waited for out of order.
inline void ring_case(Communicator& world) {
  if (world.size() == 1) return;
  const int right = (world.rank() + 1) % world.size();
  const int left = (world.rank() + world.size() - 1) % world.size();
  for (const std::int64_t count : awkward_sizes()) {
    std::vector<std::vector<float>> out, in(4);
    std::vector<Pending> sends, receives;
    for (int message = 0; message < 4; ++message) out.push_back(elements_of<float>(world.rank() * 4 + message, count));
    for (int message = 0; message < 4; ++message) {  // the last one has a separate channel
      sends.push_back(
          world.start_send(tensor_of(out[static_cast<std::size_t>(message)]), right, message == 3 ? 1 : 0, kPassedOn));
    }
    for (std::size_t message = 0; message < 4; ++message) in[message].resize(static_cast<std::size_t>(count));
    receives.push_back(world.start_receive(tensor_of(in[3]), left, 1, kPassedOn));
    for (std::size_t message = 0; message < 3; ++message) {
      receives.push_back(world.start_receive(tensor_of(in[message]), left, 0, kPassedOn));
    }
    for (const std::size_t at : {2U, 0U, 3U, 1U}) receives[at].wait();
    for (Pending& send : sends) send.wait();
    for (int message = 0; message < 4; ++message) {
      expect_same_bits(in[static_cast<std::size_t>(message)], elements_of<float>(left * 4 + message, count).data(),
                       "receive", world);
    }
  }
}

/// Many operations of several groups in flight; ranks start in the same order but wait in different ones.
inline void many_in_flight_case(Communicator& world) {
  const auto pairs = world.split(world.rank() / 2, world.rank(), "pairs");
  const auto reversed = world.split(0, -world.rank(), "reversed");
  expect(reversed->rank() == world.size() - 1 - world.rank(), "split does not order by key");
  constexpr std::size_t kRounds = 24;
  std::vector<std::vector<float>> sums, pair_sums, wholes, parts;
  std::vector<Pending> pending;
  for (std::size_t round = 0; round < kRounds; ++round) {
    const auto count = static_cast<std::int64_t>(round * round * round * 9 + 1);
    sums.push_back(elements_of<float>(world.rank(), count));
    pair_sums.push_back(elements_of<float>(pairs->rank(), count));
    parts.push_back(elements_of<float>(reversed->rank(), count));
    wholes.emplace_back(static_cast<std::size_t>(count * world.size()));
    pending.push_back(world.start_all_reduce(tensor_of(sums.back()), kPassedOn));
    pending.push_back(pairs->start_all_reduce(tensor_of(pair_sums.back()), kPassedOn));
    pending.push_back(reversed->start_all_gather(tensor_of(parts.back()), tensor_of(wholes.back()), kPassedOn));
  }
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const std::size_t order = world.rank() % 2 == 0 ? i : pending.size() - 1 - i;
    pending[order].wait();
  }
  for (std::size_t round = 0; round < kRounds; ++round) {
    const auto count = static_cast<std::int64_t>(sums[round].size());
    expect_same_bits(sums[round], reduced<float>(world.size(), count, Reduce::sum).data(), "all-reduce", world);
    expect_same_bits(pair_sums[round], reduced<float>(pairs->size(), count, Reduce::sum).data(), "all-reduce", *pairs);
    for (int rank = 0; rank < reversed->size(); ++rank) {
      const float* theirs = wholes[round].data() + rank * count;
      expect_same_bits(elements_of<float>(rank, count), theirs, "all-gather", *reversed);
    }
  }
}

/// An operation that the last rank has not joined yet is not ready; once it has, progress() makes it so.
inline void ready_case(Communicator& world) {
  expect(Pending().ready(), "nothing at all is not ready");
  if (world.size() == 1) return;
  const int last = world.size() - 1;
  const auto gate = world.split(0, world.rank(), "gate");
  std::vector<float> values = elements_of<float>(world.rank(), 50000), message(1000);
  std::vector<Pending> pending;
  const auto start = [&] {
    pending.push_back(world.start_all_reduce(tensor_of(values), kPassedOn));
    if (world.rank() == 0) pending.push_back(world.start_receive(tensor_of(message), last, 0, kPassedOn));
    if (world.rank() == last) pending.push_back(world.start_send(tensor_of(message), 0, 0, kPassedOn));
  };
  if (world.rank() != last) {
    start();
    world.progress();
    for (const Pending& started : pending) expect(!started.ready(), "ready before the last rank has come");
  }
  gate->barrier();
  if (world.rank() == last) start();
  for (Pending& started : pending) {
    while (!started.ready()) {
      world.progress();
      std::this_thread::yield();
    }
    started.wait();
  }
  expect_same_bits(values, reduced<float>(world.size(), 50000, Reduce::sum).data(), "all-reduce", world);
}

inline void split_case(Communicator& world) {
  const int size = world.size(), rank = world.rank();
  const auto odd_even = world.split(rank % 2, -rank, "odd-even");
  const int members = (size + 1 - rank % 2) / 2;
  expect(odd_even->size() == members && odd_even->rank() == members - 1 - rank / 2 && odd_even->name() == "odd-even",
         "split gives rank {} of {} ('{}') to world rank {}", odd_even->rank(), odd_even->size(), odd_even->name(),
         rank);
  std::vector<int> colours;
  for (int other = 0; other < size; ++other) colours.push_back(other < 3 ? 7 : 8);
  const auto known = world.split_known(colours, "known");
  expect(known->rank() == (rank < 3 ? rank : rank - 3), "split_known changes the order");
  expect(known->size() == (rank < 3 ? std::min(size, 3) : size - 3), "split_known gives a group of {}", known->size());
  const auto again = known->split(0, 0, "again");  // a split of a split; equal keys keep the order
  expect(again->rank() == known->rank() && again->size() == known->size(), "split with equal keys changes the order");
  expect(again->all_reduce_value(1, kPassedOn) == known->size(), "a group of {} counts itself wrongly", known->size());
}

inline void values_and_texts_case(Communicator& world) {
  const int size = world.size(), rank = world.rank();
  expect(world.all_reduce_value(rank + 0.5, kPassedOn) == size * size / 2.0, "sum of host values");
  expect(world.all_reduce_value(-rank, kPassedOnMaximum) == 0, "maximum of host values");
  expect(!world.any_rank(false) && world.any_rank(rank == size - 1), "any");
  for (int root = 0; root < size; ++root) {
    const std::string text = "from " + std::to_string(root) + std::string(static_cast<std::size_t>(root) * 9000, 'x');
    expect(world.broadcast_text(rank == root ? text : "", root) == text, "broadcast of a text from {}", root);
    const std::vector<std::string> texts = world.gather_texts(std::string(static_cast<std::size_t>(rank), 'a'), root);
    expect(texts.size() == static_cast<std::size_t>(rank == root ? size : 0), "gather of texts at {}", root);
    for (std::size_t from = 0; from < texts.size(); ++from) {
      expect(texts[from] == std::string(from, 'a'), "text {} is '{}'", from, texts[from]);
    }
  }
  world.barrier();
}

/// Bytes against the formulas; in a group of one nothing is sent.
inline void meter_case(Communicator& world) {
  const std::int64_t n = world.size(), count = 840;  // a multiple of every size in the tests
  std::vector<float> part(static_cast<std::size_t>(count)), whole(static_cast<std::size_t>(count * n));
  TrafficMeter meter;
  world.set_meter(&meter);
  const auto charged = [&](const char* verb, std::int64_t bytes) {
    expect(meter.bytes_sent == bytes, "{} is charged {} bytes, not {}", verb, meter.bytes_sent, bytes);
    expect(meter.operations == (n > 1 ? 1 : 0), "{} is charged as {} operations", verb, meter.operations);
    meter = {};
  };
  world.all_reduce(tensor_of(part), kPassedOn);
  charged("all-reduce", 2 * (n - 1) * count * 4 / n);
  world.all_gather(tensor_of(part), tensor_of(whole), kPassedOn);
  charged("all-gather", (n - 1) * count * 4);
  world.reduce_scatter(tensor_of(whole), tensor_of(part), kPassedOn);
  charged("reduce-scatter", (n - 1) * count * 4);
  world.broadcast(tensor_of(part), 0, kPassedOn);
  charged("broadcast", world.rank() == 0 ? (n - 1) * count * 4 : 0);
  std::vector<float> exchanged(whole.size());
  world.all_to_all(tensor_of(whole), tensor_of(exchanged), kPassedOn);
  charged("all-to-all", (n - 1) * count * 4);
  world.barrier();
  charged("barrier", 0);
  if (n > 1) {
    if (world.rank() == 0) world.start_send(tensor_of(part), 1, 0, kPassedOn).wait();
    if (world.rank() == 1) world.start_receive(tensor_of(part), 0, 0, kPassedOn).wait();
    if (world.rank() < 2) charged("send", world.rank() == 0 ? count * 4 : 0);
  }
  world.set_meter(nullptr);
}

struct Case {
  const char* name;
  void (*body)(Communicator& world);
};

inline const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases{{"all-reduce of f32", all_reduce_case<float>},
                                       {"all-reduce of f64", all_reduce_case<double>},
                                       {"all-reduce of i32", all_reduce_case<std::int32_t>},
                                       {"large tensors", large_tensor_case},
                                       {"all-reduce of bf16", all_reduce_case<BFloat16>},
                                       {"all-reduce of f16", all_reduce_case<Float16>},
                                       {"overflow of f16", overflow_case},
                                       {"maximum keeps NaN", maximum_keeps_nan_case<float>},
                                       {"maximum of bf16 keeps NaN", maximum_keeps_nan_case<BFloat16>},
                                       {"all-gather of f32", all_gather_case<float>},
                                       {"all-gather of bf16", all_gather_case<BFloat16>},
                                       {"all-gather of u8", all_gather_case<std::uint8_t>},
                                       {"reduce-scatter of f32", reduce_scatter_case<float>},
                                       {"reduce-scatter of f64", reduce_scatter_case<double>},
                                       {"reduce-scatter of bf16", reduce_scatter_case<BFloat16>},
                                       {"reduce-scatter of f16", reduce_scatter_case<Float16>},
                                       {"broadcast", broadcast_case},
                                       {"all-to-all", all_to_all_case},
                                       {"all-to-all of every type", all_to_all_types_case},
                                       {"large all-to-all", large_all_to_all_case},
                                       {"all-to-alls in flight", all_to_alls_in_flight_case},
                                       {"refused all-to-alls", refused_all_to_all_case},
                                       {"send and receive", ring_case},
                                       {"many in flight", many_in_flight_case},
                                       {"ready", ready_case},
                                       {"split", split_case},
                                       {"values and texts", values_and_texts_case},
                                       {"meter", meter_case}};
  return cases;
}

}  // namespace megatron::communicator_cases
