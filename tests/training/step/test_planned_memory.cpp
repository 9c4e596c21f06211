// Plans of plan_memory for layouts, by arithmetic: changes by recomputation, sequence parallelism and schedules.
#include <algorithm>

#include "models/families/flops.h"
#include "models/families/layers.h"
#include "support/catch.h"
#include "training/step/grid.h"
#include "training/step/memory_layout.h"
#include "training/step/replica.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("planned memory: data ranks differ in states and snapshots alone") {
  const auto variant = GENERATE(like_llama, with_one_group, with_normed_heads);
  const std::string rule = GENERATE("adamw", "muon");
  const TransportKind transport = GENERATE(TransportKind::host, TransportKind::staged);
  CAPTURE(rule);
  // Under sequence parallelism a learned table of positions is summed as well, by its owners alone.
  for (const bool learned : {false, true}) {
    Config config = config_of({.tensor = 4, .data = 3, .sequence_parallel = true, .share = "state"});
    variant(config.model);
    if (learned) config.model.position_embedding = "learned";
    config.train.global_batch_size = 6;
    config.optimizer.name = rule;
    config.checkpoint.async = true;
    config.checkpoint.every_steps = 1;
    const auto snapshot_in = [&](MemoryUse& plan) -> std::size_t& {
      return transport == TransportKind::host ? plan.snapshot : plan.host;
    };
    MemoryUse most;
    std::vector<MemoryPlan> plans;
    for (int data = 0; data < 3; ++data) {
      plans.push_back(plan_memory(config, grid_shape(config), {.data = data}, transport));
      if (data == 0) most = plans[0];
      most.optimizer = std::max(most.optimizer, plans.back().optimizer);
      snapshot_in(most) = std::max(snapshot_in(most), snapshot_in(plans.back()));
    }
    // Shards of matrices have fewer states than others.
    CHECK((plans[1].optimizer == plans[0].optimizer && plans[2].optimizer == plans[0].optimizer) == (rule == "adamw"));
    for (MemoryPlan& plan : plans) {
      CHECK((plan.fullest == most));
      plan.optimizer = most.optimizer;
      snapshot_in(plan) = snapshot_in(most);
      CHECK((static_cast<MemoryUse&>(plan) == most));
    }
  }
}

TEST_CASE("planned memory: offloaded states are not in the total") {
  Config config = config_of({.data = 3, .share = "state", .optimizer = "muon", .compute = "bf16"});
  config.train.global_batch_size = 6;
  for (const double fraction : {1.0, 0.5}) {
    CAPTURE(fraction);
    Config offloaded = config;
    offloaded.optimizer.offload = "file";
    offloaded.optimizer.offload_fraction = fraction;
    std::size_t most = 0;
    for (int data = 0; data < 3; ++data) {
      const MemoryPlan plain = plan_memory(config, grid_shape(config), {.data = data}),
                       plan = plan_memory(offloaded, grid_shape(config), {.data = data});
      CHECK(plan.file + plan.optimizer == plain.optimizer);
      CHECK(static_cast<double>(plan.file) >= 0.9 * fraction * static_cast<double>(plain.optimizer));
      CHECK(plan.total() + plan.file == plain.total());
      CHECK((plan.host == 0 && plan.host_states == 0 && plain.file == 0));
      CHECK(plan.updated_states == plain.updated_states);
      most = std::max(most, plan.file);
    }
    CHECK(plan_memory(offloaded, grid_shape(config), {}).fullest.file == most);
  }
  // A GPU's are in the host's memory.
  config.optimizer.offload = "host";
  const MemoryPlan plan = plan_memory(config, grid_shape(config), {}, TransportKind::staged);
  CHECK(plan.host_states > 0);
  CHECK(plan.host > plan.host_states);
  CHECK(plan.file == 0);
  CHECK_THROWS_WITH(plan_memory(config, grid_shape(config), {}), Contains("take optimizer.offload = \"file\""));
  config.optimizer.offload = "file";
  CHECK_THROWS_WITH(plan_memory(config, grid_shape(config), {}, TransportKind::staged),
                    Contains("take optimizer.offload = \"host\""));
}

TEST_CASE("planned memory: another copy than the first may save most") {
  Config config = config_of({.data = 3, .share = "state", .optimizer = "muon"});
  config.train.global_batch_size = 6;
  config.checkpoint.async = true;
  config.checkpoint.every_steps = 1;
  std::vector<std::size_t> snapshots;
  for (int data = 0; data < 3; ++data) {
    snapshots.push_back(plan_memory(config, grid_shape(config), {.data = data}).snapshot);
  }
  const std::size_t most = *std::max_element(snapshots.begin(), snapshots.end());
  CHECK(most > snapshots[0]);
  CHECK(plan_memory(config, grid_shape(config), {}).fullest.snapshot == most);
}

TEST_CASE("planned memory: the first context rank holds as much as any") {
  const auto variant = GENERATE(like_llama, with_window, like_bert);
  const char* const exchange = GENERATE("gathered", "ring");
  const Config config = config_of(
      {.tensor = 2, .data = 2, .dropout = 0, .share = "state", .variant = variant, .context = 4, .exchange = exchange});
  CAPTURE(exchange);
  const MemoryPlan first = plan_memory(config, grid_shape(config), {});
  for (int context = 1; context < 4; ++context) {
    MemoryPlan plan = plan_memory(config, grid_shape(config), {.context = context});
    CHECK(plan.kernels <= first.kernels);  // its second chunk sees the most keys
    plan.kernels = first.kernels;
    CHECK((static_cast<MemoryUse&>(plan) == static_cast<const MemoryUse&>(first)));
    CHECK(plan.matmul_flops == first.matmul_flops);
    CHECK(plan.forward_and_backward_bytes == first.forward_and_backward_bytes);
    if (variant != with_window) CHECK(plan.attention_flops == Approx(first.attention_flops));  // first rows see less
  }
  if (variant != like_llama) return;
  // A quarter of the work, and in addition keys and values: gathered or passed on twice, their gradients once.
  const MemoryPlan whole =
      plan_memory(config_of({.tensor = 2, .data = 2, .dropout = 0, .variant = variant}), {.tensor = 2}, {});
  CHECK(whole.matmul_flops == 4 * first.matmul_flops);
  CHECK(whole.attention_flops == Approx(4 * first.attention_flops));
  const double micro_batches = 4, layers = 4, keys = 16 * 8, exchanged = 6.0 * 3 / 4 * keys * sizeof(float);
  CHECK(first.forward_and_backward_bytes ==
        Approx(whole.forward_and_backward_bytes / 4 + micro_batches * layers * exchanged));
}

TEST_CASE("planned memory: exchanged heads") {
  const Config config = config_of({.context = 4, .exchange = "ulysses"}), alone = config_of({});
  const Config gathered = config_of({.context = 4, .exchange = "gathered"});
  const MemoryPlan first = plan_memory(config, grid_shape(config), {}), whole = plan_memory(alone, {}, {});
  for (int context = 1; context < 4; ++context) {
    const MemoryPlan plan = plan_memory(config, grid_shape(config), {.context = context});
    CHECK((static_cast<const MemoryUse&>(plan) == static_cast<const MemoryUse&>(first)));
  }
  // Outputs are kept twice, of a rank's rows and of its heads; queries, keys and values once.
  const double layers = 4, rows = 16, h = 32, bytes = sizeof(float);
  const MemoryPlan plain = plan_memory(gathered, grid_shape(gathered), {});
  CHECK(static_cast<double>(first.passes.slots.at(0) - plain.passes.slots.at(0)) == layers * rows / 4 * h * bytes);
  CHECK(whole.attention_flops == Approx(4 * first.attention_flops));
  const double micro_batches = 8, exchanged = 3.0 / 4 * rows / 4 * (4 * h + 4 * h) * bytes;
  CHECK(first.forward_and_backward_bytes == micro_batches * layers * exchanged);
}

TEST_CASE("planned memory: products of Muon's update, of whole matrices") {
  Config config = config_of({.tensor = 2, .optimizer = "muon"});
  const auto flops = [](double small, double large) {
    return 5 * (4 * small * small * large + 2 * small * small * small);
  };
  const MemoryPlan plan = plan_memory(config, grid_shape(config), {});
  CHECK(plan.update_flops == 4 * (4 * flops(32, 32) + 2 * flops(32, 128)) / 2);  // a half on each rank
  CHECK(plan.updated_states < 2 * plan.updated);
  config.optimizer.name = "adamw";
  const MemoryPlan other = plan_memory(config, grid_shape(config), {});
  CHECK(other.update_flops == 0);
  CHECK(other.matmul_flops == plan.matmul_flops);
}

TEST_CASE("planned memory: recomputed layers keep inputs and share one scratch") {
  const auto plan = [](RecomputeConfig recompute) {
    return plan_memory(config_of({.micro_batch = 2, .recompute = recompute}), {}, {});
  };
  const Config config = config_of({});
  const std::size_t rows = 16 * 2, h = 32, bytes = sizeof(float);
  // Memory that a layer saves in addition to its output (the next one's input): two norms with their statistics, the
  // residual stream in the middle, query, key and value, attention's output and statistics, up and activated.
  const std::size_t layer = bytes * rows * (3 * h + 4 + 3 * h + h + 4 + 2 * 4 * h);
  const MemoryPlan none = plan({});
  for (std::int64_t layers = 1; layers <= 5; ++layers) {
    const MemoryPlan some = plan({"full", layers});
    const auto recomputed = static_cast<std::size_t>(std::min<std::int64_t>(layers, config.model.layers));
    CHECK(none.passes.slots.at(0) - some.passes.slots.at(0) == recomputed * layer);
    CHECK(some.scratch == none.scratch + layer);
    // The repeated products are those of the FLOPs that metrics report.
    const double tokens = 8.0 * 16;
    const double repeated = flops_per_token(config.model, static_cast<std::int64_t>(recomputed)).hardware -
                            flops_per_token(config.model).model;
    CHECK(some.matmul_flops + some.attention_flops - none.matmul_flops - none.attention_flops ==
          Approx(tokens * repeated));
  }
  CHECK((plan({"full"}).passes == plan({"full", 4}).passes));
}

TEST_CASE("planned memory: each recomputed part saves its tensors and no other") {
  using Part = RecomputePart;
  struct Case {
    RecomputeParts parts;
    std::size_t saved, scratch;  // in units of [s, b, h], of a layer
    double products;             // in 2 s b h h, of a layer
  };
  // Two norms; GELU's output, 4 h wide; and its input.
  const Case cases[] = {{{Part::norms}, 2, 1, 0},
                        {{Part::activations}, 4, 4, 0},
                        {{Part::feed_forward}, 8, 8, 4},
                        {{Part::activations, Part::feed_forward}, 8, 8, 4},
                        {{Part::norms, Part::activations}, 6, 5, 0},
                        {{Part::norms, Part::feed_forward}, 10, 9, 4}};
  const auto plan = [](RecomputeConfig recompute) {
    return plan_memory(config_of({.micro_batch = 2, .recompute = recompute}), {}, {});
  };
  const Config config = config_of({});
  const std::size_t layers = 4, rows = 16 * 2, h = 32, unit = rows * h * sizeof(float), micro_batches = 4;
  const MemoryPlan none = plan({});
  for (const Case& each : cases) {
    const RecomputeConfig recompute{.mode = "selective", .parts = each.parts};
    CAPTURE(each.parts.names());
    const MemoryPlan some = plan(recompute);
    CHECK(none.passes.slots.at(0) - some.passes.slots.at(0) == layers * each.saved * unit);
    CHECK(some.scratch == none.scratch + each.scratch * unit);
    const double repeated = static_cast<double>(micro_batches * layers * rows * h * h) * 2 * each.products;
    CHECK(some.matmul_flops - none.matmul_flops == Approx(repeated));
    CHECK(some.attention_flops == none.attention_flops);
    const RecomputedLayers again = recomputed_layers(config.model, config.parallel, recompute);
    CHECK(flops_per_token(config.model, again).hardware - flops_per_token(config.model).model ==
          Approx(repeated / (8.0 * 16)));
    // Norms read and write a unit each; a function reads and writes 4 units, also where the product is made again.
    const double moved = (each.parts.has(Part::norms) ? 4.0 : 0) + (each.saved >= 4 ? 8 : 0);
    CHECK(some.function_bytes - none.function_bytes == static_cast<double>(micro_batches * layers * unit) * moved);
  }
  CHECK((plan({"selective"}).passes == plan({"selective", 0, {Part::norms, Part::activations}}).passes));
}

TEST_CASE("sequence parallel: saved memory outside regions shrinks by tensor size") {
  const auto slot = [](int tensor, bool sequence_parallel) {
    const Config config =
        config_of({.tensor = tensor, .micro_batch = 4, .sequence_parallel = sequence_parallel, .dropout = 0.1});
    return plan_memory(config, {.tensor = tensor}, {}).passes.slots.at(0);
  };
  const std::size_t rows = 16 * 4, h = 32, layers = 4, vocab = 64, bytes = sizeof(float);
  // Inside, of a layer: query, key and value, attention's output and statistics of four heads, up and activated; of the
  // head: logits, and of each row over all columns the maximum, the sum and the target's logit.
  const auto inside = [&](std::size_t t) {
    return bytes * rows * (layers * (3 * h + h + 4 + 2 * 4 * h) / t + vocab / t + 3);
  };
  // Outside, of a layer: two norms with their statistics, the residual stream in the middle and at the end; before the
  // first the embedding, after the last a norm.
  const std::size_t outside = bytes * rows * (layers * (2 * (h + 2) + 2 * h) + h + h + 2);
  for (const int tensor : {2, 4}) {
    CAPTURE(tensor);
    const auto t = static_cast<std::size_t>(tensor);
    CHECK(slot(tensor, false) == inside(t) + outside);
    CHECK(slot(tensor, true) == inside(t) + outside / t);
  }
}

TEST_CASE("slots in flight are the schedule's") {
  const auto slots = [](const char* schedule, int pipeline, int stage) {
    const Config config = config_of({.pipeline = pipeline, .schedule = schedule});
    return plan_memory(config, grid_shape(config), {.pipeline = stage}).slots();
  };
  CHECK(slots("gpipe", 4, 0) == 8);
  CHECK(slots("1f1b", 4, 0) == 4);
  CHECK(slots("1f1b", 4, 3) == 1);
  for (int stage = 0; stage < 4; ++stage) CHECK(slots("zero_bubble", 4, stage) == 4);
}

TEST_CASE("only the last stage's slots for the model's end have room for logits") {
  const Config config = config_of({.pipeline = 2, .schedule = "interleaved", .virtual_stages = 2});
  const MemoryPlan last = plan_memory(config, grid_shape(config), {.pipeline = 1});
  const std::size_t logits = sizeof(float) * 16 * 64;
  REQUIRE(last.slots() == 4);  // two to warm up, one more, and the one apart
  CHECK(last.passes.slots[0] >= last.passes.slots[1] + logits);
  CHECK(last.passes.slots[1] == last.passes.slots[2]);
  // A gradient of [s, b, h] is sent while the next is made.
  const std::size_t link = sizeof(float) * 16 * 32;
  CHECK(last.passes.gradient_buffers == std::vector<std::size_t>{link, link});
  const MemoryPlan first = plan_memory(config, grid_shape(config), {});
  CHECK(first.passes.gradient_buffers == std::vector<std::size_t>{link, link});  // its chunk 1 has a previous one
  const Config plain = config_of({.pipeline = 2});
  CHECK(plan_memory(plain, grid_shape(plain), {}).passes.gradient_buffers.empty());
}
