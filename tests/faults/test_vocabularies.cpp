// A vocabulary on its way: from preprocessing next to the shards, through training into the run, to generated text; and
// every place where another one is noticed.
#include "faults/checks.h"
#include "support/catch.h"

namespace fs = std::filesystem;

namespace {

Finished generated(const std::string& source, const std::vector<std::string>& options = {}) {
  Command command = {generate_program(), source, "--prompt", "Once upon a", "--max-new-tokens", "20", "--seed", "5"};
  command.insert(command.end(), options.begin(), options.end());
  return run_command(command, 30);
}

Finished require_ended(Finished finished, int code, const std::vector<std::string>& words = {}) {
  INFO(finished.out << finished.err);
  REQUIRE(finished.code == code);
  if (code != 0) CHECK(error_lines(finished) == 1);
  for (const std::string& word : words) {
    CAPTURE(word);
    CHECK(mentions(finished.out + finished.err, word));
  }
  return finished;
}

/// Shards by the small vocabulary of the golden files (prefix "data/right"), by another one with the same tokens and
/// ids
/// ("data/other"), and a run of two steps on the former.
struct Vocabularies {
  TemporaryFolder folder;
  std::string right = folder.file("data/right"), other = folder.file("data/other"),
              other_merge_file = folder.file("other.txt"), run = folder.file("run");

  Vocabularies() {
    write_file(other_merge_file, other_merges());
    require_ended(run_command(launched(2, preprocess_with_vocabulary(right, small_vocabulary("merges.txt")))), 0);
    require_ended(run_command(preprocess_with_vocabulary(other, other_merge_file)), 0);
    require_ended(run_training(run, {}), 0);
  }

  Finished run_training(const std::string& directory, Settings settings, const std::string& data = "") const {
    settings.insert(settings.begin(),
                    {"data.train=" + (data.empty() ? right : data), "train.steps=2", "checkpoint.every_steps=1"});
    return run_command(training(kOneRank, directory, settings));
  }
};

}  // namespace

TEST_CASE("an export of SentencePiece's vocabulary says who reads it") {
  const TemporaryFolder folder;
  const std::string model = source_folder() + "/tests/golden/tokenizer_kinds/spm_llama.model",
                    prefix = folder.file("set");
  const std::string run = folder.file("run"), corpus = folder.file("corpus.jsonl");
  write_file(corpus, "{\"text\": \"" + std::string(3000, 'a') + "\"}\n");
  require_ended(run_command({preprocess_program(), "--input", corpus, "--output", prefix, "--tokenizer",
                             "sentencepiece", "--vocab-file", model}),
                0);
  require_ended(run_command(training(kOneRank, run, {"data.train=" + prefix, "train.steps=1"})), 0);
  require_ended(run_command({checkpoint_program(), "export", run, folder.file("exported")}), 0,
                {"warning: tokenizer.model is the tokenizer's only file", "SentencePieceProcessor"});
}

TEST_CASE("a run keeps its vocabulary, and text is made from it wherever it lies") {
  const Vocabularies world;
  CHECK((contents_of(world.right + ".vocab.json") == contents_of(small_vocabulary("vocab.json"))));
  for (const char* file : {"vocab.json", "merges.txt"}) {
    CHECK((contents_of(world.run + "/tokenizer/" + file) == contents_of(small_vocabulary(file))));
  }
  const std::string text = require_ended(generated(world.run), 0).out;
  CHECK(text.rfind("Once upon a", 0) == 0);
  CHECK(require_ended(generated(checkpoint(world.run, 2)), 0).out == text);
  CHECK(require_ended(generated(checkpoint(world.run, 2) + "/"), 0).out == text);
  write_file(world.run + "/tokenizer/tokenizer.json", "{");  // the hash tells which files are the checkpoint's
  CHECK(require_ended(generated(world.run), 0).out == text);
  fs::remove(world.run + "/tokenizer/tokenizer.json");
  const std::string moved = world.folder.file("moved");
  fs::rename(world.run, moved);
  fs::remove_all(world.folder.file("data"));
  CHECK(require_ended(generated(moved), 0).out == text);

  const std::vector<std::string> files = {"--vocab-file", small_vocabulary("vocab.json"), "--merge-file",
                                          small_vocabulary("merges.txt")};
  CHECK(require_ended(generated(moved, files), 0).out == text);
  CHECK(require_ended(generated(moved, {files[0], files[1]}), 0).out == text);  // merges.txt next to vocab.json
  require_ended(generated(moved, {files[0], files[1], files[2], world.other_merge_file}), 4,
                {"another 'gpt2' vocabulary", "hash"});
  fs::remove(moved + "/tokenizer/merges.txt");
  require_ended(generated(moved), 3, {"tokenizer/merges.txt", "--vocab-file"});
  CHECK(require_ended(generated(moved, files), 0).out == text);
  fs::copy_file(world.other_merge_file, moved + "/tokenizer/merges.txt");
  require_ended(generated(moved), 4, {"hash"});
  write_file(moved + "/tokenizer/merges.txt", "cut");
  require_ended(generated(moved), 4, {"tokenizer/merges.txt:1:", "--vocab-file"});
}

TEST_CASE("another vocabulary is noticed when training, resuming and evaluating") {
  const Vocabularies world;
  require_ended(world.run_training(world.run, {"train.steps=4"}, world.other), 4, {"tokenizer_hash"});
  require_ended(world.run_training(world.folder.file("new"), {"checkpoint.initialize_from=" + world.run}, world.other),
                4, {"tokenizer_hash"});
  require_ended(world.run_training(world.folder.file("new2"), {"data.validation=" + world.other}), 3,
                {"another tokenizer", "hash"});
  // A lost or damaged copy in the run is made again from the files next to the shards.
  write_file(world.run + "/tokenizer/vocab.json", "{");
  require_ended(world.run_training(world.run, {"train.steps=3"}), 0);
  CHECK((contents_of(world.run + "/tokenizer/vocab.json") == contents_of(small_vocabulary("vocab.json"))));
  // The right one of several next to the shards is taken.
  write_file(world.right + ".tokenizer.json", "{");
  require_ended(world.run_training(world.folder.file("stray"), {}), 0);
  CHECK((contents_of(world.folder.file("stray/tokenizer/merges.txt")) == contents_of(small_vocabulary("merges.txt"))));
  fs::remove(world.right + ".tokenizer.json");
  // Shards alone are enough to train on.
  fs::remove(world.right + ".vocab.json");
  require_ended(world.run_training(world.folder.file("bare"), {}), 0, {"right.vocab.json", "warning", "--vocab-file"});
  CHECK_FALSE(fs::exists(world.folder.file("bare/tokenizer")));
  require_ended(generated(world.folder.file("bare")), 3, {"tokenizer/vocab.json", "--vocab-file"});
  // Where it lies next to another set of a blend, or of a folder, it is taken from there.
  const std::string second = world.folder.file("data/second");
  require_ended(run_command(preprocess_with_vocabulary(second, small_vocabulary("merges.txt"))), 0);
  require_ended(
      world.run_training(world.folder.file("blend"), {},
                         "[{path = \"" + world.right + "\", weight = 1}, {path = \"" + second + "\", weight = 1}]"),
      0);
  CHECK((contents_of(world.folder.file("blend/tokenizer/vocab.json")) == contents_of(small_vocabulary("vocab.json"))));
  fs::copy_file(small_vocabulary("vocab.json"), world.right + ".vocab.json");
  fs::copy_file(world.other_merge_file, world.right + ".merges.txt", fs::copy_options::overwrite_existing);
  require_ended(world.run_training(world.folder.file("mixed"), {}), 3, {"right.merges.txt", "another vocabulary"});
}

TEST_CASE("vocabularies: WordPiece from text to generated text and its refusals") {
  const TemporaryFolder folder;
  const std::string vocabulary = source_folder() + "/tests/golden/tokenizer_kinds/bert_uncased.txt";
  const std::string prefix = folder.file("data/bert"), run = folder.file("run"), spoilt = folder.file("spoilt.txt");
  const auto shards = [&](const std::string& file, const std::vector<std::string>& more = {}) {
    Command command = {preprocess_program(), "--input",      (shared_folder() / "corpus.jsonl").string(),
                       "--output",           prefix,         "--tokenizer",
                       "bert-uncased",       "--vocab-file", file};
    command.insert(command.end(), more.begin(), more.end());
    return run_command(command, 60);
  };
  const std::string lines = contents_of(vocabulary);
  write_file(spoilt, lines + "[MASK]\n");
  require_ended(shards(spoilt), 3, {"spoilt.txt:", "\"[MASK]\" is there twice"});
  write_file(spoilt, lines.substr(lines.find('\n') + 1));
  require_ended(shards(spoilt), 3, {"spoilt.txt:", "no token [PAD]"});
  require_ended(shards(folder.file("absent.txt")), 3, {"absent.txt"});
  require_ended(shards(vocabulary, {"--merge-file", vocabulary}), 2, {"--merge-file"});
  require_ended(shards(vocabulary, {"--extra-ids", "-1"}), 2, {"--extra-ids -1"});
  CHECK_FALSE(fs::exists(folder.file("data")));

  require_ended(shards(vocabulary, {"--extra-ids", "2"}), 0, {"bert-uncased"});
  const std::string kept = lines + "[BOS]\n[EOS]\n<extra_id_0>\n<extra_id_1>\n";
  CHECK((contents_of(prefix + ".vocab.txt") == kept));
  require_ended(
      run_command(training(kOneRank, run, {"data.train=" + prefix, "train.steps=2", "checkpoint.every_steps=2"})), 0);
  CHECK((contents_of(run + "/tokenizer/vocab.txt") == kept));
  const std::string text = require_ended(generated(run), 0).out;
  CHECK(text.rfind("Once upon a", 0) == 0);
  CHECK(require_ended(generated(run, {"--vocab-file", prefix + ".vocab.txt"}), 0).out == text);
  require_ended(
      generated(run, {"--vocab-file", vocabulary}), 4,
      {"another 'bert-uncased' vocabulary", "leave --vocab-file out: " + run + "/tokenizer/ has the right one"});
  fs::remove_all(run + "/tokenizer");
  require_ended(generated(run, {"--vocab-file", vocabulary}), 4, {"with --extra-ids", "PREFIX.vocab.txt"});
  require_ended(generated(run), 3, {"tokenizer/vocab.txt", "--vocab-file"});
}

TEST_CASE("a WordPiece vocabulary is learned, and used at once") {
  const TemporaryFolder folder;
  const std::string corpus = (shared_folder() / "corpus.jsonl").string(), vocabulary = folder.file("vocabulary");
  const auto learn = [&](const std::vector<std::string>& more) {
    Command command = {preprocess_program(), "train-tokenizer", "--input", corpus, "--output", vocabulary};
    command.insert(command.end(), more.begin(), more.end());
    return run_command(command, 60);
  };
  require_ended(learn({"--type", "sentence"}), 2, {"bpe wordpiece unigram"});
  require_ended(learn({"--type", "wordpiece", "--extra-ids", "5"}), 2, {"--extra-ids 5", "--type unigram"});
  require_ended(learn({"--cased"}), 2, {"--cased"});
  require_ended(learn({"--type", "wordpiece", "--vocab-size", "63"}), 2, {"--vocab-size 63"});
  CHECK_FALSE(fs::exists(vocabulary));
  require_ended(learn({"--type", "wordpiece", "--vocab-size", "200"}), 0, {"200 tokens (for bert-uncased)"});
  const std::string lines = contents_of(vocabulary + "/vocab.txt");
  CHECK(lines.starts_with("[PAD]\n[UNK]\n"));
  require_ended(learn({"--type", "wordpiece", "--vocab-size", "200"}), 0);
  require_ended(learn({"--type", "wordpiece", "--vocab-size", "150"}), 2,
                {"vocab.txt is there already", "--overwrite"});
  CHECK((contents_of(vocabulary + "/vocab.txt") == lines));
  require_ended(run_command({preprocess_program(), "--input", corpus, "--output", folder.file("set"), "--tokenizer",
                             "bert-uncased", "--vocab-file", vocabulary + "/vocab.txt"}),
                0, {"bert-uncased"});
}

TEST_CASE("a Unigram vocabulary is learned, and broken ones are refused") {
  const TemporaryFolder folder;
  const std::string corpus = (shared_folder() / "corpus.jsonl").string(), vocabulary = folder.file("vocabulary");
  const std::string file = vocabulary + "/tokenizer.json";
  const auto learn = [&](const std::string& size) {
    return run_command({preprocess_program(), "train-tokenizer", "--type", "unigram", "--extra-ids", "10", "--input",
                        corpus, "--output", vocabulary, "--vocab-size", size},
                       60);
  };
  const auto preprocess = [&](const std::string& tokenizer, const std::string& path, const std::string& extra_ids) {
    return run_command({preprocess_program(), "--input", corpus, "--output", folder.file("set"), "--tokenizer",
                        tokenizer, "--vocab-file", path, "--extra-ids", extra_ids});
  };
  require_ended(learn("73"), 2, {"--vocab-size 73", "at least 74"});
  CHECK_FALSE(fs::exists(vocabulary));
  require_ended(learn("200"), 0, {"(10 sentinels)"});
  const std::string learned = contents_of(file);
  require_ended(learn("200"), 0);
  CHECK((contents_of(file) == learned));
  require_ended(preprocess("unigram", file, "11"), 3, {"tokenizer.json:1:", "has 10 sentinels"});
  require_ended(preprocess("sentencepiece", file, "0"), 2, {"--tokenizer unigram"});
  require_ended(preprocess("byte", file, "3"), 2, {"--extra-ids"});
  write_file(folder.file("cut.json"), learned.substr(0, learned.size() / 2));
  require_ended(preprocess("unigram", folder.file("cut.json"), "0"), 3, {"cut.json:1:", "not a tokenizer.json"});
  write_file(folder.file("cut.model"), "no model");
  require_ended(preprocess("sentencepiece", folder.file("cut.model"), "0"), 3,
                {"cut.model: no model of SentencePiece"});
  CHECK_FALSE(fs::exists(folder.file("set-00000.h5")));
  require_ended(preprocess("unigram", file, "10"), 0, {"unigram"});
  CHECK((contents_of(folder.file("set.tokenizer.json")) == learned));
}
