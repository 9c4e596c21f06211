// Seconds of collectives and messages between the ranks of this node, by bytes. Collectives come after a product, as in
// a step: so their seconds have in them how long ranks that compute the same wait for each other.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/core/timers.h"
#include "planning/bench/measured_machine.h"

namespace megatron {

namespace {

constexpr int kMessageRounds = 9;                               // for messages
constexpr int kCollectiveRounds = 25;                           // the longest are left out: interruptions
constexpr double kCounted = 0.9;                                // share of the rounds
constexpr std::int64_t kProductRows = 256, kProductSize = 768;  // a millisecond on a fast core

/// Tensors of up to this many bytes on each rank, for operations of one group.
class LinkBench {
 public:
  LinkBench(const MeasuredMachine& machine, Communicator& group, std::size_t most)
      : machine_(machine),
        group_(group),
        whole_(machine.device(), most),
        other_(machine.device(), most),
        rows_(machine.settings.quick ? 16 : kProductRows),
        size_(machine.settings.quick ? 16 : kProductSize),
        input_(machine.device(), static_cast<std::size_t>(rows_ * size_) * sizeof(float)),
        weight_(machine.device(), static_cast<std::size_t>(size_ * size_) * sizeof(float)),
        output_(machine.device(), static_cast<std::size_t>(rows_ * size_) * sizeof(float)) {
    machine.ops().fill(matrix(input_, rows_), 0.01);
    machine.ops().fill(matrix(weight_, size_), 0.01);
    machine.ops().fill(tensor(whole_, most), 0);
    machine.ops().fill(tensor(other_, most), 0);
  }

  /// There and back between two ranks: half of it.
  double message(std::size_t bytes) const {
    const int peer = 1 - group_.rank();
    double found = machine_.seconds(kMessageRounds, 1, [&](int) {
      for (const int sender : {0, 1}) {
        if (group_.rank() == sender) group_.start_send(whole(bytes), peer, 0, kReport).wait();
        if (group_.rank() != sender) group_.start_receive(other(bytes), peer, 0, kReport).wait();
      }
    });
    machine_.average({&found});
    return found / 2;
  }
  /// After a product each time: what the ranks wait for each other is the mean of all but the longest rounds.
  double seconds(const std::function<void()>& body) const {
    std::vector<double> found;
    body();
    for (int round = 0; round < kCollectiveRounds; ++round) {
      machine_.ops().matmul(
          {.a = matrix(input_, rows_), .b = matrix(weight_, size_), .transpose_b = true, .c = matrix(output_, rows_)});
      machine_.device().synchronize();
      const double begin = Timers::steady_seconds();
      body();
      machine_.device().synchronize();
      found.push_back(Timers::steady_seconds() - begin);
    }
    std::sort(found.begin(), found.end());
    found.resize(static_cast<std::size_t>(kCounted * kCollectiveRounds));
    double mean = std::accumulate(found.begin(), found.end(), 0.0) / static_cast<double>(found.size());
    machine_.average({&mean});
    return mean;
  }
  Tensor whole(std::size_t bytes) const { return tensor(whole_, bytes); }
  Tensor other(std::size_t bytes) const { return tensor(other_, bytes); }
  /// This rank's part of whole(), in place.
  Tensor part(std::size_t bytes) const {
    const auto elements = static_cast<std::int64_t>(bytes / sizeof(float)) / group_.size();
    return whole(bytes).slice(0, group_.rank() * elements, elements);
  }

 private:
  Tensor matrix(const Buffer& buffer, std::int64_t rows) const { return buffer.tensor({rows, size_}, DType::f32); }
  static Tensor tensor(const Buffer& buffer, std::size_t bytes) {
    return buffer.tensor({static_cast<std::int64_t>(bytes / sizeof(float))}, DType::f32);
  }
  const MeasuredMachine& machine_;
  Communicator& group_;
  Buffer whole_, other_;
  std::int64_t rows_, size_;  // sizes of the product
  Buffer input_, weight_, output_;
};

}  // namespace

void measure_links(const MeasuredMachine& machine, MeasuredLinks& links) {
  const std::size_t unit = 256, most = machine.settings.quick ? 4 * unit : 16 << 20;
  for (int ranks = 2; ranks <= machine.world.size(); ++ranks) {
    if (machine.world.size() % ranks != 0) continue;
    const int rank = machine.world.rank();
    const std::unique_ptr<Communicator> group =
        machine.tensors().split(rank / ranks, rank, fmt::format("of {}", ranks));
    const std::size_t parts = static_cast<std::size_t>(ranks) * sizeof(float);  // each rank has an element at least
    const LinkBench bench(machine, *group, most + parts);
    for (std::size_t bytes = unit; bytes <= most; bytes *= 4) {
      const std::size_t divisible = (bytes + parts - 1) / parts * parts;
      const auto size = static_cast<double>(divisible);
      const Tensor whole = bench.whole(divisible), other = bench.other(divisible), part = bench.part(divisible);
      const std::pair<const char*, std::function<void()>> collectives[] = {
          {"all_reduce", [&] { group->all_reduce(whole, kReport); }},
          {"all_gather", [&] { group->all_gather(part, whole, kReport); }},
          {"reduce_scatter", [&] { group->reduce_scatter(whole, part, kReport); }},
          {"broadcast", [&] { group->broadcast(whole, 0, kReport); }},
          {"all_to_all", [&] { group->all_to_all(whole, other, kReport); }}};
      for (const auto& [name, body] : collectives) links.collectives[name][ranks].set(size, bench.seconds(body));
      if (ranks == 2) links.messages.set(size, bench.message(divisible));
    }
  }
}

}  // namespace megatron
