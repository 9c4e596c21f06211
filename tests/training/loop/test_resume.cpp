// Interrupting a run must not show in its numbers, whatever the layout and wherever the break: real checkpoints and
// data, with ranks as threads so that all combinations are affordable.
#include <cstring>
#include <map>
#include <mutex>

#include "backend/cpu/cpu_device.h"
#include "base/core/half.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/late_communicator.h"
#include "support/loop_on_threads.h"
#include "support/trainer_on_rank.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr int kSteps = 4;

/// Trains from `from` (empty: from the start) to the last step, saving every step below `directory`; the numbers of
/// every step as text, every digit of them.
std::vector<std::string> train(Config config, const std::string& from, const std::string& directory) {
  const int ranks = static_cast<int>(config.parallel.tensor * config.parallel.pipeline * config.parallel.data);
  std::vector<std::string> lines;
  run_as_threads(ranks, [&](Communicator& world) {
    TrainerOnRank rank(config, world);
    Trainer& trainer = rank.trainer;
    std::vector<std::string> warnings;
    if (!from.empty()) trainer.resume(open_named_checkpoint(world, from, warnings));
    while (!trainer.finished()) {
      const StepResult result = trainer.train_step();
      trainer.save(directory, nlohmann::json::object());
      if (world.rank() != 0) continue;
      lines.push_back(fmt::format("step {} samples {} loss {} norm {} rate {} decay {}", trainer.step(),
                                  trainer.samples(), result.loss, result.gradient_norm, result.learning_rate,
                                  result.weight_decay));
    }
  });
  return lines;
}

std::map<std::string, std::string> rank_files(const std::string& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rank_")) files[name] = contents_of(entry.path().string());
  }
  return files;
}

std::string at(const std::string& directory, int step) {
  return fmt::format("{}/checkpoints/step_{:08}", directory, step);
}

Config small_run(const ShardFolder& folder) {
  Config config = tiny_config();
  config.data.train = make_corpus(folder);
  config.train.steps = kSteps;
  config.learning_rate.peak = 1e-3;
  config.checkpoint.keep_last = 0;
  return config;
}

/// Trains once without a break and once from each step's checkpoint. Returns the numbers of the run without a break.
std::vector<std::string> require_no_trace_of_breaks(const Config& config, const ShardFolder& folder,
                                                    const std::string& name) {
  const auto steps = static_cast<int>(config.train.steps);
  const std::string straight = folder.file(name);
  const std::vector<std::string> expected = train(config, "", straight);
  REQUIRE(expected.size() == static_cast<std::size_t>(steps));
  const auto last = rank_files(at(straight, steps));
  REQUIRE(!last.empty());
  for (int k = 1; k < steps; ++k) {
    CAPTURE(k);
    const std::string resumed = folder.file(fmt::format("{}_from_{}", name, k));
    const std::vector<std::string> lines = train(config, at(straight, k), resumed);
    CHECK(lines == std::vector<std::string>(expected.begin() + k, expected.end()));
    CHECK(rank_files(at(resumed, steps)) == last);  // weights and both moments, bit by bit
  }
  return expected;
}

}  // namespace

TEST_CASE("resume: every layout continues after any step as if nothing happened", "[fault-17]") {
  const ShardFolder folder;
  Config config = small_run(folder);
  int layouts = 0;
  for (const int tensor : {1, 2, 4}) {
    for (const int pipeline : {1, 2, 4}) {
      for (const int data : {1, 2, 4, 8}) {
        if (tensor * pipeline * data > 8) continue;
        CAPTURE(tensor, pipeline, data);
        ++layouts;
        config.parallel.tensor = tensor;
        config.parallel.pipeline = pipeline;
        config.parallel.data = data;
        require_no_trace_of_breaks(config, folder, fmt::format("{}x{}x{}", tensor, pipeline, data));
      }
    }
  }
  CHECK(layouts == 18);
}

TEST_CASE("resume: rate and weight decay schedules reach the update unbroken", "[fault-17]") {
  const ShardFolder folder;
  Config config = small_run(folder);
  config.optimizer.weight_decay_schedule = "linear";  // from 0.1
  config.optimizer.weight_decay_end = 0.5;
  config.learning_rate.decay = "wsd";
  config.learning_rate.wsd_decay_steps = 2;
  config.learning_rate.wsd_style = "linear";
  const std::vector<std::string> lines = require_no_trace_of_breaks(config, folder, "schedules");
  CHECK(lines[0].ends_with("rate 0.001 decay 0.2"));
  CHECK(lines[1].ends_with("rate 0.001 decay 0.30000000000000004"));
  CHECK(lines[2].ends_with("rate 0.0005 decay 0.4"));
  CHECK(lines[3].ends_with("rate 0 decay 0.5"));
  // The same rate without the weight decay's schedule: other losses once an update was made.
  config.optimizer.weight_decay_schedule = "constant";
  config.optimizer.weight_decay_end.reset();
  const std::vector<std::string> constant = train(config, "", folder.file("constant"));
  const auto loss = [](const std::string& line) { return line.substr(0, line.find(" norm")); };
  CHECK(loss(constant[0]) == loss(lines[0]));
  CHECK(loss(constant[1]) != loss(lines[1]));
}

TEST_CASE("resume: growing sequences keep their lengths and others are refused", "[fault-17]") {
  const ShardFolder folder;
  Config config = small_run(folder);
  config.train.steps = 6;
  config.train.curriculum = {"fixed_linear", 4, 5, 4, 2, {}, {}};  // 4 8 8 12 16 16 tokens
  config.learning_rate.warmup_tokens = 256;                        // half of all 512
  config.learning_rate.decay = "linear";
  config.parallel.tensor = config.parallel.pipeline = 2;
  config.parallel.sequence_parallel = true;
  const std::vector<std::string> lines = require_no_trace_of_breaks(config, folder, "curriculum");
  const double rates[] = {0.125, 0.375, 0.625, 1, 0.5, 0};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i].find(fmt::format("samples {} ", 8 * (i + 1))) != std::string::npos);
    CHECK(lines[i].find(fmt::format(" rate {} ", 1e-3 * rates[i])) != std::string::npos);
  }
  Config other = config;
  other.train.curriculum.steps = 6;
  require_error(ErrorKind::checkpoint, {"in other batches", "train.curriculum", "steps = 5", "steps = 6"},
                [&] { train(other, at(folder.file("curriculum"), 3), folder.file("other")); });
}

TEST_CASE("resume: a batch ramp-up keeps its batches and others are refused", "[fault-17]") {
  const ShardFolder folder;
  Config config = small_run(folder);
  config.train.steps = 7;
  config.train.batch_ramp_up = {2, 2, 18};  // batches of 2 2 2 4 4 6 8
  config.parallel.pipeline = 2;
  const std::vector<std::string> lines = require_no_trace_of_breaks(config, folder, "ramp");
  const std::int64_t samples[] = {2, 4, 6, 10, 14, 20, 28};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i].find(fmt::format("samples {} ", samples[i])) != std::string::npos);
  }
  const auto refused = [&](const Config& other, const std::string& what) {
    require_error(ErrorKind::checkpoint, {"in other batches", what},
                  [&] { train(other, at(folder.file("ramp"), 3), folder.file("other")); });
  };
  Config other = config;
  other.train.batch_ramp_up.samples = 20;
  refused(other, "samples = 18}\" in the checkpoint, \"{start = 2, increment = 2, samples = 20}\" in this run");
  other.train.batch_ramp_up = {};
  refused(other, "train.batch_ramp_up");
  other = config;
  other.train.global_batch_size = 10;
  refused(other, "train.global_batch_size: 8 in the checkpoint, 10 in this run");
}

namespace {

/// A layout, and how its ranks keep the optimizer's state.
struct Mode {
  const char* name;
  int tensor = 1, data = 1, pipeline = 1;
  bool distributed = false;
  const char* compute = "fp32";
  bool sequence_parallel = false;
  std::int64_t virtual_stages = 1;
};

Config with_mode(Config config, const Mode& mode) {
  config.parallel.tensor = mode.tensor;
  config.parallel.data = mode.data;
  config.parallel.pipeline = mode.pipeline;
  config.parallel.sequence_parallel = mode.sequence_parallel;
  config.parallel.virtual_stages = mode.virtual_stages;
  if (mode.virtual_stages > 1) config.parallel.schedule = "interleaved";
  config.optimizer.distributed = mode.distributed;
  config.precision.compute = mode.compute;
  return config;
}

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

TEST_CASE("a run is resumed with the optimizer that it began with, or refused", "[fault-17]") {
  const ShardFolder folder;
  Config config = small_run(folder);
  Config sgd = config;
  sgd.optimizer.name = "sgd";
  train(config, "", folder.file("adamw"));
  train(sgd, "", folder.file("sgd"));
  require_error(ErrorKind::checkpoint, {"optimizer.name = \"adamw\", this run has \"sgd\"", "initialize_from"},
                [&] { train(sgd, at(folder.file("adamw"), 2), folder.file("other")); });
  require_error(ErrorKind::checkpoint, {"optimizer.name = \"sgd\", this run has \"adamw\""},
                [&] { train(config, at(folder.file("sgd"), 2), folder.file("other")); });
  // Refused by its name too where the states have the same names.
  Config lion = config;
  lion.optimizer.name = "lion";
  require_error(ErrorKind::checkpoint, {"optimizer.name = \"sgd\", this run has \"lion\"", "initialize_from"},
                [&] { train(lion, at(folder.file("sgd"), 2), folder.file("other")); });
  // Without momentum there is none to take over; with it, none that would be missed.
  Config plain = sgd;
  plain.optimizer.momentum = 0;
  train(plain, "", folder.file("plain"));
  require_error(ErrorKind::checkpoint,
                {"has the optimizer's states [], and this run continues [m]", "another value of optimizer.momentum",
                 "initialize_from"},
                [&] { train(sgd, at(folder.file("plain"), 2), folder.file("other")); });
  CHECK(train(plain, at(folder.file("sgd"), 2), folder.file("from sgd")).size() == 2);
}

TEST_CASE("resume: groups of parameters keep their rules, or are refused", "[fault-17]") {
  const ShardFolder folder;
  const auto group_of = [](std::vector<std::string> roles, const std::string& rule) {
    ParameterGroupConfig group{.roles = std::move(roles), .names = {}, .learning_rate_factor = 0.5, .keys = {"name"}};
    group.values.name = rule;
    return group;
  };
  const Config plain = small_run(folder);
  Config grouped = plain;
  grouped.optimizer_groups = {group_of({"embedding", "vector"}, "sgd")};
  require_no_trace_of_breaks(with_mode(grouped, {"", 1, 2, 2, true}), folder, "groups, distributed");
  require_no_trace_of_breaks(with_mode(grouped, {"", 2, 1, 2, false, "bf16"}), folder, "groups");
  const std::string saved = at(folder.file("groups"), 2), other = folder.file("other");
  // The same rules, said in another way, and with other factors.
  Config same = grouped;
  same.optimizer.name = "sgd";
  same.optimizer_groups = {group_of({"matrix", "norm"}, "adamw")};
  same.optimizer_groups[0].learning_rate_factor = 2;
  CHECK(train(same, saved, other).size() == 2);
  require_error(ErrorKind::checkpoint,
                {"optimizer.groups[0] = \"sgd\" for embedding.word.weight", "this run has \"adamw\" by optimizer.name",
                 "initialize_from"},
                [&] { train(plain, saved, other); });
  train(plain, "", folder.file("plain"));
  require_error(ErrorKind::checkpoint,
                {"optimizer.name = \"adamw\" for embedding.word.weight", "\"sgd\" by optimizer.groups[0]"},
                [&] { train(grouped, at(folder.file("plain"), 2), other); });
  Config still = grouped, moving = grouped;
  still.optimizer_groups[0].keys = moving.optimizer_groups[0].keys = {"momentum", "name"};
  still.optimizer_groups[0].values.momentum = 0;
  train(still, "", folder.file("still"));
  require_error(ErrorKind::checkpoint,
                {"states [], and this run continues [m] of embedding.word.weight", "optimizer.momentum"},
                [&] { train(moving, at(folder.file("still"), 2), other); });
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
