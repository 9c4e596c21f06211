// The optimizer's state through a resume: kept in any way, of any type, and loaded by any layout.
#include <cstring>

#include "backend/cpu/cpu_device.h"
#include "base/core/half.h"
#include "support/catch.h"
#include "support/check_on_rank.h"
#include "support/late_communicator.h"
#include "training/loop/resumed_run.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Values and states by tensor, whole: "head.weight m".
using Contents = std::map<std::string, std::vector<float>>;

/// Slices of all tensors, whole, which have been read into `contents`.
std::vector<TensorSlice> read_whole(const CheckpointReader& reader, Communicator& world, Contents& contents) {
  std::vector<TensorSlice> slices;
  for (const auto& [name, stored] : reader.tensors()) {
    const std::int64_t count = stored.shape.elements();
    TensorSlice slice{name, stored.shape, {stored.shape, stored.shape}, 0, count};
    for (int i = 0; i < stored.shape.rank(); ++i) slice.box.offset[i] = 0;
    const auto memory_of = [&, tensor = name](const std::string& dataset) {
      std::vector<float>& memory = contents[tensor + " " + dataset];
      memory.resize(static_cast<std::size_t>(count));
      return Tensor(memory.data(), {count}, DType::f32);
    };
    slice.value = memory_of("value");
    for (const std::string& state : stored.states) slice.states.push_back({state, memory_of(state)});
    slices.push_back(slice);
  }
  CpuDevice device;
  reader.read(world, slices, device);
  return slices;
}

Contents whole_contents(const std::string& checkpoint) {
  Contents contents;
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    read_whole(open_named_checkpoint(world, checkpoint, warnings), world, contents);
  });
  return contents;
}

/// Writes a checkpoint again, by this number of ranks that each have an equal part of every tensor and state, and
/// returns its path.
std::string cut_equally(int ranks, const std::string& checkpoint, const std::string& directory) {
  run_as_threads(ranks, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader reader = open_named_checkpoint(world, checkpoint, warnings);
    Contents contents;
    std::vector<TensorSlice> slices = read_whole(reader, world, contents);
    for (TensorSlice& slice : slices) {
      const std::int64_t all = slice.count;
      slice.first = all * world.rank() / ranks;
      slice.count = all * (world.rank() + 1) / ranks - slice.first;
      slice.value = slice.value.slice(0, slice.first, slice.count);
      for (NamedState& state : slice.states) state.numbers = state.numbers.slice(0, slice.first, slice.count);
    }
    CpuDevice device;
    save_checkpoint(world, directory, reader.state(), slices, device, {});
  });
  return at(directory, 2);
}

/// Loads a checkpoint, saves it again without a step, and returns the checkpoint's path.
std::string pass_on(const Config& config, const std::string& from, const std::string& directory) {
  const int ranks = static_cast<int>(config.parallel.tensor * config.parallel.pipeline * config.parallel.data);
  run_as_threads(ranks, [&](Communicator& world) {
    TrainerOnRank rank(config, world);
    Trainer& trainer = rank.trainer;
    std::vector<std::string> warnings;
    trainer.resume(open_named_checkpoint(world, from, warnings));
    // Values are the rounded masters, everywhere.
    const ParameterStore& store = trainer.replica().store();
    const Optimizer& optimizer = trainer.replica().optimizer();
    for (const Parameter& parameter : store.all()) {
      for (const FlatRange& part : ParameterStore::parts_in(parameter, optimizer.owned())) {
        const Buffer memory(*rank.backend.device, static_cast<std::size_t>(part.count) * 4);
        const Tensor rounded = memory.tensor({part.count}, store.values().dtype());
        rank.backend.ops->copy(optimizer.state(part).master, rounded);
        const Tensor values = store.values_of(part);
        CHECK_ON_RANK(std::memcmp(rounded.data(), values.data(), values.bytes()) == 0);
      }
    }
    trainer.check_replicas();
    trainer.save(directory, nlohmann::json::object());
  });
  return at(directory, 2);
}

}  // namespace

TEST_CASE("resume: every way of keeping the optimizer's state trains on", "[fault-17]") {
  const ShardFolder folder;
  Config config = small_run(folder);
  const Mode mode = GENERATE(Mode{"data 2", 1, 2, 1, "state"}, Mode{"gradients", 1, 4, 2, "gradients"},
                             Mode{"weights", 1, 4, 1, "weights"}, Mode{"data 4, pipeline 2", 1, 4, 2, "state"},
                             Mode{"sequence", 2, 2, 2, "state", "fp32", true},
                             Mode{"interleaved", 1, 2, 2, "state", "fp32", false, 2});
  INFO(mode.name);
  config = with_mode(config, mode);
  require_no_trace_of_breaks(config, folder, "run");
  config.optimizer.name = "lion";
  require_no_trace_of_breaks(config, folder, "lion");
  config.optimizer.name = "sgd";
  require_no_trace_of_breaks(config, folder, "sgd");
  config.optimizer.momentum = 0;
  require_no_trace_of_breaks(config, folder, "sgd without momentum");
  config.optimizer.momentum = 0.9;
  config.optimizer.name = "adamw";
  config.optimizer.moments_dtype = "bf16";
  require_no_trace_of_breaks(config, folder, "adamw in bf16");
  if (config.optimizer.shares().gradients) return;  // Muon needs whole ones
  config.optimizer.name = "muon";
  require_no_trace_of_breaks(config, folder, "muon in bf16");
  config.optimizer.moments_dtype = "fp32";
  require_no_trace_of_breaks(config, folder, "muon");
}

TEST_CASE("resume: any layout and way of keeping state loads any other's save", "[fault-17]") {
  const ShardFolder folder;
  const std::vector<Mode> modes = {{"one rank"},
                                   {"data 8, distributed", 1, 8, 1, "state"},
                                   {"2 x 2 x 2", 2, 2, 2},
                                   {"sequence, distributed", 2, 2, 2, "state", "fp32", true},
                                   {"interleaved, distributed", 1, 4, 2, "state", "fp32", false, 2},
                                   {"gradients divided", 2, 4, 1, "gradients"},
                                   {"weights divided", 2, 4, 1, "weights"},
                                   {"weights divided in sets", 1, 4, 1, "weights", "fp32", false, 1, 2},
                                   {"bf16, distributed in sets", 1, 4, 2, "state", "bf16", false, 1, 2},
                                   {"bf16", 1, 2, 1, "none", "bf16"},
                                   {"bf16, gradients divided", 1, 2, 2, "gradients", "bf16"},
                                   {"bf16, weights divided", 2, 2, 1, "weights", "bf16"},
                                   {"bf16, distributed", 2, 2, 2, "state", "bf16"},
                                   {"fp16, distributed", 1, 4, 1, "state", "fp16"}};
  Config config = small_run(folder);
  config.train.steps = 2;
  train(config, "", folder.file("start"));
  const auto expected = whole_contents(at(folder.file("start"), 2));
  REQUIRE(expected.size() == 3 * (2 + 4 * 16 + 2));
  // A chain through all of them, and back: each loads what its predecessor has saved, and the other way round.
  std::string from = at(folder.file("start"), 2);
  int link = 0;
  for (const bool back : {false, true}) {
    for (std::size_t i = 0; i < modes.size(); ++i) {
      const Mode& mode = modes[back ? modes.size() - 1 - i : i];
      CAPTURE(mode.name, back);
      from = pass_on(with_mode(config, mode), from, folder.file(fmt::format("link {}", link++)));
      CHECK(whole_contents(from) == expected);
    }
  }
}

TEST_CASE("resume: shards of whole matrices load any other parts of Muon's state", "[fault-17]") {
  const ShardFolder folder;
  Config config = small_run(folder);
  config.optimizer.name = "muon";
  config.train.global_batch_size = 12;
  config.train.steps = 3;
  const Mode two{"data 2", 1, 2, 1, "state"}, three{"data 3", 1, 3, 1, "state"}, one{"one rank"};
  const std::vector<std::string> lines = train(with_mode(config, two), "", folder.file("straight"));
  const std::string saved = at(folder.file("straight"), 2);
  const auto expected = whole_contents(saved), next = whole_contents(at(folder.file("straight"), 3));
  REQUIRE(expected.size() == 3 * (2 + 4 * 10 + 2) + 2 * (4 * 6));
  REQUIRE(next != expected);
  std::string from = saved;
  for (const Mode& mode : {three, one, Mode{"every copy has all", 1, 4}, Mode{"tensor", 2, 3, 1, "state", "fp32", true},
                           Mode{"bf16", 1, 2, 2, "state", "bf16"}, two}) {
    CAPTURE(mode.name);
    from = pass_on(with_mode(config, mode), from, folder.file(mode.name));
    CHECK(whole_contents(from) == expected);
  }
  const std::string cut = cut_equally(3, saved, folder.file("cut"));
  CHECK(whole_contents(cut) == expected);
  CHECK(rank_files(cut) != rank_files(at(folder.file("data 3"), 2)));
  for (const std::string& start : {from, cut}) {
    const std::string after = folder.file("after");
    CHECK(train(with_mode(config, two), start, after) == std::vector<std::string>{lines[2]});
    CHECK(whole_contents(at(after, 3)) == next);
    std::filesystem::remove_all(after);
  }
  // Other numbers of copies sum gradients in other orders.
  for (const Mode& mode : {three, one}) {
    CAPTURE(mode.name);
    train(with_mode(config, mode), saved, folder.file("of whole matrices"));
    train(with_mode(config, mode), cut, folder.file("of parts"));
    CHECK(rank_files(at(folder.file("of parts"), 3)) == rank_files(at(folder.file("of whole matrices"), 3)));
    std::filesystem::remove_all(folder.file("of parts"));
    std::filesystem::remove_all(folder.file("of whole matrices"));
  }
}

TEST_CASE("resume: moments may be kept in another type from then on", "[fault-17]") {
  const ShardFolder folder;
  const Mode mode = GENERATE(Mode{"one rank"}, Mode{"distributed", 2, 2, 1, "state", "bf16"});
  INFO(mode.name);
  Config config = with_mode(small_run(folder), mode), narrow = config;
  narrow.optimizer.moments_dtype = "bf16";
  config.train.steps = narrow.train.steps = 2;
  train(config, "", folder.file("start"));
  auto expected = whole_contents(at(folder.file("start"), 2));
  std::int64_t changed = 0;
  for (auto& [name, numbers] : expected) {
    if (!name.ends_with(" m") && !name.ends_with(" v")) continue;
    for (float& number : numbers) {
      const float rounded = to_float(to_bfloat16(number));  // to nearest
      if (rounded != number) ++changed;
      number = rounded;
    }
  }
  REQUIRE(changed > 1000);
  const std::string rounded = pass_on(narrow, at(folder.file("start"), 2), folder.file("bf16"));
  CHECK(whole_contents(rounded) == expected);
  CHECK(whole_contents(pass_on(config, rounded, folder.file("fp32"))) == expected);
}

TEST_CASE("resume: loads while the last update's values are on their way", "[fault-17]") {
  const ShardFolder folder;
  Config config = with_mode(small_run(folder), {"", 1, 2, 2, "state"});
  run_as_threads(4, [&](Communicator& world) {
    LateCommunicator late(world);
    TrainerOnRank rank(config, late);
    Trainer& trainer = rank.trainer;
    trainer.train_step();
    trainer.save(folder.file("run"), nlohmann::json::object());
    const StepResult straight = trainer.train_step();
    CHECK_ON_RANK(late.owed() > 0);
    std::vector<std::string> warnings;
    trainer.resume(open_named_checkpoint(late, at(folder.file("run"), 1), warnings));
    CHECK_ON_RANK(late.owed() == 0);
    const StepResult again = trainer.train_step();
    CHECK_ON_RANK(again.loss == straight.loss);
    CHECK_ON_RANK(again.gradient_norm == straight.gradient_norm);
    trainer.check_replicas();
  });
}
