// Plans of sizes beyond any machine, within the ranges that the keys allow: a plan or a clear error, in seconds.
#include "faults/runs.h"
#include "support/catch.h"

namespace {

Command planned(const std::string& input, const std::vector<std::string>& options) {
  // 8 GB of addresses: a machine's memory must not decide.
  Command command = {"bash", "-c", "ulimit -v 8000000; exec \"$@\"", "bash", train_program(), input, "--dry-run"};
  for (const std::string& option : options) {
    const bool setting = !option.starts_with("--") && option.find('=') != std::string::npos;
    if (setting) command.push_back("--set");
    command.push_back(option);
  }
  return command;
}

}  // namespace

TEST_CASE("a dry run of the largest sizes that keys allow ends in seconds", "[fault-80]") {
  const TemporaryFolder folder;
  write_file(folder.file("input.toml"), R"([model]
layers = 4
hidden_size = 32
attention_heads = 4
sequence_length = 16
vocab_size = 256
[train]
steps = 8
micro_batch_size = 2
global_batch_size = 8
[data]
train = "none"
[run]
device = "cpu"
directory = ")" + folder.file("run") + "\"\n");
  const std::string extent = "16777216", batch = "train.global_batch_size=1073741824", one = "train.micro_batch_size=1";
  struct Case {
    std::vector<std::string> options;
    int code;
    const char* words;  ///< part of the error
  };
  const Case cases[] = {
      {{"model.layers=65536"}, 0, ""},
      {{"model.layers=65537"}, 2, "model.layers = 65537 is out of range"},
      {{"model.layers=65536", "recompute.mode=full"}, 0, ""},
      {{"model.hidden_size=" + extent}, 0, ""},
      {{"model.sequence_length=" + extent}, 0, ""},
      {{"model.vocab_size=1073741824"}, 0, ""},
      {{batch, one}, 2, "too many to plan; raise train.micro_batch_size"},
      {{batch, "train.micro_batch_size=" + extent}, 0, ""},
      {{batch, one, "parallel.pipeline=4"}, 2, "too many to plan; raise train.micro_batch_size"},
      {{batch, one, "parallel.data=" + extent}, 0, ""},
      {{batch, one, "parallel.data=" + extent, "optimizer.share=state"}, 2, "16777216 data ranks: too many to plan"},
      {{batch, one, "--ranks", "1073741824"}, 2, "more than can be planned"},
      {{"--ranks", "2147483647"}, 2, "is not a multiple of"},
      {{"model.layers=65536", "parallel.pipeline=65536"}, 2, "more than can be planned"},
      {{"model.layers=4096", "parallel.pipeline=4096", "train.global_batch_size=8192"}, 2, "too many to plan"},
      {{"model.layers=65536", "parallel.pipeline=2", "parallel.virtual_stages=32768", "parallel.schedule=interleaved"},
       2,
       "too many to plan; lower parallel.virtual_stages"},
      {{"model.layers=2048", "parallel.pipeline=2", "parallel.virtual_stages=1024", "parallel.schedule=interleaved"},
       0,
       ""},
      {{"model.hidden_size=" + extent, "model.attention_heads=" + extent, "parallel.tensor=" + extent,
        "model.vocab_multiple=" + extent},
       0,
       ""},
      {{batch, "train.batch_ramp_up={start=2, increment=2, samples=1000000000000000}"}, 2, "raise the increment"},
      {{"train.global_batch_size=8192", "train.batch_ramp_up={start=2, increment=2, samples=1000000}"}, 0, ""},
      {{"train.global_batch_size=8192", "train.batch_ramp_up={start=2, increment=2, samples=1000000000000}",
        "train.steps=1000000000"},
       2,
       "too many to plan; raise its increment"},
      {{"train.curriculum={schedule=\"fixed_root\", start=8, steps=1073741824}", "train.steps=1000000000000",
        "model.sequence_length=" + extent},
       0,
       ""},
  };
  std::vector<Command> commands;
  for (const Case& each : cases) commands.push_back(planned(folder.file("input.toml"), each.options));
  const std::vector<Finished> all = run_commands(commands, 2, 60);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(commands[i], all[i].seconds);
    INFO(all[i].err);
    CHECK_FALSE(all[i].timed_out);
    CHECK(all[i].code == cases[i].code);
    CHECK(mentions(all[i].err, cases[i].words));
  }
}
