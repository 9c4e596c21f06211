#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "monitoring/metrics/metrics.h"
#include "monitoring/metrics/tensorboard.h"
#include "support/catch.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using megatron::test::require_error;

namespace {

std::string bytes_of(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

/// The records of an event file, whose lengths and checksums must be right.
std::vector<std::string> records_of(const std::string& path) {
  const std::string text = contents_of(path);
  std::vector<std::string> records;
  for (std::size_t at = 0; at < text.size();) {
    REQUIRE(text.size() - at >= 12);
    std::uint64_t length = 0;
    std::memcpy(&length, text.data() + at, 8);
    REQUIRE(text.size() - at >= length + 16);
    records.push_back(text.substr(at + 12, length));
    REQUIRE(tf_record(records.back()) == text.substr(at, length + 16));
    at += length + 16;
  }
  return records;
}

std::vector<std::string> event_files(const std::string& run) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/tensorboard"))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

TrainMetrics event_of_step(std::int64_t step) {
  TrainMetrics metrics;
  metrics.step = step;
  metrics.loss = 4.0 / static_cast<double>(step);
  metrics.losses = {{"language_model", metrics.loss}};
  metrics.time = 1000;
  return metrics;
}

}  // namespace

TEST_CASE("tensorboard: checksums are CRC-32C, masked") {
  CHECK(masked_crc32c("") == 0xa282ead8);
  const std::uint32_t crc = 0xe3069283;  // RFC 3720's example, unmasked
  CHECK(masked_crc32c("123456789") == ((crc >> 15) | (crc << 17)) + 0xa282ead8);
}

// Made by tensorboard's own classes: an Event's SerializeToString() through its RecordWriter.
TEST_CASE("tensorboard: events have the bytes that tensorboard writes") {
  CHECK(version_event(1.5) ==
        bytes_of("1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c"));
  CHECK(start_event(1700000000.25, 101) == bytes_of("0f000000000000006d532b090900001040fc54d94110653a02080159da2f78"));
  const std::vector<TaggedScalar> scalars = {{"train/loss", 2.5}, {"train/grad_norm", INFINITY}};
  CHECK(scalars_event(2, 300, scalars) ==
        bytes_of("39000000000000008b0737f109000000000000004010ac022a2b0a110a0a747261696e2f6c6f737315000020400a160a"
                 "0f747261696e2f677261645f6e6f726d150000807f9c6aaef0"));
  CHECK(text_event(3, 0, "config", "    [model]\n    layers = 4") ==
        bytes_of("4300000000000000b18525a00900000000000008402a380a360a06636f6e666967422008071200421a202020205b6d6f"
                 "64656c5d0a202020206c6179657273203d20344a0a0a060a04746578742002dfdde219"));
}

TEST_CASE("tensorboard: every number of a line has a tag, and null is no number") {
  TrainMetrics train = event_of_step(8);
  train.losses = {{"language_model", 0.25}, {"balance", 0.25}};
  train.grad_norm = std::nan("");
  std::map<std::string, double> found;
  for (const auto& [tag, value] : scalars_of(nlohmann::json::parse(metrics_line(train)))) found[tag] = value;
  CHECK(found.at("train/loss") == 0.5);
  CHECK(found.at("train/losses/balance") == 0.25);
  CHECK(std::isnan(found.at("train/grad_norm")));
  CHECK(found.count("train/step") + found.count("train/time") + found.count("train/kind") == 0);
  CHECK(found.size() == 15);

  const auto first = [](const std::string& line) { return scalars_of(nlohmann::json::parse(line)).front().first; };
  CHECK(first(metrics_line(EvaluationMetrics{.split = "validation", .loss = 3})).starts_with("validation/"));
  CHECK(first(metrics_line(TaskMetrics{.name = "wiki", .task = "wikitext", .measures = {{"loss", 2.0}}})) ==
        "tasks/wiki/examples");
  CHECK(scalars_of(nlohmann::json::parse(metrics_line(event_of_step(2)))).size() == 13);  // one term is the loss itself
  CHECK(scalars_of({{"kind", "train"}, {"load", std::vector<double>(100, 1)}}).size() == 64);
}

namespace {

nlohmann::json json_line(const TrainMetrics& metrics) {
  return nlohmann::json::parse(metrics_line(metrics));
}

}  // namespace

TEST_CASE("tensorboard: a resumed program begins a later file at its next step") {
  const TemporaryFolder run;
  Log log(false);
  for (const std::int64_t resumed : {0, 4}) {
    TensorBoardEvents events(run.path(), log);
    events.add(json_line(event_of_step(1)));  // before it has begun: nothing
    events.begin(resumed, "[model]\nlayers = 2\n");
    for (std::int64_t step = resumed + 1; step <= resumed + 6; ++step) events.add(json_line(event_of_step(step)));
    CHECK(events.complete());
  }
  const std::vector<std::string> files = event_files(run.path());
  REQUIRE(files.size() == 2);  // in the order of their names, though of the same second
  const std::vector<std::string> first = records_of(files[0]), second = records_of(files[1]);
  REQUIRE(first.size() == 9);
  REQUIRE(second.size() == 9);
  CHECK(first[0].find("brain.Event:2") != std::string::npos);
  CHECK(second[1].substr(9) == std::string("\x10\x05\x3a\x02\x08\x01", 6));
  CHECK(second[2].find("    [model]\n    layers = 2\n") != std::string::npos);
  CHECK(second[3].substr(9, 2) == "\x10\x05");
}

TEST_CASE("tensorboard: a deleted file is begun anew and a failed write warns", "[fault-45][fault-48]") {
  const TemporaryFolder run;
  Log log(false);
  TensorBoardEvents events(run.path(), log);
  events.begin(0, "");
  const std::string file = event_files(run.path()).at(0);
  std::filesystem::remove_all(run.file("tensorboard"));
  events.add(json_line(event_of_step(1)));
  CHECK(records_of(file).size() == 2);
  CHECK(events.complete());
  std::filesystem::remove_all(run.file("tensorboard"));
  write_file(run.file("tensorboard"), "a file");
  events.add(json_line(event_of_step(2)));
  CHECK_FALSE(events.complete());
}

TEST_CASE("tensorboard: rebuilt from metrics from step 1 without damaged lines") {
  const TemporaryFolder run;
  Log log(false);
  require_error(ErrorKind::configuration, {"no such run"}, [&] { rebuild_tensorboard(run.path(), log); });
  write_file(run.file("metrics.jsonl"), metrics_line(event_of_step(1)) + "\nnonsense\n" +
                                            metrics_line(event_of_step(2)) +
                                            "\n{\"kind\":\"train\",\"step\":-3,\"loss\":1}\n{\"step\":3");
  CHECK(rebuild_tensorboard(run.path(), log) == 3);
  const std::vector<std::string> records = records_of(event_files(run.path()).at(0));
  CHECK(records.size() == 5);  // version, start, config and the two good lines
  CHECK(records[1].substr(9, 2) == "\x10\x01");
}

TEST_CASE("tensorboard: nothing is rebuilt from a file without lines of metrics") {
  const TemporaryFolder run;
  Log log(false);
  write_file(run.file("metrics.jsonl"), "nonsense\nmore of it\n");
  require_error(ErrorKind::data, {"metrics.jsonl: none of its 2 lines can be read"},
                [&] { rebuild_tensorboard(run.path(), log); });
  CHECK_FALSE(std::filesystem::exists(run.file("tensorboard")));
  write_file(run.file("metrics.jsonl"), "");
  CHECK(rebuild_tensorboard(run.path(), log) == 0);
}
