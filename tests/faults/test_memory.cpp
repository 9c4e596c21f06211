// Memory told before and kept after, of whole programs: what the banner predicts is what buffers hold at the end, and
// what the operating system says was resident is that and the program itself.
#include <sstream>

#include "faults/runs.h"
#include "support/catch.h"

namespace {

/// "NAME   min UNIT  average UNIT  max UNIT" of the table at a run's end, in MiB.
std::vector<double> row(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + "  ")) continue;
    std::istringstream words(line.substr(name.size()));
    std::vector<double> values;
    double value = 0;
    for (std::string unit; words >> value >> unit;) {
      values.push_back(unit == "GiB" ? 1024 * value : unit == "KiB" ? value / 1024 : value);
    }
    return values;
  }
  return {};
}

}  // namespace

TEST_CASE("resident memory is what was predicted, and 30 to 80 MiB of program") {
  struct Case {
    Layout layout;
    Settings settings;
  };
  // 35 to 140 MiB of buffers a rank; with 16 bits some of it for the tiles of matrix products.
  const Case cases[] = {
      {kOneRank, {"recompute.mode=full"}},
      {{.tensor = 2}, {"parallel.sequence_parallel=true", "precision.compute=bf16"}},
      {{.tensor = 2, .pipeline = 2}, {}},
      {{.pipeline = 2, .data = 2}, {"parallel.schedule=gpipe", "optimizer.share=state"}},
  };
  for (const Case& test : cases) {
    Settings settings = {"model.hidden_size=256",     "model.layers=8",
                         "model.sequence_length=256", "train.steps=2",
                         "train.evaluate_every=1",    "train.global_batch_size=8",
                         "model.hidden_dropout=0",    "model.attention_dropout=0",
                         "checkpoint.every_steps=1",  "learning_rate.warmup_steps=0"};
    settings.insert(settings.end(), test.settings.begin(), test.settings.end());
    const TemporaryFolder folder;
    const Finished run = train(test.layout, folder.file("run"), settings, 120);
    INFO(test.layout.name() << "\n" << run.out);
    const std::vector<double> predicted = row(run.out, "predicted"), used = row(run.out, "used"),
                              resident = row(run.out, "peak resident");
    REQUIRE(resident.size() == 3);
    CHECK(used == predicted);
    CHECK(run.out.find("  as predicted, to the byte\n") != std::string::npos);  // the table rounds
    CHECK(predicted[0] > 30);
    // As the plan says. Open MPI keeps more messages, and the heaps have other holes, on a machine that is busy.
    for (std::size_t i = 0; i < resident.size(); ++i) {
      CAPTURE(i);
      CHECK(resident[i] > predicted[i] + 30);
      CHECK(resident[i] < predicted[i] + 80);
    }
  }
}

TEST_CASE("memory: a run too large for the node is refused before it allocates") {
  const TemporaryFolder folder;
  const Finished run =
      run_command(training({.tensor = 2}, folder.file("run"), {"model.hidden_size=65536", "model.layers=96"}), 60);
  INFO(run.out << run.err);
  CHECK(run.code == 2);
  CHECK(error_lines(run) == 1);
  CHECK(mentions(run.err, "the ranks on "));
  CHECK(mentions(run.err, "together, and "));
  CHECK(mentions(run.err, "are free there; use fewer ranks per node"));
  CHECK(mentions(run.out, "memory per rank"));  // the plan comes before
}
