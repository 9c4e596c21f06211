// Whatever layout saves, whatever layout loads: the same bits.
#include <atomic>
#include <cstring>

#include "checkpoint/store/layouts.h"
#include "checkpoint/store/overlap.h"
#include "checkpoint/store/slices_on_device.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/separate_backend.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("a checkpoint gives back the exact bits and the training state", "[checkpoint]") {
  const int ranks = GENERATE(1, 4);
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const Layout layout = split_along(tensors, ranks, 0);
  const SaveReport report = save_as(folder.file("run"), tensors, layout, 42);
  CHECK(report.path == folder.file("run/checkpoints/step_00000042"));
  CHECK(report.seconds > 0);
  CHECK(report.warnings.empty());
  std::int64_t bytes = 0;
  for (const auto& name : names_in(report.path)) {
    bytes += static_cast<std::int64_t>(std::filesystem::file_size(report.path + "/" + name));
  }
  CHECK(report.bytes == bytes);
  CHECK(contents_of(folder.file("run/checkpoints/latest")) == "step_00000042\n");

  const Loaded loaded = load_newest(folder.file("run"), tensors, layout);
  CHECK(loaded.step == 42);
  CHECK(loaded.wrong == 0);
  CHECK(loaded.warnings.empty());
  const TrainingState expected = state_at(42);
  CHECK(loaded.state.samples == expected.samples);
  CHECK(loaded.state.tokens == expected.tokens);
  CHECK(loaded.state.facts == expected.facts);
  CHECK(loaded.state.extra == expected.extra);
}

TEST_CASE("saving twice writes the same bytes", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const Layout layout = split_along(tensors, 2, 0);
  save_as(folder.file("a"), tensors, layout, 3);
  save_as(folder.file("b"), tensors, layout, 3);
  for (const auto& name : names_in(folder.file("a/checkpoints/step_00000003"))) {
    INFO(name);
    CHECK((contents_of(folder.file("a/checkpoints/step_00000003/") + name) ==
           contents_of(folder.file("b/checkpoints/step_00000003/") + name)));
  }
}

TEST_CASE("row, column and replicated layouts load each other", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  for (const int saved_along : {0, 1, 2}) {
    const std::string run = folder.file(std::to_string(saved_along));
    save_as(run, tensors, split_along(tensors, 3, saved_along), 5);
    for (const int loaded_along : {-1, 0, 1, 2}) {
      for (const int ranks : {1, 2, 5}) {
        const Loaded loaded = load_newest(run, tensors, split_along(tensors, ranks, loaded_along));
        INFO("saved along " << saved_along << ", loaded along " << loaded_along << " on " << ranks);
        CHECK(loaded.step == 5);
        CHECK(loaded.wrong == 0);
      }
    }
  }
}

TEST_CASE("random boxes and ranges load from random boxes and ranges", "[checkpoint]") {
  std::mt19937 random(20261120);
  const auto tensors = some_tensors();
  const TemporaryFolder folder;
  for (int round = 1; round <= 25; ++round) {
    const int savers = 1 + round % 4, loaders = 1 + round % 3;
    const Layout saved = random_partition(tensors, savers, random);
    save_as(folder.file("run"), tensors, saved, round, 1);
    const Loaded exact = load_newest(folder.file("run"), tensors, random_partition(tensors, loaders, random));
    REQUIRE(exact.step == round);
    REQUIRE(exact.wrong == 0);
    const Loaded wishes = load_newest(folder.file("run"), tensors, random_wishes(tensors, loaders, random));
    REQUIRE(wishes.step == round);
    REQUIRE(wishes.wrong == 0);
  }
}

TEST_CASE("long tensors cross the block size of reading in every way", "[checkpoint]") {
  const TemporaryFolder folder;
  // 3.2M elements: more than one 8 MiB block. Columns make runs with gaps below and above the merging limit.
  const std::vector<GlobalTensor> tensors{{"tall", {40000, 60}}, {"wide", {60, 13000}}, {"bias", {3}}};
  save_as(folder.file("run"), tensors, split_along(tensors, 2, 0), 1, 0, 0);
  for (const int along : {-1, 0, 1}) {
    CHECK(load_newest(folder.file("run"), tensors, split_along(tensors, 2, along), 0).wrong == 0);
  }
}

TEST_CASE("weights only", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const Layout layout = split_along(tensors, 2, 0);
  save_as(folder.file("full"), tensors, layout, 1);
  CHECK(load_newest(folder.file("full"), tensors, layout, 0).wrong == 0);

  save_as(folder.file("weights"), tensors, layout, 1, 0, 0);
  CHECK(load_newest(folder.file("weights"), tensors, layout, 0).wrong == 0);
  const Error error = error_of([&] { load_newest(folder.file("weights"), tensors, layout, 2); });
  CHECK(error.kind() == ErrorKind::checkpoint);
  CHECK_THAT(error.what(), Contains("weights only"));
}

TEST_CASE("an optimizer with one moment", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  save_as(folder.file("one"), tensors, split_along(tensors, 3, 0), 1, 0, 1);
  for (const int moments : {0, 1}) {
    CHECK(load_newest(folder.file("one"), tensors, split_along(tensors, 2, 1), moments).wrong == 0);
  }
  const Error error = error_of([&] { load_newest(folder.file("one"), tensors, split_along(tensors, 2, 1), 2); });
  CHECK(error.kind() == ErrorKind::checkpoint);
  CHECK_THAT(error.what(), Contains("has no state \"v\" of tensor embedding.weight, only [m]"));
  // Who wants less of a whole one gets it.
  save_as(folder.file("two"), tensors, split_along(tensors, 3, 0), 1);
  CHECK(load_newest(folder.file("two"), tensors, split_along(tensors, 2, 1), 1).wrong == 0);
}

TEST_CASE("a rank that owns nothing writes no file", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  Layout layout = split_along(tensors, 1, 0);
  layout.resize(3);
  std::swap(layout[0], layout[1]);
  const SaveReport report = save_as(folder.file("run"), tensors, layout, 9);
  CHECK(names_in(report.path) == std::vector<std::string>{"manifest.json", "rank_00001.h5"});
  CHECK(load_newest(folder.file("run"), tensors, split_along(tensors, 4, 1)).wrong == 0);
}

TEST_CASE("another model is refused by the tensor's name", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<GlobalTensor> tensors{{"a", {4, 6}}, {"b", {5}}};
  save_as(folder.file("run"), tensors, split_along(tensors, 2, 0), 1);
  for (const GlobalTensor& other : {GlobalTensor{"c", {4}}, GlobalTensor{"a", {4, 7}}, GlobalTensor{"b", {5, 1}}}) {
    const std::vector<GlobalTensor> others{other};
    const Error error = error_of([&] { load_newest(folder.file("run"), others, split_along(others, 2, 0)); });
    CHECK(error.kind() == ErrorKind::checkpoint);
    CHECK_THAT(error.what(), Contains("tensor " + other.name));
  }
}

TEST_CASE("what no rank or two ranks own is not committed", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<GlobalTensor> tensors{{"a", {4, 6}}, {"b", {5}}};
  Layout missing = split_along(tensors, 2, 0), twice = missing;
  missing[1].pop_back();
  twice[0].push_back(twice[1].back());
  for (const Layout& layout : {missing, twice}) {
    const Error error = error_of([&] { save_as(folder.file("run"), tensors, layout, 1); });
    CHECK(error.kind() == ErrorKind::internal);
    CHECK_THAT(error.what(), Contains("'b'"));
    CHECK(names_in(folder.file("run/checkpoints")).empty());
  }
}

TEST_CASE("a slice that contradicts itself is our own defect", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<GlobalTensor> tensors{{"a", {4, 6}}};
  const Layout layout = split_along(tensors, 1, 0);
  run_as_threads(1, [&](Communicator& world) {
    const SliceMemory memory(tensors, layout[0], 2, 1);
    CpuDevice device;
    for (int kind = 0; kind < 8; ++kind) {
      std::vector<TensorSlice> slices = memory.slices();
      if (kind == 0) slices[0].box.extent[0] = 5;
      if (kind == 1) slices[0].first = 1;
      if (kind == 2) slices[0].states[0].numbers = Tensor();
      if (kind == 3) slices[0].value = slices[0].value.view({4, 6}).slice(0, 0, 2);
      if (kind == 4) slices[0].global_shape = {24};
      if (kind == 5) slices[0].name = std::string(600, 'x');
      if (kind == 6) slices[0].states[1].name = "m";
      if (kind == 7) slices[0].states[1].name = "pieces";
      CHECK(error_of([&] { save_checkpoint(world, folder.file("run"), state_at(1), slices, device); }).kind() ==
            ErrorKind::internal);
    }
  });
}

TEST_CASE("round trip: slices in memory other than the host's", "[checkpoint]") {
  std::vector<GlobalTensor> tensors = some_tensors();
  tensors.push_back({"large", {1500, 1000}});
  tensors.push_back({"larger", {1500, 3001}});  // a part of it alone is more than is read, or written, at once
  const TemporaryFolder folder;
  const Layout rows = split_along(tensors, 2, 0), columns = split_along(tensors, 3, 1);
  run_as_threads(2, [&](Communicator& world) {
    SeparateDevice device(Copies::late);
    const SliceMemory memory(tensors, rows[static_cast<std::size_t>(world.rank())], 2, 7);
    SlicesOnDevice slices(memory.slices(), device);
    save_checkpoint(world, folder.file("run"), state_at(7), slices.there(), device);
  });
  CHECK(load_newest(folder.file("run"), tensors, columns).wrong == 0);
  std::atomic<std::int64_t> wrong = 0, too_much_pinned = 0;
  run_as_threads(3, [&](Communicator& world) {
    SeparateDevice device(Copies::late);
    const SliceMemory memory(tensors, columns[static_cast<std::size_t>(world.rank())], 2);
    SlicesOnDevice slices(memory.slices(), device);
    std::vector<std::string> warnings;
    open_newest_checkpoint(world, folder.file("run"), warnings)->read(world, slices.there(), device);
    slices.fetch();
    wrong += memory.wrong(7);
    if (device.most_pinned_bytes() > (std::size_t{16} << 20)) ++too_much_pinned;
  });
  CHECK(wrong == 0);
  CHECK(too_much_pinned == 0);
}

TEST_CASE("overlap: gaps and double storage are found exactly", "[checkpoint]") {
  std::vector<float> memory(24);
  const TensorSlice wanted{"a", {4, 6}, {{0, 0}, {4, 6}}, 0, 24, Tensor(memory.data(), {24}, DType::f32)};
  const StoredSlice top{{{0, 0}, {2, 6}}, 0, 12, 0, 0}, bottom{{{2, 0}, {2, 6}}, 0, 12, 0, 1};
  const StoredSlice most_of_bottom{{{2, 0}, {2, 6}}, 1, 11, 0, 1}, left{{{0, 0}, {4, 3}}, 0, 12, 0, 0},
      right{{{0, 3}, {4, 3}}, 0, 12, 12, 0};
  CHECK(plan_slice(wanted, 0, {{4, 6}, {top, bottom}}).size() == 2);
  CHECK(plan_slice(wanted, 0, {{4, 6}, {right, left}}).size() == 8);
  CHECK_THROWS_WITH(plan_slice(wanted, 0, {{4, 6}, {top, most_of_bottom}}), Contains("element 12 "));
  CHECK_THROWS_WITH(plan_slice(wanted, 0, {{4, 6}, {top}}), Contains("nowhere"));
  CHECK_THROWS_WITH(plan_slice(wanted, 0, {{4, 6}, {}}), Contains("nowhere"));
  CHECK_THROWS_WITH(plan_slice(wanted, 0, {{4, 6}, {top, bottom, top}}), Contains("more than once"));
  CHECK_THROWS_WITH(plan_slice(wanted, 0, {{4, 6}, {top, left}}), Contains("more than once"));
}
