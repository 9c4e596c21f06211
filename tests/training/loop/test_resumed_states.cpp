// The optimizer's state through a resume: kept in any way, of any type, and loaded by any layout.
#include <cstring>

#include "backend/cpu/cpu_device.h"
#include "base/core/half.h"
#include "support/catch.h"
#include "support/late_communicator.h"
#include "training/loop/resumed_run.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Values, m and v by tensor, whole.
std::map<std::string, std::vector<float>> whole_contents(const std::string& checkpoint) {
  std::map<std::string, std::vector<float>> contents;
  run_as_threads(1, [&](Communicator& world) {
    std::vector<std::string> warnings;
    const CheckpointReader reader = open_named_checkpoint(world, checkpoint, warnings);
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
  });
  return contents;
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
    for (const FlatRange& range : trainer.replica().optimizer().owned()) {
      const Buffer memory(*rank.backend.device, static_cast<std::size_t>(range.count) * 4);
      const Tensor rounded = memory.tensor({range.count}, store.values().dtype());
      rank.backend.ops->copy(trainer.replica().optimizer().state(range).master, rounded);
      const Tensor values = store.values().slice(0, range.first, range.count);
      CHECK(std::memcmp(rounded.data(), values.data(), values.bytes()) == 0);
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
  const Mode mode =
      GENERATE(Mode{"data 2", 1, 2, 1, true}, Mode{"data 4, pipeline 2", 1, 4, 2, true},
               Mode{"sequence", 2, 2, 2, true, "fp32", true}, Mode{"interleaved", 1, 2, 2, true, "fp32", false, 2});
  INFO(mode.name);
  config = with_mode(config, mode);
  require_no_trace_of_breaks(config, folder, "run");
  config.optimizer.name = "lion";
  require_no_trace_of_breaks(config, folder, "lion");
  config.optimizer.name = "sgd";
  require_no_trace_of_breaks(config, folder, "sgd");
  config.optimizer.momentum = 0;
  require_no_trace_of_breaks(config, folder, "sgd without momentum");
  config.optimizer.name = "muon";
  config.optimizer.momentum = 0.9;
  require_no_trace_of_breaks(config, folder, "muon");
  config.optimizer.moments_dtype = "bf16";
  require_no_trace_of_breaks(config, folder, "muon in bf16");
  config.optimizer.name = "adamw";
  require_no_trace_of_breaks(config, folder, "adamw in bf16");
}

TEST_CASE("resume: any layout and way of keeping state loads any other's save", "[fault-17]") {
  const ShardFolder folder;
  const std::vector<Mode> modes = {{"one rank"},
                                   {"data 8, distributed", 1, 8, 1, true},
                                   {"2 x 2 x 2", 2, 2, 2},
                                   {"sequence, distributed", 2, 2, 2, true, "fp32", true},
                                   {"interleaved, distributed", 1, 4, 2, true, "fp32", false, 2},
                                   {"bf16", 1, 2, 1, false, "bf16"},
                                   {"bf16, distributed", 2, 2, 2, true, "bf16"},
                                   {"fp16, distributed", 1, 4, 1, true, "fp16"}};
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

TEST_CASE("resume: moments may be kept in another type from then on", "[fault-17]") {
  const ShardFolder folder;
  const Mode mode = GENERATE(Mode{"one rank"}, Mode{"distributed", 2, 2, 1, true, "bf16"});
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
  Config config = with_mode(small_run(folder), {"", 1, 2, 2, true});
  run_as_threads(4, [&](Communicator& world) {
    LateCommunicator late(world);
    TrainerOnRank rank(config, late);
    Trainer& trainer = rank.trainer;
    trainer.train_step();
    trainer.save(folder.file("run"), nlohmann::json::object());
    const StepResult straight = trainer.train_step();
    CHECK(late.owed() > 0);
    std::vector<std::string> warnings;
    trainer.resume(open_named_checkpoint(late, at(folder.file("run"), 1), warnings));
    CHECK(late.owed() == 0);
    const StepResult again = trainer.train_step();
    CHECK(again.loss == straight.loss);
    CHECK(again.gradient_norm == straight.gradient_norm);
    trainer.check_replicas();
  });
}
