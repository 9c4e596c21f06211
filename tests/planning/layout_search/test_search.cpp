// The search: layouts that the rules allow, the fastest of them, and the memory that the program's own plan predicts.
#include <ctime>

#include "base/core/error.h"
#include "config/parse/parse.h"
#include "config/schema/run_schedule.h"
#include "planning/dry_run/plan_text.h"
#include "planning/layout_search/plan_report.h"
#include "support/catch.h"
#include "training/step/grid.h"

using namespace megatron;

namespace {

Config small_model() {
  Config config;
  ModelConfig& model = config.model;
  model.layers = 8;
  model.hidden_size = 256;
  model.attention_heads = 8;
  model.sequence_length = 128;
  model.vocab_size = 1024;
  config.data.train = "none";
  config.train.steps = 100;
  config.train.global_batch_size = 32;
  config.precision.compute = "bf16";
  return config;
}

Hardware a100_machine(double node_bandwidth = 1e11) {
  Hardware hardware = read_hardware("a100-sxm");
  hardware.node.bandwidth = node_bandwidth;
  hardware.network.bandwidth = node_bandwidth / 10;
  return hardware;
}

Config resolved(Config config, int ranks) {
  config.run.device = "cuda";
  config.run.communication = "nccl";
  resolve(config, ranks, nullptr);
  return config;
}

}  // namespace

TEST_CASE("played stages hold what the program's own plan says, to the byte") {
  struct Case {
    std::int64_t tensor, pipeline, chunks, micro_batch;
    const char *schedule, *recompute;
    bool sequence_parallel;
    const char* share;
  };
  const Case cases[] = {{1, 1, 1, 4, "1f1b", "none", false, "none"},
                        {2, 4, 1, 1, "1f1b", "full", true, "state"},
                        {2, 4, 2, 2, "interleaved", "none", false, "state"},
                        {1, 2, 1, 1, "zero_bubble", "none", false, "none"},
                        {2, 2, 1, 2, "zero_bubble", "selective", true, "state"},
                        {4, 2, 1, 16, "1f1b", "none", true, "none"},
                        {1, 1, 1, 1, "1f1b", "none", false, "gradients"},
                        {1, 1, 1, 1, "1f1b", "full", false, "weights"},
                        {2, 2, 2, 2, "interleaved", "full", true, "gradients"}};
  for (const char* const device : {"cuda", "cpu"}) {
    for (const Case& each : cases) {
      CAPTURE(device, each.tensor, each.pipeline, each.schedule);
      Config config = small_model();
      config.parallel.tensor = each.tensor;
      config.parallel.pipeline = each.pipeline;
      config.parallel.virtual_stages = each.chunks;
      config.parallel.schedule = each.schedule;
      config.parallel.sequence_parallel = each.sequence_parallel;
      config.optimizer.share = each.share;
      config.recompute.mode = each.recompute;
      config.train.micro_batch_size = each.micro_batch;
      config.run.device = device;
      config.run.communication = std::string(device) == "cuda" ? "nccl" : "mpi";
      resolve(config, static_cast<int>(2 * each.tensor * each.pipeline), nullptr);
      const RecordedLayout layout = record_layout(config, 8);
      const std::vector<MemoryPlan> planned = plan_stages(config, grid_shape(config));
      std::size_t most = 0;
      for (const MemoryPlan& plan : planned) most = std::max(most, plan.total());
      CHECK(layout.most_bytes() == most);
      // The first of the stages of one kind is played, which has the most micro-batches in flight.
      for (const int stage : {0, 1, static_cast<int>(planned.size()) - 1}) {
        if (stage >= static_cast<int>(planned.size())) continue;
        CAPTURE(stage);
        CHECK(layout.stage(stage).memory.total() == planned[static_cast<std::size_t>(stage)].total());
        CHECK(layout.stage(stage).memory.host == planned[static_cast<std::size_t>(stage)].host);
      }
    }
  }
}

TEST_CASE("step time: divided gradients are sent in every micro-batch") {
  Hardware slow = a100_machine(1e8);
  slow.used.copies_overlap = false;
  const auto seconds = [&](const char* share, std::int64_t micro_batches, std::int64_t layers) {
    Config config = small_model();
    config.model.layers = layers;
    config.optimizer.share = share;
    config.train.micro_batch_size = 1;
    config.train.global_batch_size = 8 * micro_batches;
    return step_time(record_layout(resolved(config, 8), 8), slow).seconds;
  };
  const auto another = [&](const char* share, std::int64_t layers = 2) {
    return (seconds(share, 8, layers) - seconds(share, 4, layers)) / 4;
  };
  const double numbers = 2.0 * (12 * 256 * 256 + 13 * 256), bytes = numbers * sizeof(float) * 7 / 8;
  CHECK(another("gradients") - another("state") ==
        Approx(bytes / (slow.node.bandwidth * slow.used.node_efficiency)).epsilon(0.05));
  // Weights of two layers, 2 bytes each, stay whole from one micro-batch to the next; of four two are gathered for
  // each pass.
  const auto two_more = [&](const char* share) { return another(share, 4) - another(share, 2); };
  CHECK(two_more("weights") - two_more("gradients") ==
        Approx(bytes / (slow.node.bandwidth * slow.used.node_efficiency)).epsilon(0.05));
}

TEST_CASE("search: a growing batch is planned for all its sizes and steps") {
  Config config = small_model();
  config.parallel.pipeline = 4;
  config.parallel.schedule = "interleaved";
  config.parallel.virtual_stages = 2;
  config.train.batch_ramp_up = {.start = 6, .increment = 2, .samples = 200};
  const Config grows = resolved(config, 4);
  const RecordedLayout layout = record_layout(grows, 8);
  for (const int stage : {0, 1, 3}) {  // the third is timed as the second, which holds more
    const MemoryPlan plan = plan_memory(grows, grid_shape(grows), {.pipeline = stage});
    CHECK(layout.stage(stage).memory.total() == plan.total());
  }
  config.train.batch_ramp_up = {};
  const RecordedLayout steady = record_layout(resolved(config, 4), 8);
  CHECK(layout.most_bytes() > steady.most_bytes());  // six micro-batches are no multiple of four stages

  const Hardware hardware = a100_machine();
  const double step = step_time(steady, hardware).seconds;
  CHECK(step_time(layout, hardware).seconds == Approx(step));
  CHECK(run_seconds(steady, hardware) == Approx(100 * step));
  double seconds = 0;
  const RunSchedule schedule(grows);
  for (std::int64_t done = 0; done < 100; ++done) {
    RecordedLayout one = steady;
    one.set_micro_batches(static_cast<int>(schedule.step_after(done).samples));
    seconds += step_time(one, hardware).seconds;
  }
  CHECK(run_seconds(layout, hardware) == Approx(seconds));
  CHECK(seconds < 95 * step);
}

TEST_CASE("search: equal stages have the schedule's bubble and parts add up") {
  Config config = small_model();
  config.model.vocab_size = config.model.vocab_multiple = 8;  // next to nothing before and after the layers
  config.parallel.pipeline = 4;
  config.train.micro_batch_size = 4;
  const RecordedLayout layout = record_layout(resolved(config, 4), 8);
  CHECK(layout.played.size() == 3);  // first, middle, last
  Hardware hardware = a100_machine(1e15);
  hardware.used.launch = 0;  // the ends of the model have few operations more, but some
  const StepTime time = step_time(layout, hardware);
  CHECK(time.bubble == Approx(3.0 / 11).epsilon(0.1));
  const double parts = time.costs.total() + time.idle_seconds + time.sums_seconds + time.update_seconds;
  CHECK(parts == Approx(time.seconds));
  CHECK(time.idle_seconds > 0);
  CHECK(time.tokens_per_second == Approx(32 * 128 / time.seconds));
}

TEST_CASE("search: nodes of one rank gather parts of outputs over the network") {
  Config config = small_model();
  config.parallel.tensor = config.parallel.pipeline = 2;
  const RecordedLayout layout = record_layout(resolved(config, 4), 1);
  Hardware hardware = a100_machine();
  hardware.ranks_per_node = 1;
  hardware.node = {};
  hardware.used.scatter_gather = false;
  const double whole = step_time(layout, hardware).seconds;
  hardware.used.scatter_gather = true;  // half of it is sent, and the other half then gathered
  CHECK(step_time(layout, hardware).seconds == Approx(whole));
}

TEST_CASE("a machine that is twice as fast in everything takes half the time") {
  Config config = small_model();
  config.parallel.tensor = config.parallel.pipeline = 2;
  const RecordedLayout layout = record_layout(resolved(config, 8), 4);
  Hardware slow = a100_machine(), fast = slow;
  fast.flops_16bit *= 2;
  fast.flops_32bit *= 2;
  fast.memory_bandwidth *= 2;
  for (LinkLevel* level : {&fast.node, &fast.network}) {
    level->bandwidth *= 2;
    level->latency /= 2;
  }
  fast.used.launch /= 2;
  CHECK(step_time(layout, slow).seconds == Approx(2 * step_time(layout, fast).seconds));
}

TEST_CASE("search: finds the fastest of all layouts but plays few of them") {
  for (const double bandwidth : {1e9, 1e12}) {
    CAPTURE(bandwidth);
    const Hardware hardware = a100_machine(bandwidth);
    const SearchResult all = search_layouts(small_model(), hardware, {.ranks = 8, .results = 100000});
    const SearchResult few = search_layouts(small_model(), hardware, {.ranks = 8, .results = 3});
    CHECK(all.timed + all.too_large == all.candidates);
    CHECK(few.candidates == all.candidates);
    REQUIRE(few.best.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) CHECK(few.best[i].time.seconds == Approx(all.best[i].time.seconds));
  }
}

TEST_CASE("search: slow links keep a small model whole and little memory cuts it") {
  const Config config = small_model();
  const SearchResult slow = search_layouts(config, a100_machine(1e9), {.ranks = 8});
  CHECK(slow.best.front().config.parallel.tensor == 1);
  Hardware narrow = a100_machine();
  narrow.reserved_bytes = 0;
  narrow.memory_bytes = 30e6;  // the model's states alone are 18 bytes for each of 6.6 million parameters
  const SearchResult divided = search_layouts(config, narrow, {.ranks = 8});
  CHECK(divided.too_large > 0);
  for (const PlannedLayout& layout : divided.best) CHECK(layout.recorded.most_bytes() <= 30000000);
  narrow.memory_bytes = 1e6;
  CHECK_THROWS_WITH(search_layouts(config, narrow, {.ranks = 8}), Contains("no layout of 8 ranks fits"));
  CHECK_THROWS_WITH(search_layouts(config, a100_machine(), {.ranks = 7 * 11}),
                    Contains("no layout of 77 ranks is allowed for this run"));
}

TEST_CASE("search: context ranks are tried as far as the run has them") {
  Config config = small_model();
  const SearchSettings settings{.ranks = 8, .results = 100000};
  const auto most_of = [&] {
    std::int64_t most = 1;
    for (const PlannedLayout& layout : search_layouts(config, a100_machine(), settings).best) {
      most = std::max(most, layout.config.parallel.context);
    }
    return most;
  };
  CHECK(most_of() == 1);
  config.parallel.context = 4;
  CHECK(most_of() == 4);
  // Memory as planned, to the byte.
  config.parallel.tensor = 2;
  config.model.attention_dropout = 0;
  for (const char* const exchange : {"auto", "gathered", "ulysses", "ring"}) {
    CAPTURE(exchange);
    config.parallel.context_exchange = exchange;
    const Config divided = resolved(config, 8);
    CHECK(record_layout(divided, 8).most_bytes() == plan_memory(divided, grid_shape(divided), {}).total());
  }
}

TEST_CASE("search: copies share within a node where the network is slow") {
  Config config = small_model();
  config.parallel.data = 16;
  config.optimizer.share = "weights";
  Hardware nodes = a100_machine();  // 8 ranks each
  nodes.network.bandwidth = 1e8;
  config.optimizer.share_within = 8;
  const PlannedLayout within = plan_layout(config, nodes, {.ranks = 16});
  config.optimizer.share_within = 0;
  const PlannedLayout among_all = plan_layout(config, nodes, {.ranks = 16});
  CHECK(within.time.seconds < 0.8 * among_all.time.seconds);
  CHECK(within.recorded.most_bytes() > among_all.recorded.most_bytes());
  std::size_t sets = 0;
  for (const PlannedLayout& layout : search_layouts(small_model(), nodes, {.ranks = 16, .results = 100000}).best) {
    const Config& found = layout.recorded.config;
    if (found.optimizer.share_within == 0) continue;
    CHECK(found.optimizer.share_within == 8 / found.parallel.tensor);
    if (++sets > 5) continue;
    CHECK(layout.recorded.most_bytes() == plan_memory(found, grid_shape(found), {}).total());
  }
  CHECK(sets > 5);
}

TEST_CASE("search: the result is an input file that parses with the printed plan") {
  const Hardware hardware = a100_machine();
  const SearchResult result = search_layouts(small_model(), hardware, {.ranks = 16});
  const std::string text = describe_search(result, hardware, 16);
  CHECK(text.find("the second takes") != std::string::npos);
  const PlannedLayout& best = result.best.front();
  const PlannedLayout again = plan_layout(best.config, hardware, {.ranks = 16});
  CHECK(again.time.seconds == Approx(best.time.seconds));
  CHECK(again.recorded.most_bytes() == best.recorded.most_bytes());
  CHECK(explain_layout(again, hardware).find("where the step goes") != std::string::npos);
  CHECK(layouts_as_json(result.best, hardware, 16).find("\"step_seconds\"") != std::string::npos);
}

TEST_CASE("a trillion parameters on 3072 ranks are planned in seconds") {
  const Config config = parse_config(MEGATRON_SOURCE "/inputs/scaling_1t.toml");
  const std::clock_t start = std::clock();  // counts this program's work, not the machine's
  const SearchResult result = search_layouts(config, read_hardware("a100-sxm"), {.ranks = 3072});
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  CHECK(result.best.size() == 10);
  CHECK(seconds < 60);  // five on a slow core: docs/planner.md
  for (std::size_t i = 1; i < result.best.size(); ++i) {
    CHECK(result.best[i - 1].time.seconds <= result.best[i].time.seconds);
  }
}
