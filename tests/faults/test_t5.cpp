// T5 from raw text to a trained model: a WordPiece vocabulary with sentinels, shards with sentences, training on one
// rank and on eight, stops and resumptions, --verify; and the data and keys that it refuses, by name.
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "faults/checks.h"
#include "faults/sentence_corpus.h"
#include "support/temporary_folder.h"

namespace {

const char* const kInput = R"([model]
family = "t5"
layers = 3
decoder_layers = 1
hidden_size = 32
attention_heads = 4
sequence_length = 48
decoder_sequence_length = 24
position_embedding = "relative"
normalization = "rmsnorm"
bias = false
attention_scale = "none"
scale_head = true

[train]
steps = 6
micro_batch_size = 2
global_batch_size = 8
evaluate_every = 3
evaluate_steps = 100     # more than there are: the last batch is filled up

[learning_rate]
peak = 1e-3

[data]
train = "@DATA@/t5"
split = "95,5"

[checkpoint]
every_steps = 3
keep_last = 0
)";

/// Shards of prefixes t5, plain (no sentences), pieces (no sentinels) and few (one).
struct Corpus : SentenceCorpus {
  Corpus() : SentenceCorpus(kInput) {
    const Command options = extended(pieces(), {"--no-append-eod"});
    make("t5", extended(options, {"--split-sentences", "--extra-ids", "20"}));
    make("plain", extended(options, {"--extra-ids", "20"}));
    make("pieces", extended(options, {"--split-sentences"}));
    make("few", extended(options, {"--split-sentences", "--extra-ids", "1"}));
  }
};

const Corpus& corpus() {
  static const Corpus made;
  return made;
}

Command t5(const Layout& layout, const std::string& directory, const Settings& settings = {}) {
  return training(layout, directory, settings, corpus().path("input.toml"));
}

std::vector<double> losses_of(const std::string& directory) {
  std::vector<double> all;
  for (const std::string& line : numbers(directory)) all.push_back(nlohmann::json::parse(line).at("loss"));
  return all;
}

}  // namespace

TEST_CASE("T5: one rank and eight train the same model; stopped runs continue bit for bit, on other layouts too") {
  const TemporaryFolder folder;
  const std::string one = folder.file("one"), cube = folder.file("cube"), stopped = folder.file("stopped");
  const Settings shared = {"parallel.sequence_parallel=true", "parallel.schedule=zero_bubble",
                           "optimizer.distributed=true"};
  expect(t5(kOneRank, one), 0, {"as predicted, to the byte"});
  const auto first = losses_of(one);
  REQUIRE(first.size() == 8);  // six steps, two evaluations
  CHECK(first.front() == Approx(std::log(322)).margin(0.4));
  CHECK(first.back() < first.front());

  expect(t5(kCube, cube, shared), 0, {"as predicted, to the byte"});
  check_same_losses(cube, one);

  Settings until_three = shared;
  until_three.emplace_back("train.stop_after=3");
  expect(t5(kCube, stopped, until_three), 0);
  const std::string elsewhere = folder.file("elsewhere");
  std::filesystem::copy(stopped, elsewhere, std::filesystem::copy_options::recursive);
  expect(t5(kCube, stopped, shared), 0);
  CHECK(numbers(stopped, "train") == numbers(cube, "train"));
  CHECK(same_rank_files(stopped, cube, 6));
  expect(t5({.tensor = 1, .pipeline = 4, .data = 1}, elsewhere), 0);
  check_same_losses(elsewhere, one);
}

TEST_CASE("T5: --verify compares every gradient, tied tables and cross-attention among them") {
  const TemporaryFolder folder;
  Command verify = t5({.tensor = 2, .pipeline = 2, .data = 1}, folder.file("run"));
  verify.emplace_back("--verify");
  expect(verify, 0, {"verified: fp32"});
}

TEST_CASE("T5: samples are printed as text, and Megatron's order trains") {
  const TemporaryFolder folder;
  Command print = t5(kOneRank, folder.file("run"));
  print.insert(print.end(), {"--print-samples", "3:1"});
  expect(print, 0, {"{\"sample\":3,\"tokens\":[", "\"decoder_tokens\":[", "\"targets\":[", "<extra_id_0>"});
  expect(t5(kOneRank, folder.file("run"), {"data.order=\"megatron\"", "train.evaluate_steps=1"}), 0,
         {"megatron: made for 48 samples"});
}

TEST_CASE("T5: data and keys that it cannot be trained with are refused by name") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const auto refused = [&](const Settings& settings, int code, const std::vector<std::string>& parts) {
    expect(t5(kOneRank, run, settings), code, parts);
    CHECK_FALSE(std::filesystem::exists(run));
  };
  refused({"data.train=" + corpus().path("plain")}, 3, {"plain", "do not know where sentences begin"});
  refused({"data.train=" + corpus().path("pieces")}, 3, {"pieces", "lacks sentinels", "--extra-ids 100"});
  for (const char* order : {"epoch", "megatron", "megatron_core"}) {
    CAPTURE(order);
    refused({"data.train=" + corpus().path("few"), "train.evaluate_steps=1", std::string("data.order=") + order}, 2,
            {"few: data.mask_probability = 0.15 of samples", "of which the vocabulary has 1;", "--extra-ids"});
  }
  refused({"data.order=megatron", "train.evaluate_steps=1", "model.decoder_sequence_length=4"}, 2,
          {"tokens of the decoder, and model.decoder_sequence_length = 4", "data.order = \"epoch\""});
  refused({"train.curriculum={schedule=\"fixed_linear\",start=8,steps=4}"}, 2, {"train.curriculum would cut samples"});
  refused({"evaluation.tasks=[{task=\"wikitext\",data=\"x\"}]"}, 2, {"evaluation.tasks score next tokens"});
  refused({"parallel.split_stage=1"}, 2, {"the first layer of the decoder is on stage 0"});
  refused({"model.family=\"gpt\""}, 2,
          {"model.decoder_layers belongs to model.family = \"t5\"", "model.scale_head belongs to"});
}

TEST_CASE("T5: the decoder's sequences are a quarter as long by default") {
  const TemporaryFolder folder;
  std::string input = contents_of(corpus().path("input.toml"));
  const std::string line = "decoder_sequence_length = 24\n";
  input.replace(input.find(line), line.size(), "");
  write_file(folder.file("input.toml"), input);
  expect({train_program(), folder.file("input.toml"), "--set", "train.steps=1", "--set",
          "run.directory=" + folder.file("run")},
         0);
  CHECK(mentions(contents_of(folder.file("run/config.toml")), "decoder_sequence_length = 12"));
}

TEST_CASE("T5: a trained one writes no text") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  expect(t5(kOneRank, run, {"train.steps=1"}), 0);
  expect({generate_program(), run, "--prompt", "Once", "--max-new-tokens", "2"}, 2,
         {"model.family = \"t5\" predicts no next tokens"});
}
