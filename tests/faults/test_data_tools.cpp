// Data on its way through the programs: a vocabulary learned from the text, shards to Megatron-LM's files and back, and
// a blend that is trained, stopped and resumed on another layout.
#include <nlohmann/json.hpp>

#include "faults/checks.h"
#include "faults/runs.h"
#include "support/catch.h"
#include "support/needs_icu.h"
#include "support/temporary_folder.h"

namespace fs = std::filesystem;

namespace {

std::string corpus_file() {
  return (shared_folder() / "corpus.jsonl").string();
}

}  // namespace

TEST_CASE("a new vocabulary, from text to generated text", "[vocabulary]") {
  const TemporaryFolder folder;
  const std::string vocabulary = folder.file("vocabulary"), prefix = folder.file("data/own"), run = folder.file("run");
  expect(preprocess({"train-tokenizer", "--input", corpus_file(), "--output", vocabulary, "--vocab-size", "400"}), 0,
         {"400 tokens, 143 merges"});
  expect(preprocess({"--input", corpus_file(), "--output", prefix, "--tokenizer", "gpt2", "--vocab-file",
                     vocabulary + "/vocab.json", "--merge-file", vocabulary + "/merges.txt"}),
         0);
  train(kOneRank, run, {"data.train=" + prefix, "train.steps=2", "checkpoint.every_steps=2"});
  CHECK(fs::exists(run + "/tokenizer/merges.txt"));
  const auto text_of = [](const std::string& source) {
    return expect({generate_program(), source, "--prompt", "Once", "--max-new-tokens", "4"}, 0, {"Once"}).out;
  };
  const std::string text = text_of(run);
  // Its export has what AutoTokenizer loads, and an import keeps the tokenizer.
  const std::string exported = folder.file("exported"), imported = folder.file("imported");
  expect({checkpoint_program(), "export", run, exported}, 0);
  for (const char* file : {"vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"}) {
    CHECK(fs::exists(exported + "/" + file));
  }
  expect({checkpoint_program(), "import", exported, imported}, 0);
  CHECK(text_of(imported) == text);
  // So do a merged and a reshaped one, whether it was imported or trained.
  const std::string merged = folder.file("merged"), reshaped = folder.file("reshaped");
  expect({checkpoint_program(), "merge", imported, merged}, 0);
  expect({checkpoint_program(), "reshape", merged, reshaped, "--tensor", "2", "--pipeline", "1"}, 0);
  CHECK(text_of(reshaped) == text);
  fs::remove_all(merged);
  expect({checkpoint_program(), "merge", run, merged}, 0);
  CHECK(text_of(merged) == text);
  fs::remove_all(imported);
  write_file(exported + "/tokenizer.json", R"({"normalizer": {"type": "Nmt"}})");
  fs::remove(exported + "/vocab.json");
  nlohmann::json config = nlohmann::json::parse(contents_of(exported + "/config.json"));
  config.erase("megatron_train");  // our own key, which names the vocabulary
  write_file(exported + "/config.json", config.dump());
  expect({checkpoint_program(), "import", exported, imported}, 0, {"normalizer of type Nmt", "--data-prefix"});
  expect(preprocess({"train-tokenizer", "--input", corpus_file()}), 2, {"--output"});
  expect(preprocess({"train-tokenizer", "--input", corpus_file(), "--output", vocabulary, "--vocab-size", "257"}), 2,
         {"--vocab-size 257"});
  expect(preprocess({"train-tokenizer", "--input", folder.file("absent.jsonl"), "--output", vocabulary}), 3,
         {"absent.jsonl"});
  expect(preprocess({"train-tokenizer", "--help"}), 0, {"--least-count"});
  // A vocabulary that cannot be written as a whole is not written at all.
  fs::remove(vocabulary + "/merges.txt");
  fs::create_directories(vocabulary + "/merges.txt");
  const std::string older = contents_of(vocabulary + "/vocab.json");
  const std::vector<std::string> smaller{"train-tokenizer", "--input",      corpus_file(), "--output",
                                         vocabulary,        "--vocab-size", "300"};
  expect(preprocess(smaller), 2, {"vocab.json is there already", "--overwrite"});
  std::vector<std::string> overwriting = smaller;
  overwriting.push_back("--overwrite");
  expect(preprocess(overwriting), 7, {"merges.txt"});
  CHECK(contents_of(vocabulary + "/vocab.json") == older);
  for (const auto& entry : fs::directory_iterator(vocabulary)) CHECK(entry.path().extension() != ".tmp");
}

TEST_CASE("export and import are byte-exact, and their mistakes have exit codes") {
  const TemporaryFolder folder;
  const std::string out = folder.file("out"), back = folder.file("back"), again = folder.file("again");
  expect(preprocess({"export", data_prefix(), out}), 0, {"uint16"});
  expect(launched(2, preprocess({"import", out, back, "--tokenizer", "byte"})), 0);
  expect(preprocess({"export", back, again}), 0);
  CHECK((contents_of(out + ".bin") == contents_of(again + ".bin")));
  CHECK((contents_of(out + ".idx") == contents_of(again + ".idx")));
  expect(preprocess({"merge", data_prefix(), back, folder.file("twice")}), 0);
  expect(preprocess({"import", out, back}), 2, {"--tokenizer", "--vocab-size"});
  expect(preprocess({"import", out}), 2, {"usage", "import SOURCE TARGET"});
  expect(preprocess({"import", folder.file("absent"), back, "--tokenizer", "byte"}), 3, {"absent.bin"});
  expect(preprocess({"import", out, back, "--vocab-size", "100", "--eod-id", "1"}), 3, {"outside the vocabulary"});
  expect(preprocess({"import", out, "/proc/nowhere/back", "--tokenizer", "byte"}), 7, {"/proc/nowhere"});
  expect(preprocess({"export", data_prefix(), out, "--dtype", "float32"}), 2, {"float32"});
  const std::string bin = contents_of(out + ".bin");
  expect(preprocess({"export", data_prefix(), out, "--dtype", "int32"}), 2,
         {"out.bin is there already", "--overwrite"});
  CHECK((contents_of(out + ".bin") == bin));
  expect(preprocess({"export", data_prefix(), out}), 0);
  expect(preprocess({"export", data_prefix(), out, "--dtype", "int32", "--overwrite"}), 0, {"int32"});
  expect(preprocess({"import", "--help"}), 0, {"--skip-empty", "tokenizer.json"});
  expect(preprocess({"--help"}), 0,
         {"train-tokenizer", "--shard-bytes", "sample-corpus", "(scripts/download_vocab.sh fetches"});
}

TEST_CASE("preprocess: shards with sentences to Megatron-LM's files and back") {
  needs_icu();
  const TemporaryFolder folder;
  const std::string set = folder.file("set"), out = folder.file("out"), back = folder.file("back"),
                    again = folder.file("again");
  const auto make = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--input", corpus_file(), "--output", set});
    return preprocess(more);
  };
  expect(make({"--sentences", "punkt"}), 2, {"icu lines array"});
  expect(make({"--sentences", "lines", "--split-sentences"}), 2, {"--split-sentences"});
  expect(make({"--sentences", "lines", "--language", "de"}), 2, {"--language de"});
  expect(make({"--split-sentences", "--language", "nowhere"}), 2, {"--language nowhere"});
  expect(make({"--append-eod", "--no-append-eod"}), 2, {"--append-eod and --no-append-eod"});
  expect(make({"--sentences", "array"}), 3, {"corpus.jsonl:1:", "an array of strings"});
  expect(preprocess({"--output", set, "--split-sentences"}), 2, {"--input"});
  write_file(folder.file("empty.jsonl"), "{\"text\": \"\"}\n");
  expect(preprocess({"--input", folder.file("empty.jsonl"), "--output", set, "--split-sentences"}), 3,
         {"no text was found"});
  for (const auto& entry : fs::directory_iterator(folder.path())) CHECK(entry.path().extension() != ".h5");

  expect(launched(2, make({"--split-sentences"})), 0);
  const std::string shard = contents_of(set + "-00000.h5");
  expect(make({"--split-sentences", "--overwrite"}), 0);
  CHECK((contents_of(set + "-00000.h5") == shard));
  expect(preprocess({"export", set, out}), 0);
  expect(preprocess({"import", out, back, "--tokenizer", "byte"}), 3, {"--documents sentences"});
  expect(preprocess({"import", out, back, "--tokenizer", "byte", "--documents", "paragraphs"}), 2,
         {"exact joined sentences sequences"});
  expect(preprocess({"import", out, back, "--tokenizer", "byte", "--documents", "sentences"}), 0);
  expect(preprocess({"export", back, again}), 0);
  CHECK((contents_of(out + ".bin") == contents_of(again + ".bin")));
  CHECK((contents_of(out + ".idx") == contents_of(again + ".idx")));
  // A GPT trains on them as on others.
  train(kOneRank, folder.file("run"), {"data.train=" + set, "train.steps=2"});
}

TEST_CASE("preprocess: memory does not grow with the input", "[fault-124]") {
  const TemporaryFolder folder;
  const auto mebibytes = [&](int thousands) {
    const std::string text = folder.file("text");
    std::string all;
    for (int i = 0; i < 1000 * thousands; ++i)
      all += "The mill wheel turned, and line " + std::to_string(i) + " ran past the old bridge.\n\n";
    write_file(text, all);
    return stated_mebibytes(expect(preprocess({"--input", text, "--format", "text", "--output", folder.file("set"),
                                               "--tokenizer", "byte", "--overwrite"}),
                                   0)
                                .out);
  };
  const double small = mebibytes(60), large = mebibytes(480);  // for 4 and 34 MB
  CHECK(large < small + 15);
  CHECK(large < 96);
}

TEST_CASE("preprocess: another finished set is not replaced unasked") {
  const TemporaryFolder folder;
  const std::string set = folder.file("set"), other = folder.file("other.jsonl");
  const auto make = [&](const std::string& input, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--input", input, "--output", set});
    return launched(2, preprocess(more));
  };
  write_file(other, "{\"text\": \"other\"}\n");
  expect(make(corpus_file()), 0);
  const std::string shard = contents_of(set + "-00000.h5");
  expect(make(corpus_file()), 0, {"set exists already"});
  expect(make(other), 2, {"set-00000.h5 already holds another set", "--overwrite"});
  CHECK((contents_of(set + "-00000.h5") == shard));
  for (const auto& entry : fs::directory_iterator(folder.path())) CHECK(entry.path().extension() != ".tmp");
  expect(make(other, {"--overwrite"}), 0);
  CHECK((contents_of(set + "-00000.h5") != shard));
}

TEST_CASE("blend: same samples on every layout and no resume with other weights") {
  const TemporaryFolder folder;
  expect(preprocess({"sample-corpus", "--output", folder.file("b.jsonl"), "--megabytes", "0.1", "--seed", "9"}), 0);
  expect(preprocess({"--input", folder.file("b.jsonl"), "--output", folder.file("b")}), 0);
  for (const std::string order : {"epoch", "megatron", "megatron_core"}) {
    CAPTURE(order);
    const auto blend = [&](const char* weight, bool swapped = false) {
      std::string first = data_prefix(), second = folder.file("b");
      if (swapped) std::swap(first, second);
      return "data.train=[{path = \"" + first + "\", weight = " + weight + "}, {path = \"" + second +
             "\", weight = 1}]";
    };
    const auto samples = [&](const std::string& range) {
      return expect({train_program(), input_file(), "--print-samples", range, "--set", blend("3"), "--set",
                     "data.order=" + order},
                    0)
          .out;
    };
    CHECK(samples("0:4") + samples("4:8") == samples("0:12"));
    const std::string whole = folder.file(order + "_whole"), parts = folder.file(order + "_parts");
    const Settings settings = {blend("3"), "data.order=" + order, "checkpoint.every_steps=2"};
    train(kOneRank, whole, settings);
    Settings first_half = settings, second_half = settings;
    first_half.push_back("train.steps=4");
    if (order != "epoch") {
      for (Settings* half : {&first_half, &second_half}) half->push_back("data.order_samples=64");  // 8 steps of 8
    }
    train({1, 1, 2}, parts, first_half);
    Settings other = second_half;
    other[0] = blend("2");
    expect(training(kOneRank, parts, other), 4, {"blend_weights"});
    other[0] = blend("3", true);
    expect(training(kOneRank, parts, other), 4, {"blend_sets"});
    train({2, 1, 1}, parts, second_half);
    const std::vector<double> one = losses(whole), two = losses(parts);
    REQUIRE(one.size() == two.size());
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(one[i] == Approx(two[i]).epsilon(1e-4));
  }
}
