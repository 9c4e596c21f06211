// Fine-tuning from a pretrained checkpoint to a score: a head on BERT that learns which word a text has, and a decoder
// that learns answers, on one rank and on eight, with stops; and the scores of megatron_eval.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "faults/checks.h"
#include "faults/finetune.h"
#include "support/catch.h"

namespace {

void require_learned(const std::string& directory, double chance) {
  const auto all = evaluations(directory);
  REQUIRE(all.size() == 6);  // 61 examples in batches of 8: passes end with steps 8, 16, 23, 31, 39 and the last, 45
  for (const nlohmann::json& evaluation : all) CHECK(evaluation.at("examples") == 21);
  CHECK(all.back().at("accuracy").get<double>() > chance + 0.3);
}

// Rounding grows where examples are nearly learned: the first steps are compared.
void check_trained_alike(const std::string& a, const std::string& b) {
  const auto one = numbers(a, "train"), other = numbers(b, "train");
  REQUIRE(one.size() == other.size());
  const auto loss = [](const std::string& line) { return nlohmann::json::parse(line).at("loss").get<double>(); };
  for (std::size_t i = 0; i < 12; ++i) CHECK(loss(one[i]) == Approx(loss(other[i])).epsilon(1e-4));
}

// At most one of 21 examples is told otherwise at the end; the first pass has the same evaluation.
void check_close(const std::string& a, const std::string& b) {
  check_trained_alike(a, b);
  const auto one = evaluations(a), other = evaluations(b);
  const auto value = [](const nlohmann::json& line, const char* key) { return line.at(key).get<double>(); };
  CHECK(value(one.front(), "loss") == Approx(value(other.front(), "loss")).epsilon(1e-4));
  CHECK(value(one.front(), "accuracy") == value(other.front(), "accuracy"));
  CHECK(std::abs(value(one.back(), "accuracy") - value(other.back(), "accuracy")) < 0.05);
}

}  // namespace
TEST_CASE("fine-tuning: labels are learned on any layout and resumed exactly") {
  const Fixture& from = fixture();
  const bool labels = GENERATE(true, false);
  const Settings settings = labels ? from.classification() : from.multiple_choice();
  const TemporaryFolder folder;
  const std::string one = folder.file("one"), cube = folder.file("cube"), stopped = folder.file("stopped");
  const Finished finished = done(from.run(settings, kOneRank, one));
  INFO(finished.out);
  CHECK(mentions(finished.out, "as predicted, to the byte"));
  CHECK(mentions(finished.out, "(task_head.*) is new"));
  require_learned(one, labels ? 0.5 : 0.33);

  const Finished wide = done(from.run(settings, kCube, cube));
  CHECK(mentions(wide.out, "as predicted, to the byte"));
  require_learned(cube, labels ? 0.5 : 0.33);
  check_close(one, cube);
  done(from.run(Fixture::with({"train.stop_after=17"}, settings), kCube, stopped));
  const std::string elsewhere = folder.file("elsewhere");
  std::filesystem::copy(stopped, elsewhere, std::filesystem::copy_options::recursive);
  done(from.run(settings, kCube, stopped));
  CHECK(numbers(stopped) == numbers(cube));
  CHECK(same_rank_files(stopped, cube, 45));
  done(from.run(settings, {.tensor = 1, .pipeline = 2, .data = 1}, elsewhere));
  require_learned(elsewhere, labels ? 0.5 : 0.33);
  check_close(cube, elsewhere);
  // From the head of this run to the same labels, and to others.
  const Settings next = Fixture::with({"checkpoint.initialize_from=" + one, "train.epochs=1"}, settings);
  const Finished kept = done(from.run(next, kOneRank, folder.file("kept")));
  CHECK(mentions(kept.out, "(task_head.*) is the checkpoint's"));
  CHECK(evaluations(folder.file("kept")).front().at("accuracy").get<double>() > 0.6);
  if (!labels) return;
  const Settings others = {"task.labels=[\"dry\", \"rain\", \"snow\"]", "train.stop_after=1"};
  const Finished other = done(from.run(Fixture::with(others, next), kOneRank, folder.file("other")));
  CHECK(mentions(other.out, "(task_head.*) is new"));
}

TEST_CASE("fine-tuning: a model with its head is exported as transformers has it") {
  const Fixture& from = fixture();
  const bool labels = GENERATE(true, false);
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), exported = folder.file("exported"), tsv = folder.file("train.tsv");
  write_file(tsv, "sentence\tlabel\nit is dry\tdry\nso much rain\t1\n");
  Settings settings = Fixture::with({"train.epochs=1"}, labels ? from.classification() : from.multiple_choice());
  if (labels) {
    settings = Fixture::with({"task.format=tsv", "data.train=" + tsv, "data.validation=" + tsv,
                              "task.labels=[\"dry\", \"rain\"]", "train.global_batch_size=2"},
                             settings);
  }
  done(from.run(settings, kOneRank, run));
  if (labels) CHECK(evaluations(run).back().at("examples") == 2);
  done({checkpoint_program(), "export", run, exported});
  const auto config = nlohmann::json::parse(contents_of(exported + "/config.json"));
  const std::string kind = labels ? "ForSequenceClassification" : "ForMultipleChoice";
  CHECK(config.at("architectures") == nlohmann::json{"MegatronBert" + kind});
  if (labels) {
    CHECK(config.at("id2label") == nlohmann::json{{"0", "dry"}, {"1", "rain"}});
    CHECK(config.at("label2id") == nlohmann::json{{"dry", 0}, {"rain", 1}});
  }
  // Head and pooler, as float32 in the order of the file's header; a choice's bias, which is not trained, is zero.
  const std::string file = contents_of(exported + "/model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  CHECK(header.at("classifier.weight").at("shape") == nlohmann::json{labels ? 2 : 1, 32});
  CHECK(header.at("classifier.bias").at("shape") == nlohmann::json{labels ? 2 : 1});
  CHECK(header.contains("bert.pooler.dense.weight"));
  CHECK_FALSE(header.contains("cls.predictions.bias"));
  const auto bytes_of = [&](const char* tensor) {
    const auto& range = header.at(tensor).at("data_offsets");
    const auto begin = range.at(0).get<std::size_t>(), end = range.at(1).get<std::size_t>();
    return file.substr(8 + length + begin, end - begin);
  };
  const std::string zeros(labels ? 8 : 4, '\0');
  CHECK((bytes_of("classifier.bias") == zeros) == !labels);
  CHECK(bytes_of("classifier.weight").find_first_not_of('\0') != std::string::npos);
}

TEST_CASE("fine-tuning: a stop in an evaluation, which the next start does") {
  const Fixture& from = fixture();
  const TemporaryFolder folder;
  const std::string straight = folder.file("straight"), stopped = folder.file("stopped"), many = folder.file("many");
  write_file(many, Fixture::pairs(100, 3000));  // seconds of evaluation
  const Settings settings =
      from.classification({"train.epochs=1", "train.evaluate_every=4", "data.validation=" + many});
  Process process(from.run(settings, kOneRank, stopped));
  REQUIRE(wait_for_lines(process, stopped, 4));
  process.signal(SIGTERM);
  const Finished finished = process.wait(30);
  INFO(finished.out << finished.err);
  CHECK(finished.code == 75);
  CHECK(mentions(finished.out, "stopped on SIGTERM after step 4"));
  CHECK(evaluations(stopped).empty());
  done(from.run(settings, kOneRank, stopped));
  done(from.run(settings, kOneRank, straight));
  CHECK(evaluations(stopped).front().at("examples") == 3000);
  CHECK(numbers(stopped) == numbers(straight));
}

TEST_CASE("fine-tuning: scores of the program are the run's, on any layout") {
  const Fixture& from = fixture();
  const bool labels = GENERATE(true, false);
  const std::string task = labels ? "classification" : "multiple_choice";
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  done(from.run(labels ? from.classification() : from.multiple_choice(), kOneRank, run));
  const nlohmann::json trained = evaluations(run).back();
  const std::string data = from.file(labels ? "validation.jsonl" : "more.jsonl");
  for (const int ranks : {1, 2, 4, 8}) {  // each of 2 ranks, or 4 of 8 together, has half of the examples
    CAPTURE(ranks);
    const std::string output = folder.file("result.json");
    Command command = {MEGATRON_EVAL, run, "--task", task, "--data", data, "--output", output, "--force"};
    if (ranks > 2) command.insert(command.end(), {"--tensor", "2", "--pipeline", "2"});
    const Finished finished = done(launched(ranks == 1 ? 0 : ranks, command));
    CHECK(mentions(finished.out, "accuracy"));
    const auto result = nlohmann::json::parse(contents_of(output));
    CHECK(result.at("examples") == 21);
    CHECK(result.at("accuracy") == trained.at("accuracy"));
    CHECK(result.at("loss").get<double>() == Approx(trained.at("loss").get<double>()).epsilon(1e-4));
    std::int64_t examples = 0, chosen = 0;
    for (const auto& label : result.at("labels")) {
      examples += label.at("examples").get<std::int64_t>();
      chosen += label.at("chosen").get<std::int64_t>();
    }
    CHECK(examples == 21);
    CHECK(chosen == 21);
  }
  require_refused(
      run_command({MEGATRON_EVAL, run, "--task", labels ? "multiple_choice" : "classification", "--data", data}, 60), 2,
      {"is for task.name = \"" + task + "\""});
  require_refused(run_command({MEGATRON_EVAL, from.pretrained, "--task", task, "--data", data}, 60), 2,
                  {"has no head of a task"});
}

TEST_CASE("fine-tuning: predictions for texts without labels") {
  const Fixture& from = fixture();
  const bool labels = GENERATE(true, false);
  const std::string key = labels ? "label" : "answer";
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), labelled = from.file(labels ? "validation.jsonl" : "more.jsonl"),
                    bare = folder.file("bare.jsonl"), output = folder.file("out.json");
  done(from.run(labels ? from.classification() : from.multiple_choice(), kOneRank, run));
  std::string without;
  const auto examples = lines_of(contents_of(labelled));
  for (nlohmann::json line : examples) {
    line.erase(key);
    without += line.dump() + "\n";
  }
  write_file(bare, without);
  const auto evaluate = [&](int ranks, const std::string& data, const Command& more) {
    Command command = {MEGATRON_EVAL, run, "--task", labels ? "classification" : "multiple_choice", "--data", data};
    command.insert(command.end(), more.begin(), more.end());
    if (ranks > 2) command.insert(command.end(), {"--tensor", "2", "--pipeline", "2"});
    return launched(ranks == 1 ? 0 : ranks, command);
  };
  // With labels: as many predictions are the label as the accuracy says.
  const std::string known = folder.file("known.jsonl");
  done(evaluate(1, labelled, {"--predictions", known, "--output", output}));
  const auto predicted = lines_of(contents_of(known));
  REQUIRE(predicted.size() == 21);
  int right = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    right += predicted[i].at(key) == examples[i].at(key) ? 1 : 0;
    CHECK(predicted[i].at("example") == i);
    double sum = 0, largest = 0;
    for (const auto& score : predicted[i].at("scores")) {
      sum += score.get<double>();
      largest = std::max(largest, score.get<double>());
    }
    CHECK(sum == Approx(1));
    const auto& scores = predicted[i].at("scores");
    CHECK((labels ? scores.at(predicted[i].at(key).get<std::string>())
                  : scores.at(predicted[i].at(key).get<std::size_t>())) == largest);
  }
  CHECK(nlohmann::json::parse(contents_of(output)).at("accuracy").get<double>() == Approx(right / 21.0));
  // The same without the labels, on any layout; nothing is said of loss or accuracy.
  for (const int ranks : {1, 2, 8}) {
    CAPTURE(ranks);
    const std::string predictions = folder.file("predictions.jsonl");
    const Finished finished =
        done(evaluate(ranks, bare, {"--predictions", predictions, "--output", output, "--force"}));
    CHECK_FALSE(mentions(finished.out, "accuracy"));
    CHECK_FALSE(mentions(finished.out, "loss"));
    const auto result = nlohmann::json::parse(contents_of(output));
    CHECK(result.at("examples") == 21);
    CHECK_FALSE(result.contains("accuracy"));
    std::int64_t chosen = 0;
    for (const auto& label : result.at("labels")) chosen += label.at("chosen").get<std::int64_t>();
    CHECK(chosen == 21);
    const auto again = lines_of(contents_of(predictions));
    REQUIRE(again.size() == 21);
    for (std::size_t i = 0; i < again.size(); ++i) {
      CHECK(again[i].at(key) == predicted[i].at(key));
      for (const auto& [name, score] : again[i].at("scores").items()) {
        const auto& other = predicted[i].at("scores");
        CHECK(score.get<double>() ==
              Approx((labels ? other.at(name) : other.at(std::stoul(name))).get<double>()).margin(1e-5));
      }
    }
  }
  require_refused(run_command(evaluate(1, bare, {}), 60), 3, {"bare.jsonl:1: no key \"" + key + "\"", "--predictions"});
  const std::string mixed = folder.file("mixed.jsonl"), none = folder.file("none");
  write_file(mixed, contents_of(labelled) + without);
  require_refused(run_command(evaluate(2, mixed, {"--predictions", none}), 60), 3,
                  {"mixed.jsonl: example 22 has no label, but the first example has one"});
  require_refused(run_command(evaluate(1, bare, {"--predictions", output}), 60), 2, {"there is such a file"});
  require_refused(run_command(evaluate(1, bare, {"--predictions", none, "--output", none}), 60), 2, {"name two"});
  CHECK_FALSE(std::filesystem::exists(none));
}

TEST_CASE("fine-tuning: answers are learned on any layout and resumed exactly") {
  const TemporaryFolder folder;
  std::string lines,
      chat = R"({"messages": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "bbb"}]})";
  for (int i = 0; i < 40; ++i) {
    const std::string letter(1, static_cast<char>('a' + i % 5));
    lines += nlohmann::json{{"prompt", "say " + letter + ": "}, {"completion", letter + letter}}.dump() + "\n";
  }
  write_file(folder.file("train.jsonl"), lines + chat + "\n");
  write_file(folder.file("long.jsonl"), nlohmann::json{{"prompt", std::string(99, 'x')}, {"completion", "y"}}.dump());
  std::string model = kFineTunedModel;
  model.replace(model.find("\"bert\""), 6, "\"gpt\"");
  write_file(folder.file("input.toml"), model);
  const auto run = [&](const std::string& directory, const Layout& layout, const Settings& more = {}) {
    Settings settings = {"task.name=instructions",
                         "task.tokenizer=byte",
                         "train.epochs=60",
                         "data.train=" + folder.file("train.jsonl"),
                         "data.validation=" + folder.file("train.jsonl"),
                         "parallel.tensor=" + std::to_string(layout.tensor),
                         "run.directory=" + folder.file(directory),
                         "parallel.pipeline=" + std::to_string(layout.pipeline)};
    settings.insert(settings.end(), more.begin(), more.end());
    Command command = {train_program(), folder.file("input.toml")};
    for (const std::string& setting : settings) command.insert(command.end(), {"--set", setting});
    return launched(layout.ranks() == 1 ? 0 : layout.ranks(), command);
  };
  const Finished finished = done(run("one", kOneRank));
  INFO(finished.out);
  CHECK(mentions(finished.out, "as predicted, to the byte"));
  CHECK(mentions(finished.out, "41 examples in"));
  CHECK(evaluations(folder.file("one")).back().at("loss").get<double>() < 1);  // from about ln 257
  // Its conversations continue in the template of its training, here and in what is exported.
  const std::string talk = "printf 'b\\n\\nb\\n' | " + quoted({generate_program(), folder.file("one"), "--chat",
                                                               "--greedy", "--system", "s", "--max-new-tokens", "4"});
  const Finished answers = done({"bash", "-c", talk});
  CHECK(std::count(answers.out.begin(), answers.out.end(), '\n') >= 2);
  CHECK_FALSE(mentions(answers.out, "User:"));
  done({checkpoint_program(), "export", folder.file("one"), folder.file("exported")});
  CHECK(mentions(contents_of(folder.file("exported/tokenizer_config.json")), "'Assistant: ' + message['content']"));
  // An import keeps a template for its export, with the tokens that this names.
  nlohmann::json names = nlohmann::json::parse(contents_of(folder.file("exported/tokenizer_config.json")));
  CHECK(names.at("model_input_names") == nlohmann::json{"input_ids", "attention_mask"});
  names.update({{"chat_template", "{{ bos_token }}{{ messages }}"}, {"bos_token", {{"content", "<s>"}}}});
  write_file(folder.file("exported/tokenizer_config.json"), names.dump());
  CHECK(mentions(done({checkpoint_program(), "import", folder.file("exported"), folder.file("imported")}).out,
                 "its chat template is kept for exports"));
  done({checkpoint_program(), "export", folder.file("imported"), folder.file("again")});
  const auto again = nlohmann::json::parse(contents_of(folder.file("again/tokenizer_config.json")));
  CHECK(again.at("chat_template") == "{{ bos_token }}{{ messages }}");
  CHECK(again.at("bos_token") == "<s>");
  CHECK(mentions(done(run("cube", kCube)).out, "as predicted, to the byte"));
  check_trained_alike(folder.file("one"), folder.file("cube"));
  done(run("stopped", kCube, {"train.stop_after=5"}));
  require_refused(run_command(run("stopped", kOneRank, {"task.user_prefix=\"Question: \""}), 60), 4, {"chat_template"});
  std::filesystem::copy(folder.file("stopped"), folder.file("elsewhere"), std::filesystem::copy_options::recursive);
  done(run("stopped", kCube));
  CHECK(numbers(folder.file("stopped")) == numbers(folder.file("cube")));
  done(run("elsewhere", {.tensor = 2, .pipeline = 1, .data = 1}));
  check_trained_alike(folder.file("cube"), folder.file("elsewhere"));
  const auto with_option = [&](const Layout& layout, const Command& options) {
    Command command = run("none", layout);
    command.insert(command.end(), options.begin(), options.end());
    return done(command).out;
  };
  CHECK(mentions(with_option(kCube, {"--verify"}), "verified: fp32"));
  CHECK(mentions(with_option(kOneRank, {"--dry-run"}), "training   41 examples in "));
  CHECK(mentions(with_option(kOneRank, {"--print-samples", "1"}), "\"learned\":[0,"));
  CHECK_FALSE(std::filesystem::exists(folder.file("none")));
  require_refused(run_command(run("bad", kOneRank, {"data.train=" + folder.file("long.jsonl")}), 60), 3,
                  {"long.jsonl: none of its 1 examples fits into a sequence", "the shortest has 100"});
  CHECK_FALSE(std::filesystem::exists(folder.file("bad")));
}
