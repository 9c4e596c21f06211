// BERT from raw text to a trained model: a WordPiece vocabulary, shards with sentences, training on one rank and on
// eight, stops and resumptions; and the data and keys that it refuses, by name.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "faults/checks.h"
#include "faults/sentence_corpus.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace {

const char* const kBertInput = R"([model]
family = "bert"
layers = 4
hidden_size = 32
attention_heads = 4
sequence_length = 48

[train]
steps = 6
micro_batch_size = 2
global_batch_size = 8
evaluate_every = 3
evaluate_steps = 100     # more than there are: the last batch is filled up

[learning_rate]
peak = 1e-3

[data]
train = "@DATA@/bert"
split = "95,5"

[checkpoint]
every_steps = 3
keep_last = 0
)";

/// Shards of prefixes bert, plain (no sentences), byte (no special tokens) and single (one sentence per document).
struct BertCorpus : SentenceCorpus {
  BertCorpus() : SentenceCorpus(kBertInput) {
    make("bert", extended(pieces(), {"--split-sentences"}));
    make("plain", pieces());
    make("byte", {"--split-sentences"});
    write_file(path("one.jsonl"), "{\"text\": \"Each text is one sentence.\"}\n{\"text\": \"So no pair is there.\"}\n");
    make("single", extended(pieces(), {"--split-sentences"}), path("one.jsonl"));
  }
};

const BertCorpus& bert_corpus() {
  static const BertCorpus made;
  return made;
}

Command bert(const Layout& layout, const std::string& directory, const Settings& settings = {}) {
  return training(layout, directory, settings, bert_corpus().path("input.toml"));
}

/// By line of metrics: both terms of the loss, of training and of evaluations, and their sum.
std::vector<std::array<double, 3>> terms(const std::string& directory) {
  std::vector<std::array<double, 3>> all;
  for (const std::string& line : numbers(directory)) {
    const auto metrics = nlohmann::json::parse(line);
    const auto& losses = metrics.at("losses");
    all.push_back({losses.at("language_model"), losses.at("sentence_order"), metrics.at("loss")});
  }
  return all;
}

Settings with_data(const std::string& prefix) {
  return {"data.train=" + bert_corpus().path(prefix)};
}

}  // namespace

TEST_CASE("BERT: a batch without a masked word learns the order of sentences") {
  const TemporaryFolder folder;
  const Settings short_samples = {"model.sequence_length=12", "train.micro_batch_size=1",   "train.global_batch_size=1",
                                  "train.steps=40",           "data.mask_probability=0.05", "data.short_probability=1",
                                  "train.evaluate_every=20",  "train.evaluate_steps=4"};
  expect(bert(kOneRank, folder.file("run"), short_samples), 0, {});
  int without = 0;
  for (const std::string& line : numbers(folder.file("run"), "train")) {
    const auto metrics = nlohmann::json::parse(line);
    CHECK(metrics.at("losses").at("sentence_order").is_number());
    CHECK(metrics.at("loss").is_number());
    without += metrics.at("losses").at("language_model").is_null() ? 1 : 0;
  }
  CHECK(without > 0);
}

TEST_CASE("BERT: every layout trains the same model and resumes exactly") {
  const TemporaryFolder folder;
  const std::string one = folder.file("one"), cube = folder.file("cube"), stopped = folder.file("stopped");
  expect(bert(kOneRank, one), 0, {"as predicted, to the byte", "language_model", "sentence_order"});
  const auto losses = terms(one);
  REQUIRE(losses.size() == 8);  // six steps, two evaluations
  for (const auto& [language_model, sentence_order, loss] : losses) {
    CHECK(loss == Approx(language_model + sentence_order));
  }
  CHECK(losses.front()[0] == Approx(std::log(302)).margin(0.4));
  CHECK(losses.front()[1] == Approx(std::log(2)).margin(0.2));
  CHECK(losses.back()[0] < losses.front()[0]);

  expect(bert(kCube, cube), 0, {"as predicted, to the byte"});
  check_same_losses(cube, one);

  expect(bert(kCube, stopped, {"train.stop_after=3"}), 0);
  const std::string elsewhere = folder.file("elsewhere");
  std::filesystem::copy(stopped, elsewhere, std::filesystem::copy_options::recursive);
  expect(bert(kCube, stopped), 0);
  CHECK(numbers(stopped, "train") == numbers(cube, "train"));
  CHECK(same_rank_files(stopped, cube, 6));
  expect(bert(kOneRank, elsewhere), 0);
  check_same_losses(elsewhere, one);
}

TEST_CASE("BERT: Megatron's orders and blends train and a changed mask is refused") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), data = bert_corpus().path("bert");
  const std::string order = GENERATE("megatron", "megatron_core");
  expect(bert(kOneRank, run, {"data.order=\"" + order + "\"", "train.evaluate_steps=1"}), 0,
         {"megatron: made for 48 samples"});
  CHECK(terms(run).size() == 8);
  if (order != "megatron") return;
  const std::string blend = folder.file("blend");
  const Settings settings{"data.train=[{path=\"" + data + "\",weight=3},{path=\"" + data + "\",weight=1}]"};
  expect(bert(kOneRank, blend, settings), 0, {"a blend of 2 sets: 75 %"});
  Settings changed = settings;
  changed.insert(changed.end(), {"data.mask_probability=0.3", "train.steps=7"});
  expect(bert(kOneRank, blend, changed), 4, {"mask_probability: 0.15 in the checkpoint, 0.3 in this run"});
}

TEST_CASE("BERT: samples are printed as text, and a plan says what a run will use") {
  const TemporaryFolder folder;
  Command print = bert(kOneRank, folder.file("run"));
  print.insert(print.end(), {"--print-samples", "3:1"});
  expect(print, 0, {"{\"sample\":3,\"tokens\":[2,", "\"masked\":[", "\"label\":[", "\"text\":\"[CLS] "});
  Command plan = bert(kOneRank, folder.file("run"));
  plan.insert(plan.end(), {"--dry-run", "--ranks", "1"});
  const Finished planned = expect(plan, 0, {"this run can be trained as it is", "samples per pass"});
  // The line of memory is the same in the plan and in the run, whose report says that no other byte was used.
  const auto memory = [](const std::string& text) {
    const std::size_t start = text.find("  stage  weights");
    return text.substr(start, text.find("\nstep ", start) - start);
  };
  const Finished ran = expect(bert(kOneRank, folder.file("run")), 0, {"as predicted, to the byte"});
  CHECK(memory(ran.out) == memory(planned.out));
}

TEST_CASE("BERT: data and keys that it cannot be trained with are refused by name") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const auto refused = [&](const Settings& settings, int code, const std::vector<std::string>& parts) {
    expect(bert(kOneRank, run, settings), code, parts);
    CHECK_FALSE(std::filesystem::exists(run));
  };
  refused(with_data("plain"), 3, {"plain", "do not know where sentences begin", "--split-sentences"});
  refused(with_data("byte"), 3, {"byte", "[CLS], [SEP], [MASK] and [PAD]", "--tokenizer bert-uncased"});
  refused(with_data("single"), 3, {"single", "takes two sentences of one document"});
  refused({"data.split_by=\"tokens\""}, 2, {"data.split_by = \"tokens\" belongs to model.family = \"gpt\""});
  refused({"train.curriculum={schedule=\"fixed_linear\",start=8,steps=4}"}, 2,
          {"train.curriculum belongs to model.family = \"gpt\""});
  refused({"evaluation.tasks=[{task=\"wikitext\",data=\"x\"}]"}, 2,
          {"evaluation.tasks belongs to model.family = \"gpt\""});
  refused({"model.sequence_length=4"}, 2, {"sequence_length = 4 is too short for [CLS] A [SEP] B [SEP]"});
  refused({"data.mask_probability=0"}, 2, {"data.mask_probability"});
  refused({"model.family=\"gpt\"", "data.short_probability=0.5"}, 2,
          {"belongs to model.family = \"bert\" or \"t5\", not \"gpt\""});
}

TEST_CASE("BERT: a trained encoder writes no text") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  expect(bert(kOneRank, run, {"train.steps=1"}), 0);
  expect({generate_program(), run, "--prompt", "Once", "--max-new-tokens", "2"}, 2,
         {"model.family = \"bert\" predicts no next tokens"});
}
