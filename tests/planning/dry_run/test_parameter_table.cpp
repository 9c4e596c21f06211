// The table of parameters: rows for a tiny GPT worked out by hand, totals and orders for every family.
#include "planning/dry_run/parameter_table.h"

#include <sstream>

#include "planning/dry_run/group_members.h"
#include "planning/dry_run/plan_text.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "training/optimizer/parameter_groups.h"
#include "training/step/grid.h"
#include "training/step/memory_layout.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// The rest of a parameter's line; words separated by one space.
std::string row_of(const std::string& table, const std::string& name) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + " ")) continue;
    std::istringstream words(line.substr(name.size()));
    std::string joined;
    for (std::string word; words >> word;) joined += (joined.empty() ? "" : " ") + word;
    return joined;
  }
  return "not there";
}

std::vector<std::string> names_of(const std::vector<ParameterRow>& rows) {
  std::vector<std::string> names;
  for (const ParameterRow& row : rows) names.push_back(row.record.name);
  return names;
}

std::vector<int> stages_of(const std::vector<ParameterRow>& rows, const std::string& name) {
  for (const ParameterRow& row : rows) {
    if (row.record.name == name) return row.stages;
  }
  return {};
}

constexpr const char* kTiedGpt = R"(
name                              shape      cut                   stage  update  role       decay  copies  elements
embedding.word.weight             [64, 32]   rows over tensor      0, 1   adamw   embedding  yes    1           2048
embedding.position.weight         [16, 32]   whole                 0      adamw   embedding  yes    1            512
layers.0.attention_norm.weight    [32]       whole                 0      adamw   norm       no     1             32
layers.0.attention_norm.bias      [32]       whole                 0      adamw   norm       no     1             32
layers.0.attention.query.weight   [32, 32]   rows over tensor      0      adamw   matrix     yes    1           1024
layers.0.attention.key.weight     [32, 32]   rows over tensor      0      adamw   matrix     yes    1           1024
layers.0.attention.value.weight   [32, 32]   rows over tensor      0      adamw   matrix     yes    1           1024
layers.0.attention.query.bias     [32]       elements over tensor  0      adamw   vector     no     1             32
layers.0.attention.key.bias       [32]       elements over tensor  0      adamw   vector     no     1             32
layers.0.attention.value.bias     [32]       elements over tensor  0      adamw   vector     no     1             32
layers.0.attention.output.weight  [32, 32]   columns over tensor   0      adamw   matrix     yes    1           1024
layers.0.mlp_norm.weight          [32]       whole                 0      adamw   norm       no     1             32
layers.0.mlp_norm.bias            [32]       whole                 0      adamw   norm       no     1             32
layers.0.mlp.up.weight            [128, 32]  rows over tensor      0      adamw   matrix     yes    1           4096
layers.0.mlp.down.weight          [32, 128]  columns over tensor   0      adamw   matrix     yes    1           4096
layers.1.attention_norm.weight    [32]       whole                 1      adamw   norm       no     1             32
layers.1.attention_norm.bias      [32]       whole                 1      adamw   norm       no     1             32
layers.1.attention.query.weight   [32, 32]   rows over tensor      1      adamw   matrix     yes    1           1024
layers.1.attention.key.weight     [32, 32]   rows over tensor      1      adamw   matrix     yes    1           1024
layers.1.attention.value.weight   [32, 32]   rows over tensor      1      adamw   matrix     yes    1           1024
layers.1.attention.query.bias     [32]       elements over tensor  1      adamw   vector     no     1             32
layers.1.attention.key.bias       [32]       elements over tensor  1      adamw   vector     no     1             32
layers.1.attention.value.bias     [32]       elements over tensor  1      adamw   vector     no     1             32
layers.1.attention.output.weight  [32, 32]   columns over tensor   1      adamw   matrix     yes    1           1024
layers.1.mlp_norm.weight          [32]       whole                 1      adamw   norm       no     1             32
layers.1.mlp_norm.bias            [32]       whole                 1      adamw   norm       no     1             32
layers.1.mlp.up.weight            [128, 32]  rows over tensor      1      adamw   matrix     yes    1           4096
layers.1.mlp.down.weight          [32, 128]  columns over tensor   1      adamw   matrix     yes    1           4096
final_norm.weight                 [32]       whole                 1      adamw   norm       no     1             32
final_norm.bias                   [32]       whole                 1      adamw   norm       no     1             32
total of 30 trained tensors                                                                                    27648
)";

}  // namespace

TEST_CASE("parameter table: a GPT with a tied table on tensor 2, pipeline 2") {
  Config config = config_of({.tensor = 2, .pipeline = 2});
  config.model.layers = 2;
  config.model.bias = {true, false, false};
  CHECK("\n" + parameter_table(config) == kTiedGpt);
}

TEST_CASE("parameter table: every family has the plan's total and one order") {
  const Layout layout = GENERATE(
      Layout{.tensor = 2, .data = 2, .pipeline = 2, .share = "state"},
      Layout{.tensor = 4, .pipeline = 2, .sequence_parallel = true, .variant = like_llama},
      Layout{.pipeline = 2, .schedule = "interleaved", .virtual_stages = 2, .compute = "bf16"},
      Layout{.tensor = 2, .pipeline = 2, .variant = like_bert},
      Layout{.pipeline = 4, .share = "state", .variant = like_megatron_bert},
      Layout{.tensor = 2, .pipeline = 4, .variant = like_t5}, Layout{.pipeline = 2, .variant = like_megatron_t5},
      Layout{.data = 4, .pipeline = 2, .variant = with_balanced_experts, .expert = 4},
      Layout{.tensor = 2, .data = 2, .sequence_parallel = true, .variant = with_shared_experts, .expert = 2},
      Layout{.data = 2, .pipeline = 2, .variant = with_residual_experts, .expert = 2});
  CAPTURE(layout.tensor, layout.data, layout.pipeline, layout.expert);
  const Config config = config_of(layout);
  const std::vector<ParameterRow> rows = parameter_rows(config);
  std::int64_t elements = 0, counted = 0;
  for (const ParameterRow& row : rows) {
    CAPTURE(row.record.name);
    CHECK_FALSE(row.stages.empty());
    if (row.trained) elements += row.record.global_shape.elements();
  }
  for (const MemoryPlan& plan : plan_stages(config, grid_shape(config))) {
    counted += plan.stage_parameters;
    CHECK(plan.stage_numbers == 3 * plan.stage_parameters);  // with AdamW's two states
    CHECK(plan.updated_states == 2 * plan.updated);
  }
  CHECK(elements == counted);
  CHECK(names_of(rows) == names_of(parameter_rows(config_of({.variant = layout.variant}))));
  CHECK(parameter_table(config).ends_with(fmt::format(" {}\n", counted)));
}

TEST_CASE("parameter table: keys that ranks share, bf16, a divided optimizer") {
  const std::string table = parameter_table(config_of(
      {.tensor = 4, .data = 2, .sequence_parallel = true, .share = "state", .compute = "bf16", .variant = like_llama}));
  CHECK(row_of(table, "name") == "shape cut values stage update role decay copies state elements");
  CHECK(row_of(table, "layers.0.attention.query.weight") ==
        "[32, 32] rows over tensor bf16 0 adamw matrix yes 2 1/2 1024");
  CHECK(row_of(table, "layers.0.attention.key.weight") ==
        "[16, 32] rows over tensor, 2 ranks each bf16 0 adamw matrix yes 2 1/2 512");
  CHECK(row_of(table, "layers.0.attention_norm.weight") == "[32] whole bf16 0 adamw norm no 2 1/2 32");
}

TEST_CASE("parameter table: experts by expert rank, and biases that none trains") {
  const std::string table = parameter_table(config_of({.tensor = 2,
                                                       .data = 4,
                                                       .sequence_parallel = true,
                                                       .share = "state",
                                                       .optimizer = "sgd",
                                                       .variant = with_balanced_experts,
                                                       .expert = 2}));
  const std::string last = "layers.1.moe.experts.3";
  CHECK(row_of(table, last + ".up.weight") ==
        "[48, 32] experts over expert, rows over tensor 0 sgd matrix yes 2 1/2 1536");
  CHECK(row_of(table, last + ".up.bias") == "[48] experts over expert, elements over tensor 0 sgd vector no 2 1/2 48");
  CHECK(row_of(table, last + ".down.bias") == "[32] experts over expert 0 sgd vector no 2 1/2 32");
  CHECK(row_of(table, "layers.1.moe.router.weight") == "[4, 32] whole 0 sgd router yes 4 1/4 128");
  CHECK(row_of(table, "layers.1.moe.router.choice_bias") == "[4] whole 0 none router no 4 4");
}

TEST_CASE("parameter table: Muon has hidden matrices, AdamW all others") {
  const std::string table = parameter_table(config_of({.optimizer = "muon", .variant = with_experts}));
  CHECK(row_of(table, "layers.0.attention.query.weight") == "[32, 32] whole 0 muon matrix yes 1 1024");
  CHECK(row_of(table, "layers.1.moe.experts.3.up.weight").find(" muon matrix ") != std::string::npos);
  CHECK(row_of(table, "layers.1.moe.router.weight").find(" adamw router ") != std::string::npos);
  CHECK(row_of(table, "layers.0.attention.query.bias").find(" adamw vector ") != std::string::npos);
  CHECK(row_of(table, "layers.0.attention_norm.weight").find(" adamw norm ") != std::string::npos);
  // One of the copies keeps the state of what is updated as a whole.
  const std::string shared = parameter_table(config_of({.data = 2, .share = "state", .optimizer = "muon"}));
  CHECK(row_of(shared, "layers.0.attention.query.weight") == "[32, 32] whole 0 muon matrix yes 2 one of 2 1024");
  CHECK(row_of(shared, "embedding.word.weight").find(" 2 1/2 ") != std::string::npos);
}

TEST_CASE("parameter table: stages by chunk and of tables that several hold") {
  const std::vector<ParameterRow> chunks =
      parameter_rows(config_of({.pipeline = 2, .schedule = "interleaved", .virtual_stages = 2}));
  for (int layer = 0; layer < 4; ++layer) {
    CHECK(stages_of(chunks, fmt::format("layers.{}.mlp.up.weight", layer)) == std::vector<int>{layer % 2});
  }
  const std::vector<ParameterRow> t5 = parameter_rows(config_of({.pipeline = 4, .variant = like_t5}));
  CHECK(stages_of(t5, "embedding.word.weight") == std::vector<int>{0, 3});
  CHECK(stages_of(t5, "relative.encoder.weight") == std::vector<int>{0, 1, 2});
  CHECK(stages_of(t5, "relative.decoder.weight") == std::vector<int>{3});
}

TEST_CASE("parameter table: groups with their rule, factor and decay") {
  Layout layout{.tensor = 2, .pipeline = 2};
  layout.groups = {group_with_rule({"layers.1.*.weight", "*position*"}, "sgd"),
                   {.roles = {"vector"}, .names = {}, .learning_rate_factor = 0.5, .keys = {"weight_decay"}},
                   {.roles = {"embedding"}, .names = {}, .keys = {"weight_decay"}}};
  layout.groups[1].values.weight_decay = 0.25;
  layout.groups[2].values.weight_decay = 0;
  const Config config = config_of(layout);
  const std::string table = parameter_table(config);
  CHECK(row_of(table, "name") == "shape cut stage group update factor role decay copies elements");
  CHECK(row_of(table, "embedding.word.weight") == "[64, 32] rows over tensor 0, 1 2 adamw embedding no 1 2048");
  CHECK(row_of(table, "embedding.position.weight") == "[16, 32] whole 0 0 sgd embedding yes 1 512");
  CHECK(row_of(table, "layers.1.attention_norm.weight") == "[32] whole 0 0 sgd norm no 1 32");
  CHECK(row_of(table, "layers.1.mlp.up.bias") == "[128] elements over tensor 0 1 adamw 0.5 vector 0.25 1 128");
  CHECK(row_of(table, "layers.2.mlp.up.weight") == "[128, 32] rows over tensor 1 adamw matrix yes 1 4096");
  const std::vector<MemoryPlan> plans = plan_stages(config, grid_shape(config));
  std::int64_t with_sgd = 0;  // elements of stage 0 that have one state instead of two
  for (const ParameterRow& row : parameter_rows(config)) {
    const bool sgd = ParameterGroups(config).of(row.record).rule->name == "sgd";
    if (sgd && row.stages.front() == 0) with_sgd += row.record.global_shape.elements();
  }
  CHECK(with_sgd > 0);
  CHECK(plans[0].stage_numbers == 3 * plans[0].stage_parameters - with_sgd);
  CHECK(plans[1].stage_numbers == 3 * plans[1].stage_parameters);
}

TEST_CASE("parameter table: factors by the width, times those of groups") {
  Layout layout{.variant = with_experts};
  layout.groups = {{.roles = {"norm", "matrix"}, .names = {"layers.0.*"}, .learning_rate_factor = 0.5}};
  Config config = config_of(layout);
  config.optimizer.scaling = "mup";
  config.model.base_hidden_size = 8;
  const std::string table = parameter_table(config);
  CHECK(row_of(table, "name") == "shape cut stage group update factor role decay copies elements");
  CHECK(row_of(table, "layers.0.attention.query.weight") == "[32, 32] whole 0 0 adamw 0.125 matrix yes 1 1024");
  CHECK(row_of(table, "layers.0.attention_norm.weight") == "[32] whole 0 0 adamw 0.5 norm no 1 32");
  CHECK(row_of(table, "layers.1.attention.query.weight") == "[32, 32] whole 0 adamw 0.25 matrix yes 1 1024");
  CHECK(row_of(table, "layers.1.moe.router.weight") == "[4, 32] whole 0 adamw 0.25 router yes 1 128");
  CHECK(row_of(table, "embedding.word.weight") == "[64, 32] whole 0 adamw embedding yes 1 2048");
}

TEST_CASE("parameter groups: told by selection, and refused without members") {
  Layout layout{.tensor = 2, .pipeline = 2};
  CHECK(describe_groups(config_of(layout)).empty());
  layout.groups = {group_with_rule({"layers.*.mlp.up.weight"}, "sgd"),
                   {.roles = {"vector", "embedding"}, .names = {}, .learning_rate_factor = 0.5}};
  CHECK(describe_groups(config_of(layout)) ==
        R"(group 0   names = ["layers.*.mlp.up.weight"]: sgd, momentum 0.9, weight decay 0.1, 4 tensors, 16384 elements
group 1   roles = ["vector", "embedding"]: adamw, 0.5 × learning rate, weight decay 0.1 of 2, 26 tensors, 3712 elements
no group  adamw, weight decay 0.1 of 20, 38 tensors, 33344 elements
)");
  layout.groups = {group_with_rule({"layers.4.*"}, "sgd")};  // there are four layers
  require_error(ErrorKind::configuration,
                {"optimizer.groups[0] selects no parameter of the model: names = [\"layers.4.*\"]"},
                [&] { describe_groups(config_of(layout)); });
  layout.groups = {group_with_rule({"*"}, "sgd"), {.roles = {"norm"}, .names = {}}};
  require_error(ErrorKind::configuration, {"optimizer.groups[1] has no parameter", "roles = [\"norm\"]"},
                [&] { describe_groups(config_of(layout)); });
}

TEST_CASE("parameter table: a grid too large to list is refused") {
  require_error(ErrorKind::configuration, {"65536 ranks in 65536 pipeline stages", "more than can be listed"},
                [] { parameter_rows(config_of({.pipeline = 65536})); });
}
