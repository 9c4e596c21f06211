// A model with experts through the programs: on expert ranks, stopped and resumed on others, cut and merged, verified,
// exported to Hugging Face's form and back, and used to generate text.
#include <nlohmann/json.hpp>

#include "faults/checks.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace {

// Llama's form, so that it has a place in Hugging Face's; every token finds room.
const Settings kExperts = {"moe.experts=4",
                           "moe.every=1",
                           "moe.ffn_hidden_size=48",
                           "moe.capacity_factor=2",
                           "moe.z_coefficient=0.001",
                           "model.position_embedding=rope",
                           "model.normalization=rmsnorm",
                           "model.activation=swiglu",
                           "model.bias=false",
                           "model.hidden_dropout=0",
                           "model.attention_dropout=0"};

Settings with_experts(const Settings& more) {
  Settings all = kExperts;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

constexpr Layout kFour{.tensor = 1, .pipeline = 1, .data = 4};

}  // namespace

TEST_CASE("experts: any number of expert ranks trains and resumes the same model") {
  const TemporaryFolder folder;
  const std::string one = folder.file("one"), cube = folder.file("cube"), four = folder.file("four");
  const Settings steps = {"train.steps=6", "checkpoint.every_steps=3", "checkpoint.keep_last=0"};
  const auto settings = [&](const Settings& more) {
    Settings all = with_experts(steps);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect(training(kOneRank, one, settings({})), 0, {"as predicted, to the byte"});
  const auto terms = nlohmann::json::parse(numbers(one, "train").back()).at("losses");
  CHECK(terms.at("balance").get<double>() == Approx(1).margin(0.3));
  CHECK(terms.contains("router_z"));

  expect(training(kCube, cube, settings({"parallel.expert=2", "parallel.sequence_parallel=true"})), 0,
         {"as predicted, to the byte"});
  check_same_losses(cube, one);

  const Settings on_four = settings({"parallel.expert=4", "optimizer.share=state"});
  Settings until_three = on_four;
  until_three.emplace_back("train.stop_after=3");
  expect(training(kFour, four, until_three), 0);
  const std::string elsewhere = folder.file("elsewhere");
  std::filesystem::copy(four, elsewhere, std::filesystem::copy_options::recursive);
  expect(training(kFour, four, on_four), 0);
  check_same_losses(four, one);
  expect(training({.tensor = 1, .pipeline = 2, .data = 2}, elsewhere, settings({"parallel.expert=2"})), 0);
  check_same_losses(elsewhere, one);

  // Cut anew and merged: the same numbers as merged at once.
  const std::string saved = checkpoint(four, 3), cut = folder.file("cut");
  expect({checkpoint_program(), "merge", saved, folder.file("merged")}, 0);
  expect({checkpoint_program(), "reshape", saved, cut, "--tensor", "2", "--pipeline", "2"}, 0);
  expect({checkpoint_program(), "merge", cut, folder.file("merged again")}, 0);
  expect({checkpoint_program(), "diff", folder.file("merged"), folder.file("merged again")}, 0);
}

TEST_CASE("experts: dense parts and router noise on any layout and when resumed") {
  const TemporaryFolder folder;
  const std::string one = folder.file("one"), cube = folder.file("cube");
  const Settings part = GENERATE(Settings{"moe.shared_experts=2", "moe.shared_gate=true", "moe.jitter=0.1"},
                                 Settings{"moe.residual=true", "moe.jitter=0.1"});
  const auto settings = [&](const Settings& more) {
    Settings all = with_experts(part);
    all.insert(all.end(), {"train.steps=4", "checkpoint.every_steps=2"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect(training(kOneRank, one, settings({})), 0, {"as predicted, to the byte"});
  expect(
      training(kCube, cube, settings({"parallel.expert=2", "parallel.sequence_parallel=true", "train.stop_after=2"})),
      0, {"as predicted, to the byte"});
  expect(training(kFour, cube, settings({"parallel.expert=4", "optimizer.share=state"})), 0);
  check_same_losses(cube, one);
}

TEST_CASE("experts without drops: same model on any layout with predicted memory") {
  const TemporaryFolder folder;
  const auto settings = [](const Settings& more) {
    Settings all =
        with_experts({"train.steps=6", "checkpoint.every_steps=3", "checkpoint.keep_last=0", "moe.drop=none"});
    std::erase(all, "moe.capacity_factor=2");
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string roomy = folder.file("roomy"), one = folder.file("one"), cube = folder.file("cube");
  const Settings on_cube = settings(
      {"parallel.expert=2", "parallel.sequence_parallel=true", "moe.buffer=1", "parallel.schedule=zero_bubble"});
  expect(training(kOneRank, roomy, with_experts({"train.steps=6"})), 0);
  expect(training(kOneRank, one, settings({})), 0, {"as predicted, to the byte"});
  check_same_losses(one, roomy);
  Settings until_three = on_cube;
  until_three.emplace_back("train.stop_after=3");
  expect(training(kCube, cube, until_three), 0);
  const std::string resumed = folder.file("resumed");
  std::filesystem::copy(cube, resumed, std::filesystem::copy_options::recursive);
  std::filesystem::remove_all(cube);
  expect(training(kCube, cube, on_cube), 0, {"as predicted, to the byte"});
  expect(training(kCube, resumed, on_cube), 0);
  check_same_losses(cube, one);
  CHECK(numbers(resumed, "train") == numbers(cube, "train"));
  expect({checkpoint_program(), "diff", resumed, cube}, 0);
}

TEST_CASE("experts: --verify, export, import and generation") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), theirs = folder.file("theirs"), back = folder.file("back");
  Command verify =
      training({.tensor = 1, .pipeline = 2, .data = 2}, folder.file("verified"), with_experts({"parallel.expert=2"}));
  verify.emplace_back("--verify");
  expect(verify, 0, {"verified: fp32"});

  expect(training({.tensor = 1, .pipeline = 1, .data = 2}, run, with_experts({"parallel.expert=2", "train.steps=2"})),
         0);
  expect({checkpoint_program(), "export", run, theirs}, 0);
  CHECK(mentions(contents_of(theirs + "/config.json"), "MixtralForCausalLM"));
  expect({checkpoint_program(), "import", theirs, back}, 0);
  const Command write = {"--prompt", "The", "--max-new-tokens", "8", "--top-k", "1"};
  const auto text_of = [&](const std::string& from) {
    Command command = {generate_program(), from};
    command.insert(command.end(), write.begin(), write.end());
    return expect(command, 0).out;
  };
  CHECK(text_of(back) == text_of(run));
}

TEST_CASE("experts: what cannot be is refused by name") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const auto refused = [&](const Layout& layout, const Settings& settings, const std::string& part) {
    expect(training(layout, run, with_experts(settings)), 2, {part});
    CHECK_FALSE(std::filesystem::exists(run));
  };
  refused(kOneRank, {"moe.top_k=5"}, "moe.top_k = 5 is above moe.experts = 4");
  refused(kOneRank, {"moe.capacity_factor=0"}, "moe.capacity_factor");
  refused(kFour, {"parallel.expert=3"}, "parallel.expert = 3");
  refused(kFour, {"moe.experts=6", "parallel.expert=4"}, "moe.experts = 6 is not divisible by parallel.expert = 4");
  refused({.tensor = 2, .pipeline = 1, .data = 2}, {"parallel.expert=2"}, "parallel.sequence_parallel = true");
  refused(kOneRank, {"moe.residual=true", "moe.shared_experts=1"}, "moe.residual = true with moe.shared_experts = 1");
  refused(kOneRank, {"moe.shared_gate=true"}, "moe.shared_gate = true needs moe.shared_experts");
}
