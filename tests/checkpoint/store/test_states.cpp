// States of an optimizer in checkpoints: of all tensors the same, as format 1 has them, or others of each.
#include <array>
#include <random>

#include "backend/ops/backends.h"
#include "base/core/half.h"
#include "checkpoint/store/background_save.h"
#include "checkpoint/store/files.h"
#include "checkpoint/store/layouts.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/rank_file.h"
#include "checkpoint/store/slices_on_device.h"
#include "checkpoint/store/tensor_slices.h"
#include "data/hdf5/hdf5_file.h"
#include "data/hdf5/hdf5_reader.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/open_checkpoint.h"
#include "support/require_error.h"
#include "support/separate_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

nlohmann::json manifest_of(const std::string& checkpoint) {
  return nlohmann::json::parse(contents_of(checkpoint + "/manifest.json"));
}

/// Writes a checkpoint in format 1 without the program's own writer. Its one rank file holds tensors "a" with three
/// elements and "b" with two; the numbers of dataset k are 10 k, 10 k + 1, ... `keys` go into the manifest.
std::string write_format_1(const std::string& path, const char* version, const std::vector<std::string>& states,
                           const nlohmann::json& keys) {
  std::filesystem::create_directories(path);
  const std::string file = path + "/rank_00000.h5";
  const std::string table = R"([{"count":3,"extent":[3],"first":0,"name":"a","offset":[0],"position":0,"shape":[3]},)"
                            R"({"count":2,"extent":[2],"first":0,"name":"b","offset":[0],"position":3,"shape":[2]}])";
  {
    Hdf5File out = Hdf5File::create(file);
    out.write_attribute("rank", std::uint64_t{0});
    out.write_attribute("step", std::uint64_t{7});
    Hdf5Dataset pieces = out.create_dataset("pieces", Hdf5Type::u8, table.size());
    pieces.write(0, table.data(), table.size());
    pieces.close();
    float first = 0;
    for (const std::string& name : datasets_with(states)) {
      const std::array numbers{first, first + 1, first + 2, first + 3, first + 4};
      Hdf5Dataset dataset = out.create_dataset(name, Hdf5Type::f32, 5);
      dataset.write(0, numbers.data(), 5);
      dataset.close();
      first += 10;
    }
    out.close();
  }
  const FileDigest digest = digest_file(file);
  nlohmann::json content = {{"step", 7}, {"samples", 1}, {"tokens", 1}, {"ranks", 1}};
  content["facts"] = content["extra"] = nlohmann::json::object();
  content["files"] = {{{"rank", 0}, {"name", "rank_00000.h5"}, {"bytes", digest.bytes}, {"xxh3_128", digest.xxh3_128}}};
  content["tensors"] = {{{"name", "a"}, {"shape", {3}}, {"elements", 3}},
                        {{"name", "b"}, {"shape", {2}}, {"elements", 2}}};
  content.update(keys);
  const nlohmann::json whole = {{"format", "megatron_train checkpoint"},
                                {"format_version", version},
                                {"checksum", digest_text(std::string(version) + "\n" + content.dump())},
                                {"content", content}};
  write_file(path + "/manifest.json", whole.dump());
  return path;
}

std::vector<float> numbers_in(const CheckpointReader& reader, const std::string& dataset, const char* tensor) {
  for (TensorSlice& slice : slices_in(dataset, whole_tensors(reader))) {
    if (slice.name != tensor) continue;
    std::vector<float> numbers(static_cast<std::size_t>(slice.count));
    slice.value = Tensor(numbers.data(), {slice.count}, DType::f32);
    reader.read_numbers(dataset, {slice});
    return numbers;
  }
  return {};
}

}  // namespace

TEST_CASE("states: files of format 1 are read with the names m and v", "[checkpoint]") {
  using Numbers = std::vector<float>;
  const TemporaryFolder folder;
  const std::vector<std::string> both{"m", "v"};
  struct Case {
    const char* version;
    nlohmann::json keys;
    std::size_t states;
  };
  const Case cases[] = {{"1.0", {{"has_optimizer", true}}, 2},
                        {"1.0", {{"has_optimizer", false}}, 0},
                        {"1.1", {{"has_optimizer", true}, {"moments", 2}}, 2},
                        {"1.1", {{"has_optimizer", true}, {"moments", 1}}, 1}};
  for (const auto& [version, keys, count] : cases) {
    CAPTURE(version, keys.dump());
    const std::vector<std::string> states(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(count));
    const std::string path = write_format_1(folder.file(version + keys.dump()), version, states, keys);
    const CheckpointReader reader = open_alone(path);
    CHECK(reader.states() == states);
    CHECK(numbers_in(reader, kValues, "a") == Numbers{0, 1, 2});
    CHECK(numbers_in(reader, kValues, "b") == Numbers{3, 4});
    CHECK(numbers_in(reader, "m", "a") == (count > 0 ? Numbers{10, 11, 12} : Numbers{}));
    CHECK(numbers_in(reader, "m", "b") == (count > 0 ? Numbers{13, 14} : Numbers{}));
    CHECK(numbers_in(reader, "v", "b") == (count > 1 ? Numbers{23, 24} : Numbers{}));
  }
  // Datasets that the manifest does not know of, or the other way round.
  const std::string wrong =
      write_format_1(folder.file("wrong"), "1.1", {"m"}, {{"has_optimizer", true}, {"moments", 2}});
  require_error(ErrorKind::checkpoint, {"tensor a of rank_00000.h5 has the states [m]; the manifest says [m, v]"},
                [&] { open_alone(wrong); });
}

TEST_CASE("states: m and v of all tensors are still written as format 1", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  for (const int moments : {0, 1, 2}) {
    CAPTURE(moments);
    const std::string run = folder.file(std::to_string(moments));
    const std::string path = save_as(run, tensors, split_along(tensors, 2, 0), 3, 0, moments).path;
    const nlohmann::json manifest = manifest_of(path), content = manifest.at("content");
    CHECK(manifest.at("format_version") == "1.1");
    CHECK(content.at("has_optimizer") == (moments > 0));
    CHECK(content.value("moments", 0) == moments);
    CHECK_FALSE(content.contains("states"));
    for (const nlohmann::json& tensor : content.at("tensors")) CHECK(tensor.size() == 3);
    const Hdf5Reader file(path + "/rank_00001.h5", ErrorKind::checkpoint);
    std::vector<std::string> names{"m", "pieces", "v", "value"};
    if (moments < 2) std::erase(names, "v");
    if (moments < 1) std::erase(names, "m");
    CHECK(file.datasets() == names);
    std::string table(file.open_dataset("pieces").elements(), ' ');
    file.open_dataset("pieces").read(0, static_cast<void*>(table.data()), table.size());
    for (const nlohmann::json& entry : nlohmann::json::parse(table)) CHECK(entry.size() == 7);
  }
}

TEST_CASE("states: tensors with others of each come back from any layout", "[checkpoint]") {
  std::mt19937 random(20261126);
  const auto tensors = some_tensors();
  const TemporaryFolder folder;
  for (int round = 1; round <= 12; ++round) {
    CAPTURE(round);
    const Layout layout = random_partition(tensors, 1 + round % 4, random);
    const std::string path = save_as(folder.file("run"), tensors, layout, round, 1, states_by_shape).path;
    const Layout other = random_partition(tensors, 1 + round % 3, random);
    const Loaded loaded = load_newest(folder.file("run"), tensors, other, states_by_shape);
    REQUIRE(loaded.step == round);
    REQUIRE(loaded.wrong == 0);
    REQUIRE(load_newest(folder.file("run"), tensors, other, 0).wrong == 0);
    CHECK(manifest_of(path).at("format_version") == "2.0");
    CHECK(manifest_of(path).at("content").at("states") == nlohmann::json{"m", "momentum", "v"});
    std::int64_t numbers = 0, stored = 0;
    const CheckpointReader reader = open_alone(path);
    for (const auto& [name, tensor] : reader.tensors()) {
      CHECK(tensor.states == states_by_shape(name));
      numbers += tensor.shape.elements() * static_cast<std::int64_t>(1 + tensor.states.size());
    }
    for (const std::string& name : names_in(path)) {
      if (name == "manifest.json") continue;
      const Hdf5Reader file(path + "/" + name, ErrorKind::checkpoint);
      for (const std::string& dataset : file.datasets()) {
        if (dataset != kSliceTable) stored += static_cast<std::int64_t>(file.open_dataset(dataset).elements());
      }
    }
    CHECK(stored == numbers);  // and no zeros in place of what a tensor does not have
  }
  const Error error = error_of([&] { load_newest(folder.file("run"), tensors, split_along(tensors, 1, 0), 2); });
  CHECK(error.kind() == ErrorKind::checkpoint);
  CHECK_THAT(error.what(), Contains("has no state \"m\" of tensor embedding.weight, only [momentum]"));
}

TEST_CASE("states: a background save of different states writes the same bytes", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const Layout layout = split_along(tensors, 2, 0);
  const std::string expected = save_as(folder.file("foreground"), tensors, layout, 4, 0, states_by_shape).path;
  run_as_threads(2, [&](Communicator& world) {
    const SliceMemory memory(tensors, layout[static_cast<std::size_t>(world.rank())], states_by_shape, 4);
    CpuDevice device;
    BackgroundSave save(world, device, snapshot_bytes(memory.slices()));
    save.start(folder.file("background"), state_at(4), memory.slices());
    while (!save.advance()) {
    }
  });
  require_same_files(folder.file("background/checkpoints/step_00000004"), expected);
}

TEST_CASE("states: those in bf16 are f32 in files, and come back", "[checkpoint]") {
  const TemporaryFolder folder;
  constexpr std::int64_t n = 70001;  // odd: what follows is not aligned by chance
  const Shape shape{n};
  std::vector<float> value(n), exact(n);
  std::vector<BFloat16> m(n), v(n);
  for (std::size_t i = 0; i < value.size(); ++i) {
    value[i] = static_cast<float>(i) / 7;
    m[i] = {static_cast<std::uint16_t>(i % 0x7F80)};  // subnormals too, but no NaN, which no comparison finds equal
    v[i] = to_bfloat16(1 / value[i]);                 // one is infinity
  }
  std::vector<TensorSlice> slices = {{"a", shape, {Shape{0}, shape}, 0, n, Tensor(value.data(), shape, DType::f32)}};
  slices[0].states = {{"m", Tensor(m.data(), shape, DType::bf16)}, {"v", Tensor(v.data(), shape, DType::bf16)}};
  const std::vector<BFloat16> first_m = m, first_v = v;
  const std::size_t bytes = snapshot_bytes(slices);
  CHECK(bytes == static_cast<std::size_t>(n) * (4 + 2 + 2));
  const bool separate = GENERATE(false, true);
  CAPTURE(separate);
  run_as_threads(1, [&](Communicator& world) {
    const Backend backend = separate ? make_separate_backend() : make_cpu_backend();
    SlicesOnDevice owned(slices, *backend.device);
    const std::string run = folder.file(separate ? "separate" : "host"), step = "/checkpoints/step_00000004";
    save_checkpoint(world, run, state_at(4), owned.there(), *backend.device);
    {
      BackgroundSave save(world, *backend.device, bytes);
      save.start(run + " background", state_at(4), owned.there());
      while (!save.advance()) {
      }
    }
    require_same_files(run + " background" + step, run + step);
    const CheckpointReader reader = open_alone(run + step);
    owned.scribble();
    reader.read(world, owned.there(), *backend.device);
    std::fill(m.begin(), m.end(), BFloat16{1});
    std::fill(v.begin(), v.end(), BFloat16{1});
    owned.fetch();
    CHECK((m == first_m && v == first_v));
    CHECK(numbers_in(reader, "m", "a")[100] == to_float(m[100]));
    // Numbers that bf16 cannot hold are rounded to nearest.
    std::vector<TensorSlice> wide = slices;
    for (std::size_t i = 0; i < exact.size(); ++i) exact[i] = -value[i] / 3;
    wide[0].states = {{"m", Tensor(exact.data(), shape, DType::f32)}, {"v", Tensor(exact.data(), shape, DType::f32)}};
    SlicesOnDevice wide_owned(wide, *backend.device);
    save_checkpoint(world, run + " wide", state_at(4), wide_owned.there(), *backend.device);
    open_alone(run + " wide" + step).read(world, owned.there(), *backend.device);
    owned.fetch();
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) wrong += m[i] == to_bfloat16(exact[i]) && v[i] == m[i] ? 0 : 1;
    CHECK(wrong == 0);
  });
}

TEST_CASE("states: ranks that disagree on a tensor's commit nothing", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const Layout layout = split_along(tensors, 2, 0);
  const Error error = error_of([&] {
    run_as_threads(2, [&](Communicator& world) {
      const SliceMemory memory(tensors, layout[static_cast<std::size_t>(world.rank())], world.rank(), 4);
      CpuDevice device;
      save_checkpoint(world, folder.file("run"), state_at(4), memory.slices(), device);
    });
  });
  CHECK(error.kind() == ErrorKind::internal);
  CHECK_THAT(error.what(), Contains("ranks disagree on the states of tensor"));
  CHECK(names_in(folder.file("run/checkpoints")).empty());
}

TEST_CASE("states: names that are none, unsorted or unknown are refused", "[checkpoint]") {
  Manifest manifest;
  manifest.ranks = 1;
  manifest.files = {{0, 1, "x"}};
  manifest.tensors = {{"a", {3}, 3, {"m", "momentum"}}, {"b", {2}, 2, {}}};
  CHECK(parse_manifest(manifest_text(manifest)).states() == std::vector<std::string>{"m", "momentum"});
  CHECK(parse_manifest(manifest_text(manifest)).tensors[1].states.empty());
  for (const std::vector<std::string>& states : {std::vector<std::string>{"v", "m"},
                                                 {"m", "m"},
                                                 {"value"},
                                                 {"pieces"},
                                                 {"../m"},
                                                 {"M"},
                                                 {""},
                                                 {"a", "b", "c", "d", "e", "f", "g", "h", "i"}}) {
    CAPTURE(states.front());
    manifest.tensors[1].states = states;
    CHECK_THROWS_AS(parse_manifest(manifest_text(manifest)), Error);
  }
  const std::string slice =
      R"([{"count":3,"extent":[3],"first":0,"name":"a","offset":[0],"position":0,"shape":[3],"states":["m"]}])";
  CHECK(parse_slice_table({slice, {"m", "v"}}, 0)[0].states == std::vector<std::string>{"m"});
  CHECK_THROWS_WITH(parse_slice_table({slice, {"v"}}, 0), Contains("a state of it has no dataset"));
}
