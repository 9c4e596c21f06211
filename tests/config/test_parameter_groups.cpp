// optimizer.groups: reading, printing, what is refused; the patterns of names.
#include "config/schema/parameter_groups.h"

#include "config/rules/rules.h"
#include "config/schema/print.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string problem_of_groups(const std::string& groups, std::vector<std::string> more = {}) {
  more.push_back("optimizer.groups=" + groups);
  return error_of([&] { parse_small(more); });
}

}  // namespace

TEST_CASE("optimizer.groups: both notations are read and the print reads back", "[config]") {
  const Config config =
      parse_small({R"(optimizer.groups=[{roles = ["embedding", "head"], learning_rate_factor = 0.5, weight_decay = 0},)"
                   R"({names = ["layers.*.bias", "a\"b"], name = "sgd", momentum = 0.25},)"
                   R"({roles = ["matrix"], names = ["*"], epsilon = 1e-10, betas = [0.8, 0.9]}])"});
  ParameterGroupConfig tables{.roles = {"embedding", "head"}, .names = {}, .learning_rate_factor = 0.5};
  tables.keys = {"weight_decay"};
  tables.values.weight_decay = 0;
  ParameterGroupConfig biases{.roles = {}, .names = {"layers.*.bias", "a\"b"}};
  biases.keys = {"momentum", "name"};
  biases.values.name = "sgd";
  biases.values.momentum = 0.25;
  ParameterGroupConfig matrices{.roles = {"matrix"}, .names = {"*"}};
  matrices.keys = {"betas", "epsilon"};
  matrices.values.beta1 = 0.8;
  matrices.values.beta2 = 0.9;
  matrices.values.epsilon = 1e-10;
  CHECK((config.optimizer_groups == std::vector<ParameterGroupConfig>{tables, biases, matrices}));
  CHECK(config.optimizer == OptimizerConfig{});
  CHECK((parse_config_text(print_config(config), "printed.toml").optimizer_groups == config.optimizer_groups));
  CHECK(print_value(*find_key("optimizer", "groups"), config) ==
        R"([{roles = ["embedding", "head"], learning_rate_factor = 0.5, weight_decay = 0.0}, )"
        R"({names = ["layers.*.bias", "a\"b"], momentum = 0.25, name = "sgd"}, )"
        R"({roles = ["matrix"], names = ["*"], betas = [0.8, 0.9], epsilon = 1e-10}])");
  const std::string text = small_file() + "[[optimizer.groups]]\nroles = [\"norm\"]\nlearning_rate_factor = 2\n";
  const Config of_tables = parse_config_text(text, "f.toml");
  REQUIRE(of_tables.optimizer_groups.size() == 1);
  CHECK(of_tables.optimizer_groups[0].learning_rate_factor == 2);
  CHECK(parse_small({"optimizer.groups=[]"}).optimizer_groups.empty());
  CHECK(print_config(parse_small({})).find("groups") == std::string::npos);
}

TEST_CASE("optimizer.groups: --set replaces the file's, keys not given follow", "[config]") {
  const std::string text = small_file() + "[optimizer]\nepsilon = 1e-6\n[[optimizer.groups]]\nroles = [\"norm\"]\n";
  const Config config = parse_config_text(
      text, "f.toml", {R"(optimizer.groups=[{names = ["x"], weight_decay = 0.3}])", "optimizer.betas=[0.5, 0.6]"});
  REQUIRE(config.optimizer_groups.size() == 1);
  const OptimizerConfig settings = settings_of(config.optimizer, config.optimizer_groups[0]);
  OptimizerConfig expected = config.optimizer;
  expected.weight_decay = 0.3;
  CHECK(settings == expected);
  CHECK(settings.epsilon == 1e-6);
  CHECK(settings.beta2 == 0.6);
}

TEST_CASE("optimizer.groups: what is wrong is said with its place", "[config]") {
  struct Case {
    const char *groups, *message;
  };
  for (const auto& [groups, message] :
       {Case{"3",
             "optimizer.groups: expected array of tables {roles, names, name, learning_rate_factor, weight_decay, "
             "...}, got"},
        Case{R"(["x"])", "optimizer.groups[0]: expected table"},
        Case{"[{weight_decay = 0.1}]", "optimizer.groups[0]: needs roles or names"},
        Case{R"([{roles = [], names = []}])", "optimizer.groups[0]: needs roles or names"},
        Case{R"([{roles = "matrix"}])", "optimizer.groups[0].roles: expected array of strings, got string"},
        Case{R"([{roles = ["matrix", "matrices"]}])",
             "optimizer.groups[0].roles[1]: \"matrices\" is not one of \"matrix\""},
        Case{R"([{roles = ["embeding"]}])", "did you mean \"embedding\"?"},
        Case{R"([{names = [3]}])", "optimizer.groups[0].names[0]: expected string, got integer"},
        Case{R"([{names = ["a", ""]}])", "optimizer.groups[0].names[1]: is empty"},
        Case{R"([{names = ["a"]}, {names = ["b"], name = "sdg"}])",
             "optimizer.groups[1].name = \"sdg\" is not one of \"adamw\", \"sgd\""},
        Case{R"([{names = ["a"], learning_rate_facter = 1}])", "did you mean 'learning_rate_factor'?"},
        Case{R"([{names = ["a"], learning_rate = 0.1}])",
             "a group has roles, names, learning_rate_factor, name, betas"},
        Case{R"([{names = ["a"], clip_grad_norm = 1}])", "optimizer.groups[0]: unknown key 'clip_grad_norm'"},
        Case{R"([{names = ["a"], learning_rate_factor = -1}])", "learning_rate_factor: -1 is out of range: at least 0"},
        Case{R"([{names = ["a"], learning_rate_factor = nan}])", "learning_rate_factor: nan is out of range"},
        Case{R"([{names = ["a"], learning_rate_factor = 1e-60}])", "learning_rate_factor: 1e-60 is 0 in fp32"},
        Case{R"([{names = ["a"], learning_rate_factor = "1"}])", "learning_rate_factor: expected number, got string"},
        Case{R"([{names = ["a"], weight_decay = -0.1}])", "optimizer.groups[0].weight_decay = -0.1 is out of range"},
        Case{R"([{names = ["a"], betas = [0.9]}])", "optimizer.groups[0].betas: expected array of two numbers"},
        Case{R"([{names = ["a"], momentum = 0.9}])",
             "optimizer.groups[0].momentum belongs to name = \"sgd\" or \"muon\", not \"adamw\""},
        Case{R"([{names = ["a"], name = "sgd", epsilon = 1e-6}])", "optimizer.groups[0].epsilon belongs to name ="}}) {
    CAPTURE(groups);
    CHECK_THAT(problem_of_groups(groups), Contains(message));
  }
}

TEST_CASE("optimizer.groups: a momentum that is not given is the group's rule's", "[config]") {
  const std::string groups = R"(optimizer.groups=[{roles = ["matrix"], name = "muon"}, {roles = ["norm"]}])";
  const auto momenta_of = [](const Config& config) {
    std::vector<double> momenta = {*config.optimizer.momentum};
    for (const ParameterGroupConfig& group : config.optimizer_groups) {
      momenta.push_back(settings_of(config.optimizer, group).momentum_or_default());
    }
    return momenta;
  };
  const Config sgd = resolved({"optimizer.name=sgd", "optimizer.share=none", groups});
  CHECK(momenta_of(sgd) == std::vector<double>{0.9, 0.95, 0.9});
  CHECK(sgd.optimizer_groups[0].keys == std::vector<std::string>{"momentum", "name"});
  CHECK(sgd.optimizer_groups[1].keys.empty());
  Config printed = parse_config_text(print_config(sgd), "printed.toml");
  resolve(printed, 1, &kData);
  CHECK(printed == sgd);
  const Config given = resolved({"optimizer.name=sgd", "optimizer.momentum=0.8", groups});
  CHECK(momenta_of(given) == std::vector<double>{0.8, 0.8, 0.8});
  CHECK(given.optimizer_groups[0].keys == std::vector<std::string>{"name"});
  // AdamW has none, and a group of SGD its own, which need not be said.
  const Config adamw = resolved({R"(optimizer.groups=[{roles = ["norm"], name = "sgd"}])"});
  CHECK(momenta_of(adamw) == std::vector<double>{0.9, 0.9});
  CHECK(adamw.optimizer_groups[0].keys == std::vector<std::string>{"name"});
}

TEST_CASE("optimizer.groups: a decay in proportion needs one that is not 0", "[config]") {
  const std::vector<std::string> grows = {"optimizer.weight_decay=0", "optimizer.weight_decay_schedule=linear",
                                          "optimizer.weight_decay_end=0.1"};
  CHECK_THAT(problem_of_groups(R"([{names = ["a"], weight_decay = 0.1}])", grows),
             Contains("optimizer.groups[0].weight_decay = 0.1 is to change in proportion to optimizer.weight_decay"));
  CHECK(problem_of_groups(R"([{names = ["a"], weight_decay = 0.0}])", grows).empty());
  CHECK(problem_of_groups(R"([{names = ["a"], weight_decay = 0.1}])", {"optimizer.weight_decay=0"}).empty());
}

TEST_CASE("optimizer.groups: a star of a pattern is any characters", "[config]") {
  struct Case {
    const char *name, *pattern;
    bool like;
  };
  for (const auto& [name, pattern, like] :
       {Case{"layers.7.mlp.up.weight", "layers.*.mlp.*", true}, Case{"layers.7.mlp.up.weight", "layers.7.*", true},
        Case{"layers.17.mlp.up.weight", "layers.7.*", false}, Case{"layers.7.mlp.up.weight", "*.weight", true},
        Case{"layers.7.mlp.up.weight", "mlp", false}, Case{"layers.7.mlp.up.weight", "*mlp*", true},
        Case{"layers.7.mlp.up.weight", "*.bias", false}, Case{"a", "a", true}, Case{"a", "*", true},
        Case{"a", "**", true}, Case{"a", "a*a", false}, Case{"aa", "a*a", true}, Case{"abcbd", "a*b*bd", true},
        Case{"abd", "a*b*bd", false}, Case{"a.b", "a?b", false}}) {
    CAPTURE(name, pattern);
    CHECK(is_like(name, pattern) == like);
  }
}
