// Facts, free space, and whose directory it is.
#include "checkpoint/store/layouts.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("facts that differ are all listed with both values", "[checkpoint][fault-8]") {
  const nlohmann::json saved = {{"hidden_size", 64}, {"layers", 2}, {"gone", true}, {"model", {{"bias", true}}}};
  nlohmann::json current = saved;
  CHECK(compare_facts(saved, current).empty());
  CHECK_NOTHROW(require_same_facts(saved, current, "PATH", "some.key"));
  current["layers"] = 3;
  current["model"]["bias"] = false;
  current["new"] = "x";
  current.erase("gone");
  const auto differences = compare_facts(saved, current);
  REQUIRE(differences.size() == 4);
  CHECK(differences[0].key == "gone");
  CHECK(differences[0].saved == "true");
  CHECK(differences[0].current == "absent");
  CHECK(differences[1].key == "layers");
  CHECK(differences[2].key == "model.bias");
  CHECK(differences[3].current == "\"x\"");
  const Error error = error_of([&] { require_same_facts(saved, current, "PATH", "some.key"); });
  CHECK(error.exit_code() == 4);
  CHECK_THAT(error.what(), Contains("PATH") && Contains("another some.key") &&
                               Contains("layers: 2 in the checkpoint, 3 in this run") && Contains("model.bias: true") &&
                               Contains("gone") && Contains("new: absent"));
}

TEST_CASE("facts survive a save and a load as equal", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<GlobalTensor> tensors{{"a", {3}}};
  save_as(folder.file("run"), tensors, split_along(tensors, 1, 0), 1);
  const Loaded loaded = load_newest(folder.file("run"), tensors, split_along(tensors, 1, 0));
  CHECK(compare_facts(loaded.state.facts, state_at(1).facts).empty());
}

TEST_CASE("too little free space is told with both numbers", "[checkpoint][fault-45]") {
  const TemporaryFolder folder;
  CHECK_NOTHROW(check_free_space(folder.file("not/yet/there"), 1000));
  const Error error = error_of([&] { check_free_space(folder.file("not/yet/there"), std::int64_t{1} << 60); });
  CHECK(error.exit_code() == 7);
  CHECK_THAT(error.what(), Contains(std::to_string(std::int64_t{1} << 60)) && Contains("not/yet/there"));
  const std::int64_t bytes = room_for_checkpoint(3000000, 8);
  CHECK(bytes > 12000000);
  CHECK(bytes < 15000000);
}

TEST_CASE("the space that is asked for suffices", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<GlobalTensor> tensors{{"a", {300, 100}}};
  const SaveReport report = save_as(folder.file("run"), tensors, split_along(tensors, 4, 0), 1);
  CHECK(report.bytes <= room_for_checkpoint(90000, 4));
}

TEST_CASE("a used directory is recognised", "[checkpoint]") {
  const TemporaryFolder folder;
  CHECK_FALSE(directory_has_run(folder.file("nowhere")));
  CHECK_FALSE(directory_has_run(folder.path()));
  write_file(folder.file("notes.txt"), "");
  CHECK_FALSE(directory_has_run(folder.path()));
  const std::string trace = GENERATE("metrics.jsonl", "config.toml", "run.log");
  write_file(folder.file(trace), "");
  CHECK(directory_has_run(folder.path()));
  std::filesystem::remove(folder.file(trace));
  const std::vector<GlobalTensor> tensors{{"a", {3}}};
  save_as(folder.path(), tensors, split_along(tensors, 1, 0), 1);
  CHECK(directory_has_run(folder.path()));
}

TEST_CASE("run directory: checkpoints are found on all ranks under any name", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("r\xe9sultats \xff");  // Latin-1, and nothing at all
  const std::vector<GlobalTensor> tensors{{"a", {8}}};
  const Layout layout = split_along(tensors, 2, 0);
  save_as(run, tensors, layout, 1);
  for (const std::string& named : {run, run + "/checkpoints", run + "/checkpoints/step_00000001"}) {
    const Loaded loaded = load_named(named, tensors, layout);
    CHECK(loaded.step == 1);
    CHECK(loaded.wrong == 0);
  }
  std::filesystem::remove(run + "/checkpoints/latest");
  std::filesystem::create_directory(run + "/checkpoints/latest");
  const Loaded loaded = load_newest(run, tensors, layout);
  CHECK(loaded.step == 1);
  REQUIRE(loaded.warnings.size() == 1);
  CHECK_THAT(loaded.warnings[0], Contains("latest is of no use"));
}
