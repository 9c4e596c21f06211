// Interrupting a run must not show in its numbers, whatever the layout and wherever the break: real checkpoints and
// data, with ranks as threads so that all combinations are affordable.
#include "support/catch.h"
#include "training/loop/resumed_run.h"

using namespace megatron;
using namespace megatron::test;

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
  // Equal parts of AdamW's states are not those of whole matrices, nor the other way round.
  const Config equal_parts = with_mode(config, {"", 1, 2, 1, "state"});
  Config matrices = equal_parts;
  matrices.optimizer.name = "muon";
  train(equal_parts, "", folder.file("equal parts"));
  train(matrices, "", folder.file("matrices"));
  require_error(ErrorKind::checkpoint, {"optimizer.name = \"adamw\", this run has \"muon\"", "initialize_from"},
                [&] { train(matrices, at(folder.file("equal parts"), 2), folder.file("other")); });
  require_error(ErrorKind::checkpoint, {"optimizer.name = \"muon\", this run has \"adamw\"", "initialize_from"},
                [&] { train(equal_parts, at(folder.file("matrices"), 2), folder.file("other")); });
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
  require_no_trace_of_breaks(with_mode(grouped, {"", 1, 2, 2, "state"}), folder, "groups, distributed");
  require_no_trace_of_breaks(with_mode(grouped, {"", 2, 1, 2, "none", "bf16"}), folder, "groups");
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
  Config orthogonal = plain;
  orthogonal.optimizer_groups = {group_of({"matrix"}, "muon")};
  require_error(ErrorKind::checkpoint, {"optimizer.name = \"adamw\" for layers.0.", "\"muon\" by optimizer.groups[0]"},
                [&] { train(orthogonal, at(folder.file("plain"), 2), other); });
  Config still = grouped, moving = grouped;
  still.optimizer_groups[0].keys = moving.optimizer_groups[0].keys = {"momentum", "name"};
  still.optimizer_groups[0].values.momentum = 0;
  train(still, "", folder.file("still"));
  require_error(ErrorKind::checkpoint,
                {"states [], and this run continues [m] of embedding.word.weight", "optimizer.momentum"},
                [&] { train(moving, at(folder.file("still"), 2), other); });
}
