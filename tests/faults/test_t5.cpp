// T5 from raw text to a trained model: a WordPiece vocabulary with sentinels, shards with sentences, training on one
// rank and on eight, stops and resumptions, --verify; and the data and keys that it refuses, by name.
#include <cmath>
#include <nlohmann/json.hpp>

#include "faults/checks.h"
#include "faults/sentence_corpus.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace {

const char* const kT5Input = R"([model]
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
struct T5Corpus : SentenceCorpus {
  T5Corpus() : SentenceCorpus(kT5Input) {
    const Command options = extended(pieces(), {"--no-append-eod"});
    make("t5", extended(options, {"--split-sentences", "--extra-ids", "20"}));
    make("plain", extended(options, {"--extra-ids", "20"}));
    make("pieces", extended(options, {"--split-sentences"}));
    make("few", extended(options, {"--split-sentences", "--extra-ids", "1"}));
  }
};

const T5Corpus& t5_corpus() {
  static const T5Corpus made;
  return made;
}

Command t5(const Layout& layout, const std::string& directory, const Settings& settings = {}) {
  return training(layout, directory, settings, t5_corpus().path("input.toml"));
}

std::vector<double> losses_of(const std::string& directory) {
  std::vector<double> all;
  for (const std::string& line : numbers(directory)) all.push_back(nlohmann::json::parse(line).at("loss"));
  return all;
}

}  // namespace

TEST_CASE("T5: every layout trains the same model and resumes exactly") {
  const TemporaryFolder folder;
  const std::string one = folder.file("one"), cube = folder.file("cube"), stopped = folder.file("stopped");
  const Settings shared = {"parallel.sequence_parallel=true", "parallel.schedule=zero_bubble", "optimizer.share=state"};
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

TEST_CASE("T5: --verify compares every gradient including tied tables") {
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
  refused({"data.train=" + t5_corpus().path("plain")}, 3, {"plain", "do not know where sentences begin"});
  refused({"data.train=" + t5_corpus().path("pieces")}, 3, {"pieces", "lacks sentinels", "--extra-ids 100"});
  for (const char* order : {"epoch", "megatron", "megatron_core"}) {
    CAPTURE(order);
    refused({"data.train=" + t5_corpus().path("few"), "train.evaluate_steps=1", std::string("data.order=") + order}, 2,
            {"few: data.mask_probability = 0.15 of samples", "of which the vocabulary has 1;", "--extra-ids"});
  }
  refused({"data.order=megatron", "train.evaluate_steps=1", "model.decoder_sequence_length=4"}, 2,
          {"tokens of the decoder, and model.decoder_sequence_length = 4", "data.order = \"epoch\""});
  refused({"train.curriculum={schedule=\"fixed_linear\",start=8,steps=4}"}, 2,
          {"train.curriculum belongs to model.family = \"gpt\""});
  refused({"evaluation.tasks=[{task=\"wikitext\",data=\"x\"}]"}, 2,
          {"evaluation.tasks belongs to model.family = \"gpt\""});
  refused({"parallel.split_stage=1"}, 2, {"the first layer of the decoder is on stage 0"});
  refused({"model.family=\"gpt\""}, 2,
          {"model.decoder_layers belongs to model.family = \"t5\"", "model.scale_head belongs to"});
}

TEST_CASE("T5: the decoder's sequences are a quarter as long by default") {
  const TemporaryFolder folder;
  std::string input = contents_of(t5_corpus().path("input.toml"));
  const std::string line = "decoder_sequence_length = 24\n";
  input.replace(input.find(line), line.size(), "");
  write_file(folder.file("input.toml"), input);
  expect({train_program(), folder.file("input.toml"), "--set", "train.steps=1", "--set",
          "run.directory=" + folder.file("run")},
         0);
  CHECK(mentions(contents_of(folder.file("run/config.toml")), "decoder_sequence_length = 12"));
}

TEST_CASE("T5: every layout writes the same texts, sampled or by beams") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  expect(t5(kOneRank, run), 0);
  write_file(folder.file("prompts.txt"), "Once upon a <extra_id_0> there was\nThe <extra_id_0>\nA little girl\n");
  const auto texts = [&](const Layout& layout, const Command& options) {
    const std::string output = folder.file("texts.jsonl");
    Command command =
        launched(layout.ranks(), {generate_program(), run, "--prompts", folder.file("prompts.txt"), "--special-tokens",
                                  "--output", output, "--force", "--max-new-tokens", "9", "--tensor",
                                  std::to_string(layout.tensor), "--pipeline", std::to_string(layout.pipeline)});
    expect(extended(command, options), 0);
    std::vector<nlohmann::json> tokens;
    for (const nlohmann::json& line : lines_of(contents_of(output))) tokens.push_back(line.at("tokens"));
    return tokens;
  };
  for (const Command& options : {Command{"--seed", "7"}, Command{"--beams", "3"}}) {
    CAPTURE(options.front());
    const auto one = texts(kOneRank, options);
    REQUIRE(one.size() == 3);
    CHECK(texts(kCube, options) == one);
    CHECK(texts({.tensor = 1, .pipeline = 4, .data = 1}, options) == one);
  }
  // The encoder's text matters: the same choices are less or more likely.
  std::vector<nlohmann::json> likely;
  const std::string output = folder.file("texts.jsonl");
  for (const char* prompt : {"Once upon a <extra_id_0>", "The little <extra_id_0>"}) {
    expect({generate_program(), run, "--prompt", prompt, "--special-tokens", "--greedy", "--output", output, "--force"},
           0);
    likely.push_back(lines_of(contents_of(output)).at(0).at("logprobs").at(0));
  }
  CHECK(likely[0] != likely[1]);
  const Command once = {generate_program(), run, "--prompt", "Once upon"};
  CHECK_FALSE(mentions(expect(once, 0).out, "Once upon"));
  expect(extended(once, {"--no-begin-token"}), 2, {"--no-begin-token has no meaning for model.family = \"t5\""});
  expect(extended(once, {"--max-new-tokens", "0"}), 2, {"--max-new-tokens 0 has no meaning"});
  expect({generate_program(), run, "--unconditional", "2"}, 2, {"--unconditional has no meaning"});
  expect({generate_program(), run, "--prompt", ""}, 3, {"empty, and the model's encoder needs a token to read"});
  expect({MEGATRON_EVAL, run, "--task", "wikitext", "--data", folder.file("prompts.txt")}, 2,
         {"model.family = \"t5\" does not predict each token of a text"});
}

TEST_CASE("T5: the tokenizer of an export adds what the samples had") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), out = folder.file("out"), back = folder.file("back");
  expect(t5(kOneRank, run, {"model.activation=relu"}), 0);
  expect({checkpoint_program(), "export", run, out, "--no-comparison"}, 0);
  const auto tokenizer = nlohmann::json::parse(contents_of(out + "/tokenizer.json"));
  CHECK(tokenizer.at("post_processor").is_null());
  CHECK(tokenizer.at("model").at("type") == "WordPiece");
  // A model that was not trained here keeps the file that it came with.
  auto framed = tokenizer;
  framed["post_processor"] = {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}};
  std::filesystem::remove(out + "/vocab.txt");
  write_file(out + "/tokenizer.json", framed.dump());
  expect({checkpoint_program(), "import", out, back, "--no-comparison"}, 0);
  expect({checkpoint_program(), "export", back, folder.file("again"), "--no-comparison"}, 0);
  CHECK(contents_of(folder.file("again") + "/tokenizer.json") == framed.dump());
}

TEST_CASE("T5: an imported model reads and begins texts as its files say") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run"), out = folder.file("out"), output = folder.file("texts.jsonl");
  expect(t5(kOneRank, run, {"model.activation=relu"}), 0);
  expect({checkpoint_program(), "export", run, out, "--no-comparison"}, 0);
  const auto text_of = [&](const std::string& source) {
    expect({generate_program(), source, "--prompt", "Once upon", "--greedy", "--output", output, "--force"}, 0);
    return contents_of(output);
  };
  const auto imported_text = [&](const std::string& name) {
    expect({checkpoint_program(), "import", out, folder.file(name), "--no-comparison"}, 0);
    return text_of(folder.file(name));
  };
  const std::string own = text_of(run);
  CHECK(imported_text("same") == own);
  CHECK(lines_of(own).at(0).at("tokens").size() == 100);  // more than model.decoder_sequence_length

  auto config = nlohmann::json::parse(contents_of(out + "/config.json"));
  const nlohmann::json start = config.at("decoder_start_token_id");
  config["decoder_start_token_id"] = 11;
  write_file(out + "/config.json", config.dump());
  CHECK(imported_text("begun") != own);
  expect({checkpoint_program(), "export", folder.file("begun"), folder.file("again"), "--no-comparison"}, 0);
  CHECK(nlohmann::json::parse(contents_of(folder.file("again/config.json"))).at("decoder_start_token_id") == 11);
  config["decoder_start_token_id"] = "x";
  write_file(out + "/config.json", config.dump());
  expect({checkpoint_program(), "import", out, folder.file("bad"), "--no-comparison"}, 4,
         {"\"decoder_start_token_id\" is \"x\""});

  config["decoder_start_token_id"] = start;
  write_file(out + "/config.json", config.dump());
  auto tokenizer = nlohmann::json::parse(contents_of(out + "/tokenizer.json"));
  tokenizer["post_processor"] = {{"type", "BertProcessing"}, {"sep", {"[SEP]", 3}}, {"cls", {"[CLS]", 2}}};
  write_file(out + "/tokenizer.json", tokenizer.dump());
  CHECK(imported_text("ended") != own);
  const std::string state = contents_of(folder.file("ended") + "/manifest.json");
  CHECK(mentions(state, "\"encoder_begin\": 2"));
  CHECK(mentions(state, "\"encoder_end\": 3"));
}
