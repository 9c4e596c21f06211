// optimizer.offload: states and masters in another memory, with the bits of those in the device's. The other memory
// here faults wherever an update touches numbers that it has not said it uses.
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <deque>
#include <map>
#include <mutex>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/check_on_rank.h"
#include "training/optimizer/optimizer_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

/// Memory of which only the pages of the last numbers that were announced can be touched, as was announced.
class GuardedMemory final : public OffloadedMemory {
 public:
  GuardedMemory(std::size_t bytes, std::int64_t at_a_time) : bytes_(bytes), at_a_time_(at_a_time) {
    void* const memory = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    internal_check(memory != MAP_FAILED, "no memory");
    data_ = static_cast<std::byte*>(memory);
  }
  ~GuardedMemory() override { ::munmap(data_, bytes_); }

  std::byte* data() override { return data_; }
  std::size_t bytes() const override { return bytes_; }
  std::int64_t elements_at_a_time() const override { return at_a_time_; }
  void use(const Tensor& numbers, Access access) override {
    internal_check(at_a_time_ == 0 || numbers.elements() <= at_a_time_, "too much at a time", numbers.elements());
    used_.push_back({numbers, access});
    if (used_.size() > kStreams) {
      protect(used_.front().numbers, PROT_NONE);
      used_.pop_front();
    }
    for (const Used& one : used_) protect(one.numbers, PROT_READ);
    for (const Used& one : used_) {
      if (one.access == Access::write) protect(one.numbers, PROT_READ | PROT_WRITE);
    }
  }
  void rest() override {
    used_.clear();
    ::mprotect(data_, bytes_, PROT_NONE);
  }
  /// For the test itself.
  void open() { ::mprotect(data_, bytes_, PROT_READ | PROT_WRITE); }

 private:
  static constexpr std::size_t kStreams = 4;  // as many as the file that they stand for keeps, by blocks
  static void protect(const Tensor& numbers, int how) {
    const auto first = reinterpret_cast<std::uintptr_t>(numbers.data()) / kPage * kPage;
    const auto end = reinterpret_cast<std::uintptr_t>(numbers.data()) + numbers.bytes();
    internal_check(::mprotect(reinterpret_cast<void*>(first), end - first, how) == 0, "mprotect");
  }

  std::size_t bytes_;
  std::int64_t at_a_time_;
  std::byte* data_ = nullptr;
  struct Used {
    Tensor numbers;
    Access access;
  };
  std::deque<Used> used_;
};

/// Place of an optimizer's states.
struct Place {
  const char* offload = "file";
  double fraction = 1;
  std::int64_t at_a_time = 3000;  ///< no whole number of pages
};

struct Case {
  const char* rule = "adamw";
  DType values = DType::f32;
  const char* moments = "fp32";
  int data = 1;  ///< ranks that divide the state
  std::vector<ParameterGroupConfig> groups = {};
};

/// Bits of values, masters and states by parameter and first element.
using OffloadBits = std::map<std::string, std::vector<std::byte>>;

struct OffloadTrained {
  OffloadBits bits;
  std::vector<std::size_t> kept, offloaded;  // bytes, by rank
  std::vector<double> norms;
};

std::vector<std::byte> bytes_of(ConstTensor x) {
  const auto* const from = static_cast<const std::byte*>(x.data());
  return {from, from + x.bytes()};
}

void declare_offloaded(ParameterStore& store) {
  declare_all(store);
  store.declare(parameter_of("wide", {70, 500}, true));
  store.declare(parameter_of("norm", {500}, false));
  store.declare(parameter_of("tall", {301, 20}, true));
}

void add_bits(const Optimizer& optimizer, const ParameterStore& store, int rank, OffloadBits& bits) {
  for (const Parameter& parameter : store.all()) {
    bits[fmt::format("{} of {}", parameter.name, rank)] = bytes_of(parameter.value);
    for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer.owned())) {
      const Optimizer::State state = optimizer.state(part);
      const std::string place = fmt::format("{} at {}", parameter.name, part.first);
      bits[place + " master"] = bytes_of(state.master);
      for (const auto& [name, numbers] : state.states) bits[place + " " + name] = bytes_of(numbers);
    }
  }
}

/// Five updates: one of them clipped, one skipped.
OffloadTrained train(const Case& one, const Place& place) {
  OptimizerConfig config{.name = one.rule, .beta2 = 0.95, .momentum = 0.9, .moments_dtype = one.moments};
  config.offload = place.offload;
  config.offload_fraction = place.fraction;
  OffloadTrained trained;
  trained.kept.resize(static_cast<std::size_t>(one.data));
  trained.offloaded.resize(static_cast<std::size_t>(one.data));
  std::mutex mutex;
  run_as_threads(one.data, [&](Communicator& world) {
    const ProcessGrid grid(world, {.data = one.data});
    Backend backend = make_cpu_backend();
    ParameterStore store;
    declare_offloaded(store);
    const ParameterGroups groups(config, one.groups);
    mark_matrices(store, groups, 1);
    store.allocate(*backend.device, one.values, {one.data}, 9000);
    ParameterAllGather gathers(grid, store);
    const Buffer memory(*backend.device, 64 << 20);
    Arena scratch("scratch", memory);
    const std::size_t bytes = Optimizer::state_bytes(store, gathers.shard(), groups).offloaded;
    auto offloaded = bytes > 0 ? std::make_unique<GuardedMemory>(bytes, place.at_a_time) : nullptr;
    GuardedMemory* const guarded = offloaded.get();
    Optimizer optimizer(store, groups, *backend.device, *backend.ops, &gathers, &scratch, std::move(offloaded));
    CHECK_ON_RANK(optimizer.offloaded_bytes() == bytes);
    CHECK_ON_RANK(optimizer.state_bytes() == Optimizer::state_bytes(store, gathers.shard(), groups).kept);
    optimizer.initialize(3);
    for (std::uint64_t step = 1; step <= 5; ++step) {
      set_gradients(store, step, step == 2 ? 100 : 0.01);
      if (step == 4) store.at(1).gradient.as<float>()[0] = INFINITY;
      const UpdateResult result = update(optimizer, backend, grid, kUpdate);
      CHECK_ON_RANK(result.skipped == (step == 4));
      gathers.finish();
      const std::lock_guard lock(mutex);
      if (world.rank() == 0) trained.norms.push_back(result.gradient_norm);
    }
    Owned<double> squares({1});
    optimizer.add_counted_squares_of_masters(CopyGroup::dense, squares);
    if (guarded != nullptr) guarded->open();
    const auto rank = static_cast<std::size_t>(world.rank());
    const std::lock_guard lock(mutex);
    add_bits(optimizer, store, world.rank(), trained.bits);
    trained.kept[rank] = optimizer.state_bytes();
    trained.offloaded[rank] = optimizer.offloaded_bytes();
  });
  return trained;
}

ParameterGroupConfig sgd_for_vectors() {
  ParameterGroupConfig group{.roles = {"vector"}, .names = {}, .keys = {"name", "momentum"}};
  group.values.name = "sgd";
  group.values.momentum = 0.5;
  return group;
}

}  // namespace

TEST_CASE("offload: an update has the bits of states in the device's memory") {
  const Case one = GENERATE(
      Case{}, Case{.values = DType::bf16}, Case{.moments = "bf16"}, Case{.values = DType::bf16, .moments = "bf16"},
      Case{.rule = "lion", .values = DType::bf16}, Case{.rule = "sgd", .values = DType::bf16}, Case{.rule = "muon"},
      Case{.rule = "muon", .values = DType::bf16, .moments = "bf16"}, Case{.values = DType::bf16, .data = 3},
      Case{.rule = "muon", .values = DType::bf16, .data = 2}, Case{.moments = "bf16", .data = 2},
      Case{.groups = {sgd_for_vectors()}}, Case{.values = DType::bf16, .data = 2, .groups = {sgd_for_vectors()}});
  CAPTURE(one.rule, one.values, one.moments, one.data, one.groups.size());
  const OffloadTrained plain = train(one, {.offload = "none"});
  for (const std::size_t bytes : plain.offloaded) CHECK(bytes == 0);
  REQUIRE(plain.norms.size() == 5);
  REQUIRE(plain.norms[1] > 1);  // clipped
  for (const double fraction : {1.0, 0.5, 0.001}) {
    CAPTURE(fraction);
    for (const std::int64_t at_a_time : {3000, 0}) {
      CAPTURE(at_a_time);
      const bool all_at_once = at_a_time == 0;
      if (all_at_once && fraction != 0.5) continue;
      const OffloadTrained other = train(one, {"file", fraction, at_a_time});
      CHECK(other.bits == plain.bits);
      CHECK(other.norms == plain.norms);
      for (std::size_t rank = 0; rank < plain.kept.size(); ++rank) {
        CHECK(other.kept[rank] + other.offloaded[rank] == plain.kept[rank]);
        CHECK(other.offloaded[rank] > 0);
        if (fraction == 1) CHECK(other.kept[rank] == 0);
      }
    }
  }
}

TEST_CASE("offload: a fraction is whole tensors, from the last one on") {
  const Backend backend = make_cpu_backend();
  ParameterStore store;
  for (const char* name : {"a", "b", "c", "d"}) store.declare(parameter_of(name, {100, 64}, true));
  store.allocate(*backend.device, DType::bf16);
  const auto bytes = [&](double fraction) {
    OptimizerConfig config;
    config.offload = "host";
    config.offload_fraction = fraction;
    return Optimizer::state_bytes(store, {}, config).offloaded;
  };
  const std::size_t tensor = 100 * 64 * 12;  // master and two moments
  CHECK(bytes(1) == 4 * tensor);
  CHECK(bytes(0.75) == 3 * tensor);
  CHECK(bytes(0.51) == 3 * tensor);
  CHECK(bytes(0.5) == 2 * tensor);
  CHECK(bytes(0.01) == tensor);
  CHECK(Optimizer::state_bytes(store, {}, OptimizerConfig{}).offloaded == 0);
}

TEST_CASE("offload: a rule without states has nothing to offload") {
  const Backend backend = make_cpu_backend();
  ParameterStore store;
  declare_offloaded(store);
  store.allocate(*backend.device, DType::f32);
  OptimizerConfig config{.name = "sgd", .momentum = 0};
  config.offload = "file";
  CHECK(Optimizer::state_bytes(store, {}, config).offloaded == 0);
  Optimizer optimizer(store, config, *backend.device, *backend.ops);
  optimizer.initialize(1);
  CHECK(optimizer.state_bytes() == 0);
}
