// Tests of the input of fine-tuning: files of every form, the tokenizer, the programs' options, refusals by name.
#include "faults/checks.h"
#include "faults/finetune.h"
#include "support/catch.h"

namespace {

/// Example i in the published form; of RACE, an article with two questions.
std::string published(const std::string& format, int i) {
  const std::string text = Fixture::filler(i), number = std::to_string(i);
  if (format == "qqp")
    return number + "\t1\t2\t" + text + "\t" + Fixture::filler(i + 1) + "\t" + std::to_string(i % 2) + "\n";
  if (format == "race") {
    const nlohmann::json article = {{"article", text + " . The end"},
                                    {"questions", {"who _ ?", "why?"}},
                                    {"options", {{"a", "b", "c", "d"}, {"e", "f", "g", "h"}}},
                                    {"answers", {"A", "D"}}};
    return article.dump() + "\n";
  }
  const char* const labels[] = {"contradiction", "entailment", "neutral"};
  return number + "\t1\t2\t3\t4\t5\t6\t7\t" + text + "\t" + Fixture::filler(i + 2) + "\t-\t" + labels[i % 3] + "\n";
}

}  // namespace

TEST_CASE("fine-tuning: MNLI, QQP and RACE, trained and evaluated on") {
  const Fixture& from = fixture();
  const TemporaryFolder folder;
  const std::string format = GENERATE("mnli", "qqp", "race");
  const bool choices = format == "race";
  const std::string task = choices ? "multiple_choice" : "classification";
  std::string data = folder.file(choices ? "articles" : "data.tsv"), json = folder.file("data.jsonl"), lines;
  if (choices) {
    std::filesystem::create_directories(data + "/high");
    for (int i = 0; i < 4; ++i) write_file(data + "/high/" + std::to_string(i) + ".txt", published(format, i));
    write_file(json, R"({"context": "x", "choices": ["a", "b", "c", "d"], "answer": 3})");
  } else {
    lines = format == "qqp" ? "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
                            : "1\t2\t3\t4\t5\t6\t7\t8\tsentence1\tsentence2\tl\tgold_label\n";
    for (int i = 0; i < 8; ++i) lines += published(format, i);
    write_file(data, lines);
    write_file(json, format == "qqp" ? R"({"text_a": "x", "text_b": "y", "label": 1})"
                                     : R"({"text_a": "x", "text_b": "y", "label": "neutral"})");
  }
  const std::string run = folder.file("run");
  done(from.run({"task.name=" + task, "task.format=" + format, "checkpoint.initialize_from=" + from.pretrained,
                 "train.steps=1", "data.train=" + data, "data.validation=" + data},
                kOneRank, run));
  CHECK(evaluations(run).back().at("examples") == 8);
  const auto evaluated = [&](const std::string& file, const Command& options) {
    const std::string output = folder.file("result.json");
    Command command = {MEGATRON_EVAL, run, "--task", task, "--data", file, "--output", output, "--force"};
    command.insert(command.end(), options.begin(), options.end());
    done(command);
    return nlohmann::json::parse(contents_of(output));
  };
  const nlohmann::json result = evaluated(data, {});
  CHECK(result.at("examples") == 8);
  CHECK(result.at("loss").get<double>() == Approx(evaluations(run).back().at("loss").get<double>()).epsilon(1e-4));
  CHECK(evaluated(json, {"--format", "json"}).at("examples") == 1);
  require_refused(
      run_command({MEGATRON_EVAL, run, "--task", task, "--data", data, "--format", choices ? "qqp" : "race"}, 60), 2,
      {choices ? "--task multiple_choice reads json and race" : "reads json, tsv, mnli and qqp"});
  if (choices) return;
  require_refused(
      run_command({MEGATRON_EVAL, run, "--task", task, "--data", data, "--format", format == "qqp" ? "mnli" : "qqp"},
                  60),
      2, {"and the model's are"});
}

TEST_CASE("fine-tuning: --fresh takes the tokenizer of the new start") {
  const Fixture& from = fixture();
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), other = from.pretrain("other", "320");
  const int ranks = GENERATE(1, 2);
  const Layout layout{.data = ranks};
  done(from.run(from.classification({"train.stop_after=1"}), layout, run));
  Command again =
      from.run(from.classification({"train.stop_after=1", "checkpoint.initialize_from=" + other}), layout, run);
  CHECK(mentions(done(again).out, "ended after step 1"));  // the old run, whose vocabulary it keeps
  again.push_back("--fresh");
  CHECK(mentions(done(again).out, "weights from " + other));
  CHECK(std::filesystem::exists(run + "_2/checkpoints/step_00000001"));
}

TEST_CASE("fine-tuning: a vocabulary with sentinels, by file and number") {
  const Fixture& from = fixture();
  const TemporaryFolder folder;
  const std::string sentinels = from.pretrain("sentinels", "300", {"--extra-ids", "20"});
  const Settings named = {"train.stop_after=1", "checkpoint.initialize_from=" + sentinels,
                          "task.tokenizer=bert-uncased", "task.vocab_file=" + from.file("sentinels_words/vocab.txt")};
  done(from.run(from.classification(Fixture::with({"task.extra_ids=20"}, named)), kOneRank, folder.file("run")));
  require_refused(run_command(from.run(from.classification(named), kOneRank, folder.file("without")), 60), 4,
                  {"tokenizer_hash"});
}

TEST_CASE("fine-tuning: --verify, --dry-run and --print-samples of a task") {
  const Fixture& from = fixture();
  const TemporaryFolder folder;
  const bool labels = GENERATE(true, false);
  const auto started = [&](const Layout& layout, const Command& options) {
    Command command = from.run(labels ? from.classification() : from.multiple_choice(), layout, folder.file("run"));
    command.insert(command.end(), options.begin(), options.end());
    const Finished finished = done(command);
    CHECK_FALSE(std::filesystem::exists(folder.file("run")));
    return finished.out;
  };
  CHECK(mentions(started(kCube, {"--verify"}), "verified: fp32"));
  const std::string plan = started(kOneRank, {"--dry-run", "--ranks", "4", "--set", "parallel.data=4"});
  INFO(plan);
  CHECK(mentions(plan, "training   61 examples, "));
  CHECK(mentions(plan, "KiB per rank\n"));
  CHECK(mentions(plan, "each evaluation takes all of them"));
  CHECK(mentions(plan, "this run can be trained as it is"));
  const std::string sample = started(kOneRank, {"--print-samples", "2:1"});
  INFO(sample);
  CHECK(mentions(sample, "{\"sample\":2,\"tokens\":["));
  CHECK(mentions(sample, "\"label\":["));
  CHECK(mentions(sample, "[CLS]"));
}

TEST_CASE("fine-tuning: broken files and unfit keys are refused by name") {
  const Fixture& from = fixture();
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), bad = folder.file("bad.jsonl");
  const auto refused = [&](const Settings& settings, int code, const std::vector<std::string>& parts) {
    const Finished finished = run_command(from.run(from.classification(settings), kOneRank, run), 60);
    INFO(finished.out << finished.err);
    CHECK(finished.code == code);
    for (const std::string& part : parts) {
      CAPTURE(part);
      CHECK(mentions(finished.err, part));
    }
    CHECK_FALSE(std::filesystem::exists(run));
  };
  const auto with_line = [&](const std::string& line, const std::string& problem) {
    write_file(bad, "{\"text_a\": \"x\", \"label\": \"rain\"}\n" + line + "\n");
    refused({"data.validation=" + bad}, 3, {"bad.jsonl:2", problem});
  };
  with_line("{\"text_a\": \"x\", \"label\": \"hail\"}", "the label is \"hail\", and the labels are \"snow\", \"rain\"");
  with_line("{\"text_a\": \"x\"}", "no key \"label\"");
  with_line("{\"text_a\": \"x\", ", "byte");
  write_file(bad, "");
  refused({"data.train=" + bad}, 3, {"bad.jsonl has no examples"});
  refused({"data.train=" + folder.file("absent")}, 3, {"absent"});
  refused({"task.labels=3"}, 3, {"the label is \"", "the labels are \"0\", \"1\", \"2\""});
  refused({"task.labels=1"}, 2, {"task.labels"});
  refused({"task.labels=[\"a\", \"a\"]"}, 2, {"task.labels has \"a\" twice"});
  refused({"task.format=race"}, 2, {"task.format = \"race\" belongs to task.name = \"multiple_choice\""});
  refused({"task.choices=3"}, 2, {"task.choices belongs to task.name = \"multiple_choice\""});
  refused({"task.name=instructions"}, 2, {"belongs to model.family = \"gpt\", not \"bert\""});
  refused({"train.evaluate_steps=3"}, 2, {"train.evaluate_steps"});
  refused({"data.split=90,10"}, 2, {"data.split is for pretraining"});
  refused({"task.user_prefix=x"}, 2, {"task.user_prefix belongs to task.name = \"instructions\""});
  refused({"checkpoint.initialize_from=" + folder.file("none")}, 4, {"none"});
}
