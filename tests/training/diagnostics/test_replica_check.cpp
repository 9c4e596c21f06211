// One flipped bit in one copy of a parameter is found, whatever made the copies, and named with tensor and rank.
#include <set>

#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/check_on_rank.h"
#include "support/late_communicator.h"
#include "support/loop_on_threads.h"
#include "support/trainer_on_rank.h"
#include "training/step/grid.h"
#include "training/step/trainer.h"

using namespace megatron;
using namespace megatron::test;

namespace {

enum class Hurt { value, master, first_moment, second_moment };

struct Flip {
  GridShape shape;
  const char* name = "";
  int rank = -1;  // no rank
  Hurt hurt = Hurt::value;
  bool sequence_parallel = false, distributed = false;
  void (*variant)(ModelConfig&) = [](ModelConfig&) {};
};

Config config_of(const Flip& flip) {
  Config config = tiny_config();
  config.parallel.tensor = flip.shape.tensor;
  config.parallel.data = flip.shape.data;
  config.parallel.pipeline = flip.shape.pipeline;
  config.parallel.sequence_parallel = flip.sequence_parallel;
  config.optimizer.share = flip.distributed ? "state" : "none";
  if (flip.hurt == Hurt::master) config.precision.compute = "bf16";
  flip.variant(config.model);
  return config;
}

/// Tensor that the flip damages on this rank: a whole parameter, or the state that this rank keeps; absent: not here.
Tensor target_of(const Flip& flip, Replica& replica) {
  for (const Parameter& parameter : replica.store().all()) {
    if (parameter.name != flip.name) continue;
    if (flip.hurt == Hurt::value) return parameter.value.view({parameter.elements()});
    for (const FlatRange& part : ParameterStore::parts_in(parameter, replica.optimizer().owned())) {
      const Optimizer::State state = replica.optimizer().state(part);
      return flip.hurt == Hurt::master ? state.master
                                       : numbers_of(state.states, flip.hurt == Hurt::first_moment ? "m" : "v");
    }
  }
  return {};
}

/// Trains two steps, flips one bit of `name` (or of its optimizer's state) on `rank`, and checks. What every rank was
/// told: nothing if all was well.
std::vector<std::string> told_after(const Flip& flip) {
  const Config config = config_of(flip);
  std::vector<std::string> told(static_cast<std::size_t>(flip.shape.ranks()));
  run_as_threads(flip.shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, grid_shape(config));
    Backend backend = make_cpu_backend();
    Replica replica(config, grid, backend);
    TinyBatches batches(config, grid.data().rank());
    Timers timers;
    ReplicaCheck check(grid, replica.store(), *backend.device, replica.optimizer());
    for (int step = 1; step <= 2; ++step) {
      const StepSums sums = replica.forward_backward(batches.step(step), step, batches.loss(), timers);
      replica.update(sums, {.learning_rate = 1e-2}, timers);
      replica.wait_for_values();
      check.run("in a healthy run");
    }
    if (world.rank() == flip.rank) {
      const Tensor target = target_of(flip, replica);
      internal_check(!target.empty(), "the rank that is to be hurt has no such parameter, or no state of it");
      auto* last = static_cast<std::uint8_t*>(target.data()) + target.bytes() - size_of(target.dtype());
      *last ^= 1;  // the least there is
    }
    try {
      check.run("after step 2");
    } catch (const Error& error) {
      told[static_cast<std::size_t>(world.rank())] = fmt::format("{}: {}", name_of(error.kind()), error.what());
    }
  });
  return told;
}

/// All ranks were told the same, of one tensor, with these words.
void require_told(const Flip& flip, const char* start, const char* then, const char* end = "") {
  CAPTURE(flip.name, flip.rank);
  const std::vector<std::string> told = told_after(flip);
  CHECK(std::set<std::string>(told.begin(), told.end()).size() == 1);
  CHECK_THAT(told.front(), StartsWith("numerics: after step 2, ranks that must hold the same values do not"));
  CHECK_THAT(told.front(), Contains(start) && Contains(then) && Contains(end));
  CHECK(std::count(told.front().begin(), told.front().end(), '\n') == 1);
}

}  // namespace

TEST_CASE("replica check: healthy copies have equal bits on every layout") {
  for (const GridShape& shape : {GridShape{}, GridShape{.tensor = 2, .data = 2, .pipeline = 2}, GridShape{.tensor = 4},
                                 GridShape{.data = 4}, GridShape{.pipeline = 4}}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const bool distributed : {false, true}) {
        CAPTURE(shape.tensor, shape.data, shape.pipeline, sequence_parallel, distributed);
        for (const Hurt precision : {Hurt::value, Hurt::master}) {
          for (const std::string& told : told_after({.shape = shape,
                                         .hurt = precision,
                                         .sequence_parallel = sequence_parallel,
                                         .distributed = distributed})) {
            CHECK(told.empty());
          }
        }
      }
    }
  }
  for (const auto variant : {like_llama, with_one_group, with_normed_heads}) {
    for (const bool distributed : {false, true}) {
      for (const std::string& told : told_after({.shape = {.tensor = 4, .data = 2},
                                     .hurt = Hurt::master,
                                     .sequence_parallel = true,
                                     .distributed = distributed,
                                     .variant = variant})) {
        CHECK(told.empty());
      }
    }
  }
  const Flip alone{.shape = {.tensor = 2}, .name = "layers.0.mlp.up.weight", .rank = 1};  // each has its own half
  for (const std::string& told : told_after(alone)) CHECK(told.empty());
}

TEST_CASE("a flipped bit on one data rank is named with tensor and rank", "[fault-37]") {
  // Three copies against one.
  require_told({.shape = {.data = 4}, .name = "layers.2.mlp.down.weight", .rank = 2},
               "\n  layers.2.mlp.down.weight: rank 2 (", ") disagrees with the 3 others");
  // One against one: both, and that it is open which is right. Ranks 2 and 3 are data rank 1; rank 3 has the second
  // half.
  require_told({.shape = {.tensor = 2, .data = 2}, .name = "layers.0.attention.query.weight", .rank = 3},
               "\n  layers.0.attention.query.weight [part [16, 32] at [16, 0]]: rank 1 (", ") and rank 3 (",
               "which is right cannot be told");
  // In the fp32 master alone: its 16-bit value may well be the same.
  require_told({.shape = {.data = 4}, .name = "final_norm.weight", .rank = 3, .hurt = Hurt::master},
               "\n  final_norm.weight (fp32 master): rank 3 (", ") disagrees with the 3 others");
}

TEST_CASE("replica check: a bit flipped in a tensor rank's norm is named", "[fault-37]") {
  for (const bool sequence_parallel : {false, true}) {
    require_told({.shape = {.tensor = 4},
                  .name = "layers.1.attention_norm.weight",
                  .rank = 3,
                  .sequence_parallel = sequence_parallel},
                 "\n  layers.1.attention_norm.weight: rank 3 (", ") disagrees with the 3 others");
  }
  // Two tensor ranks alone could not tell, nor two data ranks; together there are four copies.
  require_told({.shape = {.tensor = 2, .data = 2}, .name = "layers.1.attention_norm.bias", .rank = 1},
               "\n  layers.1.attention_norm.bias: rank 1 (", ") disagrees with the 3 others");
}

TEST_CASE("replica check: a bit flipped in a key shared by tensor ranks is named", "[fault-37]") {
  // Two of four have the second half.
  require_told({.shape = {.tensor = 4}, .name = "layers.1.attention.key.weight", .rank = 3, .variant = like_llama},
               "\n  layers.1.attention.key.weight [part [8, 32] at [8, 0]]: rank 2 (", ") and rank 3 (",
               "which is right cannot be told");
  require_told({.shape = {.tensor = 4}, .name = "layers.1.attention.value.bias", .rank = 2, .variant = with_one_group},
               "\n  layers.1.attention.value.bias: rank 2 (", ") disagrees with the 3 others");
  // Data ranks have copies of the same halves; what they keep of the optimizer's state are parts of those.
  require_told(
      {.shape = {.tensor = 4, .data = 2}, .name = "layers.0.attention.value.weight", .rank = 1, .variant = like_llama},
      "\n  layers.0.attention.value.weight [part [8, 32] at [0, 0]]: rank 1 (", ") disagrees with the 3 others");
  require_told({.shape = {.tensor = 4, .data = 2},
                .name = "layers.3.attention.key.weight",
                .rank = 5,
                .hurt = Hurt::second_moment,
                .distributed = true,
                .variant = like_llama},
               "\n  layers.3.attention.key.weight [part [8, 32] at [0, 0]] (state v", ": rank 4 (", ") and rank 5 (");
}

TEST_CASE("replica check: a bit flipped in a stage's tied table is named", "[fault-37]") {
  require_told({.shape = {.data = 2, .pipeline = 2}, .name = "embedding.word.weight", .rank = 3},
               "\n  embedding.word.weight: rank 3 (", ") disagrees with the 3 others");
  require_told({.shape = {.pipeline = 4}, .name = "embedding.word.weight", .rank = 0},
               "\n  embedding.word.weight: rank 0 (", ") and rank 3 (");
}

TEST_CASE("replica check: a bit flipped in the optimizer's state is named by part", "[fault-37]") {
  // Tied tables are cut alike on their stages, and tensor ranks cut their buffers alike.
  require_told({.shape = {.tensor = 4}, .name = "layers.1.attention_norm.bias", .rank = 3, .hurt = Hurt::first_moment},
               "\n  layers.1.attention_norm.bias (state m): rank 3 (", ") disagrees with the 3 others");
  require_told({.shape = {.tensor = 4, .data = 2},
                .name = "layers.1.attention_norm.bias",
                .rank = 2,
                .hurt = Hurt::master,
                .distributed = true},
               "\n  layers.1.attention_norm.bias (fp32 master, elements 0 to 31): rank 2 (",
               ") disagrees with the 3 others");
  require_told({.shape = {.tensor = 2, .data = 2},
                .name = "layers.3.mlp_norm.weight",
                .rank = 3,
                .hurt = Hurt::second_moment,
                .distributed = true},
               "\n  layers.3.mlp_norm.weight (state v, elements 0 to 31): rank 2 (", ") and rank 3 (");
  require_told({.shape = {.data = 2, .pipeline = 2},
                .name = "embedding.word.weight",
                .rank = 3,
                .hurt = Hurt::first_moment,
                .distributed = true},
               "\n  embedding.word.weight (state m, elements 1024 to 2047): rank 1 (", ") and rank 3 (");
}

TEST_CASE("replica check: a run compares regularly and saves only equal copies", "[fault-37]") {
  const ShardFolder folder;
  Config config = tiny_config();
  config.parallel.data = 2;
  config.data.train = make_corpus(folder);
  config.train.steps = 8;
  const auto hurt_in_step_5 = [](InjectedOps& ops, const ProcessGrid& grid) {
    if (grid.data().rank() != 1) return;
    // Four micro-batches a step on each of two data ranks, nine norms in each: inside of step 5.
    ops.after_norm = [calls = 0](const LayerNormForwardArgs& args) mutable {
      if (++calls == 4 * 4 * 9 + 5)
        *const_cast<std::uint32_t*>(static_cast<const std::uint32_t*>(args.gamma.data())) ^= 1;
    };
  };
  const auto run = [&](const char* name, std::int64_t check_every, std::int64_t save_every) {
    config.run.directory = folder.file(name);
    config.train.check_replicas_every = check_every;
    config.checkpoint.every_steps = save_every;
    const LoopResult result = run_loop(config, hurt_in_step_5);
    CHECK(result.told[0] == result.told[1]);
    return result;
  };

  const LoopResult every_second = run("every second", 2, 0);
  CHECK_THAT(every_second.told[0], StartsWith("numerics: after step 6, ranks that must hold the same values do not"));
  CHECK_THAT(every_second.told[0], Contains("layers.2.attention_norm.weight: rank 0 (") && Contains("and rank 1 ("));
  CHECK_THAT(every_second.told[0], !Contains("layers.1."));

  const LoopResult saves = run("before saves", 100, 3);
  CHECK_THAT(saves.told[0], StartsWith("numerics: after step 6, "));
  CHECK(std::filesystem::exists(folder.file("before saves/checkpoints/step_00000003")));
  CHECK_FALSE(std::filesystem::exists(folder.file("before saves/checkpoints/step_00000006")));

  const LoopResult never = run("never", 0, 3);
  CHECK(never.told[0].empty());
  CHECK(std::filesystem::exists(folder.file("never/checkpoints/step_00000008")));
}

TEST_CASE("replica check: it sees complete values during an optimizer's gathers", "[fault-37]") {
  const ShardFolder folder;
  Config config = config_of({.shape = {.data = 2, .pipeline = 2}, .distributed = true});
  config.data.train = make_corpus(folder);
  config.train.steps = 2;
  run_as_threads(4, [&](Communicator& world) {
    LateCommunicator late(world);
    TrainerOnRank rank(config, late);
    Trainer& trainer = rank.trainer;
    trainer.check_replicas();
    for (int step = 1; step <= 2; ++step) {
      trainer.train_step();
      CHECK_ON_RANK(late.owed() > 0);
      trainer.check_replicas();
      CHECK_ON_RANK(late.owed() == 0);
    }
  });
}

namespace {

/// Report that rank 0 gets on a made-up model on a grid with a context axis and a tie of three stages, when the ranks
/// `bad` have another value in their copies of `name`.
std::string told_of_made_up(const std::string& name, const std::set<int>& bad) {
  const GridShape shape{.context = 4, .pipeline = 3, .ties = {{0, 1, 2}}};
  std::string told;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    for (const std::string& one : {fmt::format("stage {}", grid.at().pipeline), std::string("tied")}) {
      Parameter parameter(Role::vector);
      parameter.name = one;
      parameter.global_shape = {9};
      parameter.box = {{0}, {9}};
      const int index = store.declare(std::move(parameter));
      if (one == "tied") store.mark_tied(index, 0, grid.tie(0).rank() == 0);
    }
    store.allocate(*backend.device, DType::f32);
    const Optimizer optimizer(store, {}, *backend.device, *backend.ops);
    backend.ops->fill(store.values(), 1);
    for (const Parameter& parameter : store.all()) {
      if (bad.count(world.rank()) > 0 && parameter.name == name) parameter.value.as<float>()[4] = 2;
    }
    ReplicaCheck check(grid, store, *backend.device, optimizer);
    try {
      check.run("after step 1");
    } catch (const Error& error) {
      if (world.rank() == 0) told = error.what();
    }
  });
  return told;
}

}  // namespace

TEST_CASE("replica check: context ranks and all stages of a tie hold copies", "[fault-37]") {
  CHECK(told_of_made_up("tied", {}).empty());
  CHECK_THAT(told_of_made_up("stage 1", {5}),
             Contains("\n  stage 1: rank 5 (") && Contains(") disagrees with the 3 others"));
  // All of the middle stage: its context ranks agree.
  CHECK_THAT(told_of_made_up("tied", {4, 5, 6, 7}),
             Contains("\n  tied: ranks 4 (") && Contains(") disagree with the 8 others"));
}

namespace {

/// The same where two of four data ranks share four experts out, over two tensor ranks, and 16-bit values have masters:
/// with the least bit of one rank's copy flipped, of the value or of the state that the rank keeps of it.
std::string told_of_experts(const std::string& name, int bad, Hurt hurt, bool distributed, int sets = 1) {
  const GridShape shape{.tensor = 2, .data = 4, .expert = 2, .replicas = sets};
  std::string told;
  run_as_threads(shape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, shape);
    Backend backend = make_cpu_backend();
    ParameterStore store;
    for (const std::string& one : {fmt::format("expert {}", grid.expert().rank()),
                                   fmt::format("expert {}", grid.expert().rank() + 2), std::string("router")}) {
      Parameter parameter(one == "router" ? Role::router : Role::matrix);
      parameter.name = one;
      parameter.global_shape = {18, 1};
      parameter.box = {{0, 0}, {18, 1}};
      if (one != "router") {
        parameter.copies = CopyGroup::experts;
        parameter.tensor = Placement::split;
        parameter.box = {{9 * grid.at().tensor, 0}, {9, 1}};
      }
      parameter.initialization.deviation = 1;
      store.declare(std::move(parameter));
    }
    store.allocate(*backend.device, DType::bf16, distributed ? shards_of(shape) : Shards{});
    ParameterAllGather gathers(grid, store);
    Optimizer optimizer(store, {}, *backend.device, *backend.ops, &gathers);
    optimizer.initialize(1);
    for (const Parameter& parameter : store.all()) {
      if (world.rank() != bad || parameter.name != name) continue;
      const auto master = [&] {
        return optimizer.state(ParameterStore::parts_in(parameter, optimizer.owned()).front()).master;
      };
      *static_cast<std::uint8_t*>((hurt == Hurt::value ? parameter.value : master()).data()) ^= 1;
    }
    ReplicaCheck check(grid, store, *backend.device, optimizer);
    try {
      check.run("after step 1");
    } catch (const Error& error) {
      if (world.rank() == 0) told = error.what();
    }
  });
  return told;
}

}  // namespace

TEST_CASE("replica check: experts are compared only with their own copies", "[fault-37]") {
  for (const bool distributed : {false, true}) {
    CAPTURE(distributed);
    CHECK(told_of_experts("expert 0", -1, Hurt::value, distributed).empty());
    // Ranks 2, 3, 6 and 7 are expert rank 1; of these 2 and 6 have the first half.
    const std::string value = told_of_experts("expert 3", 6, Hurt::value, distributed);
    CHECK_THAT(value, Contains("\n  expert 3 [part [9, 1] at [0, 0]]: rank 2 (") && Contains(") and rank 6 (") &&
                          Contains("which is right cannot be told"));
    CHECK(std::count(value.begin(), value.end(), '\n') == 1);
    CHECK_THAT(told_of_experts("router", 5, Hurt::value, distributed),
               Contains("\n  router: rank 5 (") && Contains(") disagrees with the 7 others"));
  }
  CHECK_THAT(told_of_experts("expert 0", 1, Hurt::master, false),
             Contains("\n  expert 0 [part [9, 1] at [9, 0]] (fp32 master): rank 1 (") && Contains(") and rank 5 ("));
  // Shared out, each has a part of the state that no other has, but for those of another set.
  CHECK(told_of_experts("expert 0", 1, Hurt::master, true).empty());
  CHECK(told_of_experts("expert 0", -1, Hurt::master, true, 2).empty());
  CHECK_THAT(told_of_experts("expert 0", 1, Hurt::master, true, 2),
             Contains("\n  expert 0 [part [9, 1] at [9, 0]] (fp32 master, elements 0 to 8): rank 1 (") &&
                 Contains(") and rank 5 ("));
}
