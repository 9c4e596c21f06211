// Damaged, forged and newer checkpoints: found, passed over or refused, never believed.
#include <sys/stat.h>

#include <fstream>

#include "checkpoint/store/files.h"
#include "checkpoint/store/layouts.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/new_checkpoint.h"
#include "data/hdf5/hdf5_file.h"
#include "data/hdf5/hdf5_reader.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A run with the checkpoints 10 and 20, of three ranks.
class TwoCheckpoints {
 public:
  TwoCheckpoints() {
    for (const int step : {10, 20}) save_as(run(), kFewTensors, split_along(kFewTensors, 3, 0), step);
  }
  std::string run() const { return folder_.file("run"); }
  std::string at(const std::string& name) const { return folder_.file("run/checkpoints/" + name); }
  std::string newest() const { return at("step_00000020"); }
  Loaded load() const { return load_newest(run(), kFewTensors, split_along(kFewTensors, 2, 1)); }

  void must_fall_back(const std::string& reason) const {
    const Loaded loaded = load();
    CHECK(loaded.step == 10);
    CHECK(loaded.wrong == 0);
    REQUIRE(loaded.warnings.size() == 1);
    CHECK_THAT(loaded.warnings[0], Contains("step_00000020") && Contains(reason));
    const Error error = error_of([&] { load_named(newest(), kFewTensors, split_along(kFewTensors, 2, 1)); });
    CHECK(error.exit_code() == 4);
    CHECK_THAT(error.what(), Contains("step_00000020") && Contains(reason));
    CHECK(load_named(at("step_00000010"), kFewTensors, split_along(kFewTensors, 2, 1)).step == 10);
  }

 private:
  TemporaryFolder folder_;
};

void flip(const std::string& path, std::size_t byte, int mask) {
  std::string bytes = contents_of(path);
  bytes[byte] = static_cast<char>(bytes[byte] ^ mask);
  write_file(path, bytes);
}

/// Gives a manifest the checksum that belongs to its (changed) contents.
void write_manifest_with_checksum(const std::string& path, nlohmann::json whole) {
  const auto version = whole.at("format_version").get<std::string>();
  whole["checksum"] = digest_text(version + "\n" + whole.at("content").dump());
  write_file(path, whole.dump());
}

}  // namespace

TEST_CASE("a truncated rank file is passed over", "[checkpoint][fault-19]") {
  const TwoCheckpoints saved;
  const std::string file = saved.newest() + "/rank_00001.h5";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  saved.must_fall_back("rank_00001.h5 has");
}

TEST_CASE("a flipped bit in a rank file is found", "[checkpoint][fault-19]") {
  const TwoCheckpoints saved;
  const std::string file = saved.newest() + "/rank_00002.h5";
  flip(file, std::filesystem::file_size(file) / 2, 0x10);
  saved.must_fall_back("rank_00002.h5 are not what was saved");
}

TEST_CASE("nothing counts that was made of files found damaged meanwhile", "[checkpoint][fault-19]") {
  const TwoCheckpoints saved;
  const std::string file = saved.newest() + "/rank_00002.h5", target = saved.at("../new");
  flip(file, std::filesystem::file_size(file) / 2, 0x10);
  for (const std::size_t threads : {1, 2, 9}) {
    CAPTURE(threads);
    require_error(ErrorKind::checkpoint, {saved.newest(), "rank_00002.h5 are not what was saved"}, [&] {
      const CheckpointReader source = open_unverified(saved.newest(), threads);
      rewrite_checkpoint(source, target, 1, [&](int) { return whole_tensors(source); });
    });
    CHECK_FALSE(std::filesystem::exists(target));
  }
  // No longer a file of numbers: reading it reports what it points to.
  std::ofstream(file, std::ios::binary | std::ios::in) << "no HDF5";
  require_error(ErrorKind::checkpoint, {saved.newest(), "rank_00002.h5 are not what was saved"},
                [&] { open_unverified(saved.newest(), 2); });
}

TEST_CASE("a missing file is found", "[checkpoint][fault-19]") {
  const TwoCheckpoints saved;
  const std::string name = GENERATE("rank_00000.h5", "manifest.json");
  std::filesystem::remove(saved.newest() + "/" + name);
  saved.must_fall_back(name + " is missing");
}

TEST_CASE("swapped rank files are found", "[checkpoint][fault-19]") {
  const TwoCheckpoints saved;
  const std::string a = saved.newest() + "/rank_00000.h5", b = saved.newest() + "/rank_00001.h5";
  const std::string bytes_a = contents_of(a), bytes_b = contents_of(b);
  write_file(a, bytes_b);
  write_file(b, bytes_a);
  saved.must_fall_back("rank_0000");
}

TEST_CASE("a rank file of another step is found", "[checkpoint]") {
  const TwoCheckpoints saved;
  write_file(saved.newest() + "/rank_00000.h5", contents_of(saved.at("step_00000010/rank_00000.h5")));
  saved.must_fall_back("rank_00000.h5");
}

TEST_CASE("another step's folder under this name is found", "[checkpoint]") {
  const TwoCheckpoints saved;
  std::filesystem::remove_all(saved.newest());
  std::filesystem::copy(saved.at("step_00000010"), saved.newest());
  saved.must_fall_back("its manifest says step 10");
}

TEST_CASE("links out of the folder are not followed", "[checkpoint]") {
  const TwoCheckpoints saved;
  const std::string file = saved.newest() + "/rank_00001.h5", elsewhere = saved.run() + "/elsewhere.h5";
  std::filesystem::rename(file, elsewhere);
  std::filesystem::create_symlink(elsewhere, file);
  saved.must_fall_back("rank_00001.h5 is missing");
  std::filesystem::remove_all(saved.newest());
  std::filesystem::create_directory_symlink(saved.at("step_00000010"), saved.newest());
  CHECK(load_newest(saved.run(), kFewTensors, split_along(kFewTensors, 1, 0)).step == 10);
}

TEST_CASE("when all are damaged, nothing starts from scratch in silence", "[checkpoint][fault-19]") {
  const TwoCheckpoints saved;
  for (const char* name : {"step_00000010", "step_00000020"}) flip(saved.at(name) + "/rank_00000.h5", 300, 1);
  const Error error = error_of([&] { saved.load(); });
  CHECK(error.exit_code() == 4);
  CHECK_THAT(error.what(), Contains("step_00000010") && Contains("step_00000020") && Contains("move them away"));
}

TEST_CASE("no flipped bit anywhere gives other numbers", "[checkpoint][fault-19]") {
  const TwoCheckpoints saved;
  std::mt19937 random(7);
  for (int round = 0; round < 80; ++round) {
    std::filesystem::remove(saved.newest() + "/damaged");  // the mark that a load leaves
    const std::string file = saved.newest() + "/" + names_in(saved.newest())[random() % 4];
    const std::string bytes = contents_of(file);
    const std::size_t at = random() % bytes.size();
    const int mask = 1 << random() % 8;
    flip(file, at, mask);
    INFO(file << " byte " << at << " xor " << mask);
    try {
      const Loaded loaded = saved.load();
      CHECK(loaded.wrong == 0);
      // White space between the JSON's tokens is the one thing that may change.
      if (loaded.step == 20) CHECK_THAT(file, Contains("manifest"));
      if (loaded.step == 20) CHECK(loaded.state.extra == state_at(20).extra);
      if (loaded.step == 10) CHECK(loaded.warnings.size() == 1);
    } catch (const Error& error) {
      CHECK_THAT(error.what(), Contains("format version"));  // the flip made a newer version of it
    }
    write_file(file, bytes);
  }
  CHECK(saved.load().step == 20);
}

TEST_CASE("no truncation gives other numbers", "[checkpoint][fault-19]") {
  const TwoCheckpoints saved;
  std::mt19937 random(8);
  for (int round = 0; round < 40; ++round) {
    std::filesystem::remove(saved.newest() + "/damaged");  // the mark that a load leaves
    const std::string file = saved.newest() + "/" + names_in(saved.newest())[random() % 4];
    const std::string bytes = contents_of(file);
    const std::size_t length = random() % bytes.size();
    write_file(file, bytes.substr(0, length));
    INFO(file << " cut to " << length << " of " << bytes.size());
    const Loaded loaded = saved.load();
    CHECK(loaded.step == (length + 1 == bytes.size() && bytes.back() == '\n' ? 20 : 10));
    CHECK(loaded.wrong == 0);
    write_file(file, bytes);
  }
}

TEST_CASE("a useless `latest` means scanning", "[checkpoint][fault-20]") {
  const TwoCheckpoints saved;
  std::filesystem::create_directories(saved.run() + "/x");
  for (const std::string& text :
       {std::string("step_00000777\n"), std::string(), std::string("garbage"), std::string("../../x\n"),
        std::string("/etc/passwd"), std::string("\0\xff\x1b[31m", 7), std::string(100000, 'a'), std::string("step_20"),
        std::string("step_-0000001")}) {
    write_file(saved.at("latest"), text);
    const Loaded loaded = saved.load();
    CHECK(loaded.step == 20);
    CHECK(loaded.wrong == 0);
    REQUIRE(loaded.warnings.size() == 1);
    CHECK_THAT(loaded.warnings[0], Contains("latest is of no use"));
    CHECK_THAT(loaded.warnings[0], !Contains("\x1b"));
  }
  std::filesystem::remove(saved.at("latest"));
  CHECK(saved.load().warnings.empty());
  std::filesystem::create_symlink("/etc/passwd", saved.at("latest"));
  CHECK(saved.load().step == 20);
}

TEST_CASE("damage: a newer major version is refused and a newer minor read", "[checkpoint]") {
  const TwoCheckpoints saved;
  const std::string file = saved.newest() + "/manifest.json";
  auto manifest = nlohmann::json::parse(contents_of(file));
  CHECK(manifest.at("format_version") == "1.1");
  manifest["format_version"] = "1.7";
  manifest["content"]["something_new"] = {1, 2, 3};
  write_manifest_with_checksum(file, manifest);
  CHECK(saved.load().step == 20);
  manifest["format_version"] = "3.0";
  manifest["content"] = "anything";
  write_manifest_with_checksum(file, manifest);
  for (int named = 0; named < 2; ++named) {
    const Error error = error_of([&] {
      if (named == 1) load_named(saved.newest(), kFewTensors, split_along(kFewTensors, 1, 0));
      if (named == 0) saved.load();
    });
    CHECK(error.exit_code() == 4);
    CHECK_THAT(error.what(), Contains("3.0") && Contains("use a newer megatron_train"));
  }
  manifest["format_version"] = "one";
  write_manifest_with_checksum(file, manifest);
  saved.must_fall_back("format version");
}

TEST_CASE("manifests with sound checksums and unsound contents are refused", "[checkpoint]") {
  const TwoCheckpoints saved;
  const std::string file = saved.newest() + "/manifest.json";
  const auto manifest = nlohmann::json::parse(contents_of(file));
  const auto try_content = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json changed = manifest;
    change(changed["content"]);
    write_manifest_with_checksum(file, changed);
    const Loaded loaded = saved.load();
    CHECK(loaded.step == 10);
    CHECK(loaded.warnings.size() == 1);
  };
  try_content([](auto& content) { content.erase("step"); });
  try_content([](auto& content) { content["step"] = -1; });
  try_content([](auto& content) { content["step"] = 18446744073709551615ull; });
  try_content([](auto& content) { content["step"] = 2.5; });
  try_content([](auto& content) { content["facts"] = "none"; });
  try_content([](auto& content) { content["files"] = nlohmann::json::array(); });
  try_content([](auto& content) { content["files"][1]["rank"] = 0; });
  try_content([](auto& content) { content["files"][1]["rank"] = 99; });
  try_content([](auto& content) { content["files"][0]["bytes"] = 1LL << 62; });
  try_content([](auto& content) { content["files"].erase(2); });
  try_content([](auto& content) { content["tensors"][0]["shape"] = {1LL << 40, 1LL << 40}; });
  try_content([](auto& content) { content["tensors"][0]["shape"] = {10}; });
  try_content([](auto& content) { content["tensors"].erase(0); });
  try_content([](auto& content) { content["tensors"][0]["name"] = "line\nbreak"; });
  try_content([](auto& content) { content["has_optimizer"] = "yes"; });
  std::string nested(200000, '[');
  write_file(file, nested);
  CHECK(saved.load().step == 10);
}

TEST_CASE("manifest: numbers near 2^63 and paths are refused in every field", "[checkpoint][fault-56]") {
  const TwoCheckpoints saved;
  const std::string path = saved.newest() + "/manifest.json";
  const auto good = nlohmann::json::parse(contents_of(path));
  const std::vector<nlohmann::json> numbers{INT64_MAX,  INT64_MAX - 1,    INT64_MIN, std::uint64_t{1} << 63,
                                            UINT64_MAX, INT64_C(1) << 62, 1e19};
  const std::vector<nlohmann::json> paths{"../../../rank_00000.h5", "/etc/passwd", ".."};
  int refused = 0;
  const nlohmann::json fields = good.at("content").flatten();
  for (const auto& [pointer, value] : fields.items()) {
    if (pointer.starts_with("/facts") || pointer.starts_with("/extra")) continue;  // the trainer interprets these
    for (const nlohmann::json& other : value.is_number() ? numbers : paths) {
      nlohmann::json changed = good;
      changed["content"][nlohmann::json::json_pointer(pointer)] = other;
      write_manifest_with_checksum(path, changed);
      INFO(pointer << " = " << other.dump());
      CHECK(saved.load().step == 10);
      ++refused;
    }
  }
  CHECK(refused > 50);
}

TEST_CASE("a pipe in the place of a checkpoint's file does not hang", "[checkpoint][fault-55]") {
  const TwoCheckpoints saved;
  const auto make_pipe = [](const std::string& path) {
    std::filesystem::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  };
  make_pipe(saved.run() + "/checkpoints/latest");
  CHECK(saved.load().step == 20);
  make_pipe(saved.newest() + "/rank_00000.h5");
  CHECK(saved.load().step == 10);
  make_pipe(saved.at("step_00000010/manifest.json"));
  require_error(ErrorKind::checkpoint, {"manifest.json"}, [&] { saved.load(); });
}

TEST_CASE("rank files with sound hashes and lying tables are refused", "[checkpoint]") {
  const TwoCheckpoints saved;
  const std::string path = saved.newest() + "/rank_00000.h5", manifest_path = saved.newest() + "/manifest.json";
  nlohmann::json table;
  std::vector<float> numbers;
  {
    const Hdf5Reader file(path, ErrorKind::checkpoint);
    const auto bytes = file.open_dataset("pieces").read_all<std::uint8_t>();
    table = nlohmann::json::parse(bytes.begin(), bytes.end());
    numbers = file.open_dataset("value").read_all<float>();
  }
  const auto try_table = [&](std::size_t stored, const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json changed = table;
    change(changed);
    const std::string text = changed.dump();
    Hdf5File file = Hdf5File::create(path);
    file.write_attribute("rank", std::uint64_t{0});
    file.write_attribute("step", std::uint64_t{20});
    file.create_dataset("pieces", Hdf5Type::u8, text.size()).write(0, text.data(), text.size());
    for (const char* name : {"value", "m", "v"}) {
      file.create_dataset(name, Hdf5Type::f32, stored).write(0, numbers.data(), stored);
    }
    file.close();
    auto manifest = nlohmann::json::parse(contents_of(manifest_path));
    const FileDigest digest = digest_file(path);
    manifest["content"]["files"][0]["bytes"] = digest.bytes;
    manifest["content"]["files"][0]["xxh3_128"] = digest.xxh3_128;
    write_manifest_with_checksum(manifest_path, manifest);
    return saved.load();
  };
  // The forging itself is sound: the true table is believed, though its numbers differ from the right ones in m and v.
  const Loaded believed = try_table(numbers.size(), [](auto&) {});
  CHECK(believed.step == 20);
  CHECK(believed.wrong > 0);
  const std::int64_t huge = std::int64_t{1} << 59;
  CHECK(try_table(numbers.size() - 1, [](auto&) {}).step == 10);
  CHECK(try_table(numbers.size(), [](auto& t) { t.push_back(t[0]); }).step == 10);
  CHECK(try_table(numbers.size(), [](auto& t) { t.erase(1); }).step == 10);
  CHECK(try_table(numbers.size(), [](auto& t) { t[1]["position"] = 0; }).step == 10);
  CHECK(try_table(numbers.size(), [](auto& t) { t[1]["first"] = 3; }).step == 10);
  CHECK(try_table(numbers.size(), [](auto& t) { t[0]["first"] = -1; }).step == 10);
  CHECK(try_table(numbers.size(), [](auto& t) { t[0]["offset"] = {5, 0}; }).step == 10);
  CHECK(try_table(numbers.size(), [](auto& t) { t[0]["extent"] = {2}; }).step == 10);
  CHECK(try_table(numbers.size(), [](auto& t) { t[0]["name"] = "other"; }).step == 10);
  CHECK(try_table(numbers.size(), [&](auto& t) {
          t[0]["shape"] = {huge, 4};
          t[0]["extent"] = {huge, 4};
          t[0]["count"] = huge * 2;
        }).step == 10);
  CHECK(try_table(numbers.size(), [&](auto& t) { t[0]["count"] = huge; }).step == 10);
  CHECK(try_table(numbers.size(), [](auto& t) { t = {{"a", 1}}; }).step == 10);
  CHECK(try_table(numbers.size(), [](auto& t) { t = nlohmann::json::array(); }).step == 10);
  // Right counts, wrong places: only the reading can tell, and does.
  const Error error = error_of([&] { try_table(numbers.size(), [](auto& t) { t[0]["offset"] = {1, 0}; }); });
  CHECK(error.exit_code() == 4);
  CHECK_THAT(error.what(), Contains("tensor weight"));
}

TEST_CASE("what is not there is none, or an error if it was named", "[checkpoint]") {
  const TemporaryFolder folder;
  const Layout layout = split_along(kFewTensors, 2, 0);
  CHECK(load_newest(folder.file("nowhere"), kFewTensors, layout).step == -1);
  CHECK(find_checkpoints(folder.file("nowhere")).empty());
  for (const char* name : {"nowhere", "."}) {
    const Error error = error_of([&] { load_named(folder.file(name), kFewTensors, layout); });
    CHECK(error.exit_code() == 4);
  }
  save_as(folder.file("run"), kFewTensors, layout, 3);
  CHECK(load_named(folder.file("run"), kFewTensors, layout).step == 3);
  CHECK(load_named(folder.file("run/checkpoints"), kFewTensors, layout).step == 3);
  std::filesystem::rename(folder.file("run/checkpoints/step_00000003"), folder.file("best"));
  CHECK(load_named(folder.file("best"), kFewTensors, layout).step == 3);
  const Error error = error_of([&] { load_named(folder.file("run"), kFewTensors, layout); });
  CHECK(error.exit_code() == 4);
}
