// megatron_checkpoint as users call it: without a launcher, on what real runs leave, whole and damaged.
#include <sstream>

#include "faults/runs.h"
#include "support/catch.h"

namespace fs = std::filesystem;

namespace {

Finished tool(const Command& arguments) {
  Command command = {checkpoint_program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_command(command, 60);
}

Finished tool_done(const Command& arguments) {
  const Finished finished = tool(arguments);
  INFO(finished.err);
  REQUIRE(finished.code == 0);
  return finished;
}

void tool_refused(const Command& arguments, int code, const std::string& part) {
  const Finished finished = tool(arguments);
  INFO(finished.err);
  CHECK(finished.code == code);
  CHECK(error_lines(finished) == 1);
  CHECK(mentions(finished.err, part));
}

/// Name and contents of all files of a checkpoint.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = contents_of(entry.path().string());
  }
  return files;
}

std::vector<std::string> text_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// How the model continues a prompt.
std::string text_of(const std::string& source) {
  const Finished made = run_command({generate_program(), source, "--prompt", "Once", "--max-new-tokens", "12"}, 60);
  CHECK(made.code == 0);
  return made.out;
}

}  // namespace

TEST_CASE("list: all checkpoints of a run, the newest and the best of them", "[fault-121]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  train(kOneRank, run,
        {"checkpoint.keep_best=true", "train.evaluate_every=4", "checkpoint.every_steps=3", "checkpoint.keep_last=0"});
  std::string name = contents_of(run + "/checkpoints/best");
  name.pop_back();
  const std::string out = tool_done({"list", run}).out;
  INFO(out);
  CHECK(text_lines(out).size() == saved_steps(run).size());
  CHECK(mentions(text_lines(out)[0], checkpoint(run, 8) + "  "));
  CHECK(mentions(text_lines(out)[0], "newest"));
  for (const std::string& line : text_lines(out)) {
    CAPTURE(line);
    CHECK(mentions(line, "lowest validation loss, ") == mentions(line, name + "  "));
  }
  fs::remove(checkpoint(run, 6) + "/rank_00000.h5");
  CHECK(mentions(tool_done({"list", run}).out, checkpoint(run, 6) + "  cannot be used: "));
  tool_refused({"list", checkpoint(run, 8)}, 4, "is one checkpoint; list takes a run directory");
}

TEST_CASE("verify --all: every checkpoint is read, also after a damaged one") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  copy_run(straight_run(kCube), run, 3);
  CHECK(mentions(tool_done({"verify", run, "--all"}).out, "step 1 is in order: 8 files"));
  const std::string file = checkpoint(run, 2) + "/rank_00000.h5";
  std::string bytes = contents_of(file);
  bytes[bytes.size() / 2] ^= 1;
  write_file(file, bytes);
  CHECK(mentions(tool_done({"verify", run}).out, "step 3 is in order"));
  const Finished found = run_command({checkpoint_program(), "verify", run, "--all"});
  CHECK(found.code == 4);
  for (const char* words : {"step 3 is in order", "rank_00000.h5 are not what was saved", "step 1 is in order"}) {
    CHECK(mentions(found.out, words));
  }
  CHECK(mentions(found.err, ": 1 of 3 checkpoints damaged (see above)"));
}

TEST_CASE("info, verify and diff of a run") {
  const std::string& run = straight_run(kCube);
  const Finished info = tool_done({"info", run, "--tensors"});
  CHECK(mentions(info.out, "step           8 (64 samples"));
  CHECK(mentions(info.out, "optimizer      m, v\n"));
  CHECK(mentions(info.out, "8 of 8 ranks"));
  CHECK(mentions(info.out, "tensor 2 x pipeline 2 x data 2 ranks"));
  CHECK(mentions(info.out, "\n[model]\nlayers = 4\nhidden_size = 32\n"));  // keys as an input file has them
  CHECK_FALSE(mentions(info.out, "padded_vocab"));
  CHECK(mentions(info.out, "layers.3.mlp.down.bias [32]"));
  CHECK(mentions(tool_done({"verify", run}).out, "step 8 is in order: 8 files"));
  const std::string same = tool_done({"diff", run, checkpoint(run, 8)}).out;
  CHECK(mentions(same, ": equal\nlargest difference 0\n"));
  CHECK(mentions(same, "tensors compared"));
  CHECK_FALSE(mentions(same, "layers."));  // no rows of zeros
  const auto hash = info.out.find("tokenizer_hash ") + 15;
  CHECK(info.out.find_first_not_of("0123456789abcdef", hash) == hash + 16);  // 16 digits
  const Finished differ = tool({"diff", run, checkpoint(run, 7)});
  CHECK(differ.code == 1);
  CHECK(differ.err.empty());
  CHECK(mentions(differ.out, "step: 8 and 7"));
  CHECK(mentions(differ.out, "updates: 8 and 7"));
  CHECK(mentions(differ.out, "NOT equal"));
  const auto last = differ.out.rfind('\n', differ.out.size() - 2) + 1;
  CHECK(differ.out.compare(last, 19, "largest difference ") == 0);
  CHECK(mentions(differ.out.substr(last), " of "));
  const std::string seven = checkpoint(run, 7);
  CHECK(mentions(tool_done({"diff", run, seven, "--weights-only", "--tolerance", "1"}).out, ": equal within 1\n"));
  CHECK(tool({"diff", run, seven, "--weights-only", "--tolerance", "1e-9"}).code == 1);
  CHECK(tool({"diff", run, seven, "--tolerance", "1"}).code == 1);  // another step
  CHECK(tool({"diff", run, seven, "--tolerance", "-1"}).code == 2);
}

TEST_CASE("a merged run is one file, equal to it, and text comes out of it") {
  const TemporaryFolder folder;
  const std::string& run = straight_run(kCube);
  const std::string merged = folder.file("merged");
  CHECK(mentions(tool_done({"merge", run, merged}).out, "1 file"));
  CHECK(folder.files() == std::vector<std::string>{"manifest.json", "rank_00000.h5"});
  tool_done({"verify", merged});
  tool_done({"diff", run, merged});
  tool_done({"reshape", merged, folder.file("cube"), "--tensor", "2", "--pipeline", "2", "--data", "2"});
  CHECK((files_of(folder.file("cube")) == files_of(checkpoint(run, 8))));
  CHECK(text_of(merged) == text_of(run));
}

TEST_CASE("merge: incomplete or mixed or damaged checkpoints end with 4", "[fault-23]") {
  const TemporaryFolder folder;
  const std::string source = folder.file("source"), target = folder.file("target");
  const auto fresh = [&] {
    fs::remove_all(source);
    fs::copy(checkpoint(straight_run(kCube), 8), source);
  };
  const auto must_fail = [&](const std::string& part) {
    for (const Command& command : {Command{"merge", source, target},
                                   {"verify", source},
                                   {"reshape", source, target, "--tensor", "1", "--pipeline", "2"}}) {
      CAPTURE(command[0]);
      tool_refused(command, 4, part);
    }
    fs::remove_all(source);
    CHECK(folder.files().empty());
  };
  fresh();
  fs::remove(source + "/rank_00005.h5");
  must_fail("rank_00005.h5 is missing");
  fresh();  // the same rank at another step: the right size, other contents
  fs::copy_file(checkpoint(straight_run(kCube), 7) + "/rank_00003.h5", source + "/rank_00003.h5",
                fs::copy_options::overwrite_existing);
  must_fail("rank_00003.h5 are not what was saved");
  fresh();  // two ranks of one step in each other's place
  fs::rename(source + "/rank_00000.h5", source + "/swapped");
  fs::rename(source + "/rank_00001.h5", source + "/rank_00000.h5");
  fs::rename(source + "/swapped", source + "/rank_00001.h5");
  must_fail("rank_0000");
  fresh();
  fs::resize_file(source + "/rank_00007.h5", 100);
  must_fail("rank_00007.h5 has 100 bytes");
  fresh();
  std::string bytes = contents_of(source + "/rank_00002.h5");
  bytes[bytes.size() / 2] ^= 1;
  write_file(source + "/rank_00002.h5", bytes);
  must_fail("rank_00002.h5 are not what was saved");
  fresh();
  fs::remove(source + "/manifest.json");
  must_fail("manifest.json is missing");
}

TEST_CASE("a run that is exported and imported again is the same model") {
  const TemporaryFolder folder;
  const std::string& run = straight_run(kCube);
  const std::string exported = folder.file("exported"), imported = folder.file("imported");
  const Finished out =
      tool_done({"export", run, exported, "--max-shard-size", "40kB", "--logits", folder.file("out.json")});
  CHECK(mentions(out.out, "largest difference 0,"));
  CHECK(fs::exists(exported + "/model.safetensors.index.json"));
  CHECK(mentions(contents_of(exported + "/config.json"), "GPT2LMHeadModel"));
  const Finished in = tool_done({"import", exported, imported, "--logits", folder.file("in.json")});
  CHECK(mentions(in.out, "largest difference 0,"));
  CHECK(in.err.empty());
  CHECK(contents_of(folder.file("in.json")) == contents_of(folder.file("out.json")));
  tool_done({"verify", imported});
  CHECK(text_of(imported) == text_of(run));

  const std::string compared = tool_done({"diff", run, imported, "--weights-only"}).out;
  CHECK(mentions(compared, "rows of 1 tensor beyond the vocabulary pad it and are left out\n"));  // zero now
  CHECK(mentions(compared, ": equal\nlargest difference 0\n"));
  CHECK(mentions(tool({"diff", run, imported}).out, "embedding.word.weight; "));
  const std::string again = folder.file("again"), narrow = folder.file("narrow");
  tool_done({"export", imported, again, "--max-shard-size", "40KB", "--no-comparison"});
  auto first = files_of(exported), second = files_of(again);
  for (auto* files : {&first, &second}) files->erase("config.json");  // it has the step
  CHECK((first == second));
  tool_done({"export", imported, narrow, "--dtype", "bf16"});
  tool_done({"import", narrow, folder.file("rounded"), "--no-comparison"});
  tool_done({"diff", run, folder.file("rounded"), "--weights-only", "--tolerance", "0.01"});  // padding differs by more
  tool_done({"export", imported, folder.file("wide")});
  const auto bytes = [](const std::string& model) { return fs::file_size(model + "/model.safetensors"); };
  CHECK(2 * bytes(narrow) < bytes(folder.file("wide")) + 16'000);  // the headers are of a length
}

TEST_CASE("an imported model trains from the input-file part written with it") {
  const TemporaryFolder folder;
  const std::string exported = folder.file("exported"), imported = folder.file("imported model");
  tool_done({"export", straight_run(kCube), exported, "--no-comparison"});
  const std::string out = tool_done({"import", exported, imported}).out;
  CHECK(mentions(out, imported + "/model.toml: its [model] for an input file"));
  const std::string part = contents_of(imported + "/model.toml");
  CHECK(mentions(part, "\n#   initialize_from = \"" + imported + "\"\n"));
  CHECK(mentions(part, "--tokenizer byte\n"));
  CHECK(mentions(tool_done({"info", imported}).out,
                 "\n" + part.substr(part.find("[model]"))));  // as an input file has them

  const std::string input = folder.file("tuned.toml"), run = folder.file("run");
  write_file(input, part + "[data]\ntrain = \"" + data_prefix() + "\"\n[train]\nsteps = 1\nglobal_batch_size = 8\n" +
                        "[checkpoint]\ninitialize_from = \"" + imported + "\"\n[run]\ndirectory = \"" + run + "\"\n");
  for (const Command& command : {Command{train_program(), input, "--dry-run"}, Command{train_program(), input}}) {
    const Finished finished = run_command(command);
    INFO(finished.err);
    REQUIRE(finished.code == 0);
  }
  // The first loss is that of the trained weights, not of random ones (ln 257 = 5.5).
  REQUIRE(losses(run).size() == 1);
  CHECK(losses(run)[0] < losses(straight_run(kCube))[0] - 0.1);
}

TEST_CASE("an export or import that fails says why and leaves nothing") {
  const TemporaryFolder folder;
  const std::string &run = straight_run(kCube), model = folder.file("model"), target = folder.file("target");
  tool_done({"export", run, model, "--no-comparison"});
  tool_refused({"export", run, target, "--format", "llama"}, 2, "model.position_embedding must be \"rope\"");
  tool_refused({"export", run, target, "--dtype", "fp8"}, 2, "none of fp32, bf16 and fp16");
  tool_refused({"export", run, target, "--max-shard-size", "5XB"}, 2, "--max-shard-size");
  tool_refused({"export", run, model}, 2, "is there already");
  tool_refused({"import", model, model}, 2, "is there already");
  tool_refused({"import", run, target}, 4, "config.json cannot be read");
  tool_refused({"import", model, target, "--vocab-size", "0"}, 2, "--vocab-size: 1 or more");
  tool_refused({"import", model, target, "--vocab-size", "1000"}, 4, "its tables have");
  tool_refused({"import", model, target, "--logits", "l", "--no-comparison"}, 2, "--logits excludes --no-comparison");
  for (const char* command : {"export", "import"}) {  // no more space half-way
    const Finished full = run_command({"sh", "-c", "ulimit -f 40; exec \"$@\"", "sh", checkpoint_program(), command,
                                       command == std::string("export") ? run : model, target, "--no-comparison"},
                                      60);
    INFO(full.err);
    CHECK(full.code == 7);
    CHECK(error_lines(full) == 1);
  }
  fs::resize_file(model + "/model.safetensors", 5000);
  tool_refused({"import", model, target}, 4, "model.safetensors");
  for (const auto& entry : fs::directory_iterator(folder.path())) CHECK(entry.path().filename() == "model");
}

TEST_CASE("megatron_checkpoint refuses what it does not understand with 2") {
  const TemporaryFolder folder;
  const std::string& run = straight_run(kCube);
  tool_refused({}, 2, "give a command");
  tool_refused({"mrege", run, folder.file("x")}, 2, "did you mean 'merge'?");
  tool_refused({"info"}, 2, "one name");
  tool_refused({"merge", run}, 2, "two names");
  tool_refused({"merge", run, folder.file("x"), "--tensor", "2"}, 2, "--tensor is no option of merge");
  tool_refused({"reshape", run, folder.file("x"), "--tensor", "2"}, 2, "--pipeline");
  tool_refused({"reshape", run, folder.file("x"), "--tensor", "0", "--pipeline", "2"}, 2, "1 or more");
  tool_refused({"reshape", run, folder.file("x"), "--tensor", "8", "--pipeline", "1"}, 2, "attention_heads");
  tool_refused({"reshape", run, folder.file("x"), "--tensor", "1", "--pipeline", "3"}, 2,
               "choose other --tensor, --pipeline or --virtual-stages");
  tool_refused({"merge", run, folder.path()}, 2, "is there already");
  tool_refused({"info", folder.file("nothing")}, 4, "is no folder");
  CHECK(mentions(tool_done({"--help"}).out, "  info SOURCE"));
  CHECK(mentions(tool_done({"--version"}).out, "megatron_checkpoint "));
  CHECK(folder.files().empty());
}
