// safetensors: what is written reads back, what strangers claim is checked before it is believed.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/store/layouts.h"
#include "support/catch.h"
#include "support/lfs_pointer.h"
#include "support/memory_limit.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes + rest;
}

std::string file_of(const std::string& header, std::size_t data = 0) {
  return with_length(header.size(), header + std::string(data, '\1'));
}

void refused(const std::string& bytes, const std::string& part) {
  const TemporaryFolder folder;
  const std::string path = folder.file("model.safetensors");
  write_file(path, bytes);
  require_error(ErrorKind::checkpoint, {path, part}, [&] { const SafetensorsFile file(path); });
}

const std::vector<NewTensor> kTensors = {{"first", {3, 4}}, {"second", {5}}, {"third", {2, 2}}};

void fill(std::size_t index, std::span<float> numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(index * 100 + i) * 0.37f - 3;
  }
}

}  // namespace

TEST_CASE("safetensors: a header of 80,000 tensors is read in seconds", "[safetensors][fault-56]") {
  const TemporaryFolder folder;
  std::string header = "{";
  for (int i = 0; i < 80'000; ++i) {
    header += fmt::format("{}\"t{}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", i > 0 ? "," : "", i);
  }
  write_file(folder.file("model.safetensors"), file_of(header + "}"));
  const auto start = std::chrono::steady_clock::now();
  CHECK(SafetensorsFile(folder.file("model.safetensors")).tensors().size() == 80'000);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));  // the square took 97
}

TEST_CASE("safetensors: numbers near 2^63 are refused in every place", "[safetensors][fault-56]") {
  const std::string good = R"({"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
  {
    const TemporaryFolder folder;
    write_file(folder.file("model.safetensors"), file_of(good, 16));
    CHECK(SafetensorsFile(folder.file("model.safetensors")).tensors().size() == 1);
  }
  const std::vector<std::pair<std::string, std::string>> places{
      {"[2,2]", "[N,2]"}, {"[2,2]", "[2,N]"}, {"[2,2]", "[N,N]"}, {"[2,2]", "[N,0]"}, {"[0,", "[N,"}, {"16]", "N]"},
  };
  for (const char* number :
       {"9223372036854775807", "9223372036854775808", "9223372036854775806", "18446744073709551615",
        "18446744073709551616", "4611686018427387904", "-9223372036854775808", "1e19"}) {
    for (const auto& [from, to] : places) {
      std::string header = good, place = to;
      for (std::size_t at; (at = place.find('N')) != place.npos;) place.replace(at, 1, number);
      header.replace(header.find(from), from.size(), place);
      INFO(header);
      refused(file_of(header, 16), "");
    }
    const std::uint64_t length = std::strtoull(number, nullptr, 10);
    refused(with_length(length, good + std::string(16, '\1')), "header would have");
  }
}

TEST_CASE("safetensors: every type and any number of files survive a round trip", "[safetensors]") {
  const auto type = GENERATE(SafetensorsType::f32, SafetensorsType::bf16, SafetensorsType::f16);
  const std::int64_t limit = GENERATE(1, 48, 1000);
  CAPTURE(name_of(type), limit);
  const TemporaryFolder folder;
  const WrittenSafetensors written = write_safetensors(folder.path(), kTensors, type, limit, fill);
  const bool all_in_one = limit == 1000 || (limit == 48 && type != SafetensorsType::f32);
  CHECK(written.files == (limit == 1 ? 3 : all_in_one ? 1 : 2));
  CHECK((std::filesystem::exists(folder.file("model.safetensors.index.json")) == (written.files > 1)));
  const SafetensorsModel model(folder.path());
  CHECK(model.names() == std::vector<std::string>{"first", "second", "third"});
  const double unit = type == SafetensorsType::f32 ? 0 : type == SafetensorsType::f16 ? 1.0 / 2048 : 1.0 / 256;
  for (std::size_t index = 0; index < kTensors.size(); ++index) {
    CHECK(model.entry(kTensors[index].name).shape == kTensors[index].shape);
    const auto count = static_cast<std::size_t>(model.entry(kTensors[index].name).elements());
    std::vector<float> expected(count), numbers(count);
    fill(index, expected);
    model.read(kTensors[index].name, 0, numbers);
    for (std::size_t i = 0; i < count; ++i) CHECK(std::abs(numbers[i] - expected[i]) <= unit * std::abs(expected[i]));
    float last = 0;
    model.read(kTensors[index].name, static_cast<std::int64_t>(count) - 1, {&last, 1});
    CHECK(last == numbers.back());
  }
  CHECK(remove_export(folder.path()).empty());
  CHECK_FALSE(std::filesystem::exists(folder.path()));
}

TEST_CASE("an empty tensor and one without dimensions are read", "[safetensors]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  write_file(path, file_of(R"({"none":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]},)"
                           R"("one":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                           4));
  const SafetensorsFile file(path);
  CHECK(file.tensors().at("none").elements() == 0);
  CHECK(file.tensors().at("one").elements() == 1);
}

TEST_CASE("safetensors: crafted files are refused before memory is taken", "[safetensors][fault-50]") {
  refused("", "too short");
  refused("1234567", "too short");
  for (const std::uint64_t length : {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 63,
                                     std::numeric_limits<std::uint64_t>::max() - 7}) {
    refused(with_length(length, "{}"), fmt::format("header would have {} bytes", length));
  }
  refused(with_length(3, "{}"), "the file is shorter than its header says");
  refused(kLfsPointer, "a pointer of Git LFS, not the file");
  refused(with_length(0, "{}"), "header would have 0 bytes");
  refused(file_of("[]"), "does not begin with {");
  refused(file_of(R"({"a":)"), "not JSON");
  refused(file_of(R"({"a":)" + std::string(3000, '[') + std::string(3000, ']') + "}"), "nested");
  const auto tensor = [](const std::string& shape, const std::string& offsets, const std::string& dtype = "F32") {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const auto one = [&](const std::string& entry, std::size_t data) { return file_of(R"({"a":)" + entry + "}", data); };
  refused(file_of(R"({"a":)" + tensor("[1]", "[0,4]") + R"(,"a":)" + tensor("[1]", "[0,4]") + "}", 4),
          "\"a\" is there twice");
  refused(one(R"({"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]})", 4), "\"shape\" is there twice");
  refused(file_of(R"({"a":)" + tensor("[2]", "[0,8]") + R"(,"b":)" + tensor("[2]", "[4,12]") + "}", 12), "overlap");
  refused(file_of(R"({"a":)" + tensor("[2]", "[0,8]") + R"(,"b":)" + tensor("[2]", "[0,8]") + "}", 8), "overlap");
  refused(file_of(R"({"a":)" + tensor("[1]", "[0,4]") + R"(,"b":)" + tensor("[1]", "[8,12]") + "}", 12),
          "do not follow");
  refused(one(tensor("[1]", "[0,4]"), 8), "4 bytes belong to no tensor");
  refused(one(tensor("[1]", "[4,0]"), 4), "data_offsets are 4 to 0");
  refused(one(tensor("[2]", "[0,8]"), 4), "the file is shorter than its header says");
  refused(one(tensor("[1]", "[-4,0]"), 4), "not a whole number");
  refused(one(tensor("[1]", "[0,4.0]"), 4), "not a whole number");
  refused(one(tensor("[1]", "[0,18446744073709551616]"), 4), "not a whole number");
  refused(one(tensor("[1]", "[0]"), 4), "not two numbers");
  refused(one(tensor("[-1]", "[0,4]"), 4), "not a whole number");
  refused(one(tensor("[4294967296,4294967296]", "[0,0]"), 0), "larger than the file");
  refused(one(tensor("[4611686018427387905]", "[0,4]"), 4), "larger than the file");
  refused(one(tensor("[9223372036854775807,2]", "[0,4]"), 4), "larger than the file");
  refused(one(tensor("[0,3]", "[0,4]"), 4), "take 0 bytes, its data_offsets are 4 bytes");
  refused(one(tensor("[1]", "[0,4]", "F16"), 4), "take 2 bytes");
  refused(one(tensor("[1]", "[0,4]", "F31"), 4), "dtype \"F31\" is unknown");
  refused(one(R"({"dtype":"F32","shape":[1]})", 4), "not exactly dtype, shape and data_offsets");
  refused(one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1})", 4), "not exactly");
  refused(file_of(R"({"__metadata__":{"format":1}})"), "__metadata__");
}

TEST_CASE("numbers of other dtypes are refused when they are asked for", "[safetensors]") {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  write_file(path, file_of(R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8));
  const SafetensorsFile file(path);
  std::vector<float> number(1);
  require_error(ErrorKind::checkpoint, {"I64", "F32, F16 and BF16"},
                [&] { file.read(file.tensors().at("a"), 0, number); });
}

TEST_CASE("safetensors: an index must match its files and stay in the folder", "[safetensors][fault-50]") {
  const TemporaryFolder folder;
  write_safetensors(folder.path(), kTensors, SafetensorsType::f32, 1, fill);
  const std::string index = folder.file("model.safetensors.index.json");
  const auto good = nlohmann::json::parse(contents_of(index));
  CHECK(good.at("metadata").at("total_size") == 84);
  const auto refuse = [&](const std::function<void(nlohmann::json & map)>& change, const std::string& part) {
    nlohmann::json changed = good;
    change(changed["weight_map"]);
    write_file(index, changed.dump());
    require_error(ErrorKind::checkpoint, {part}, [&] { const SafetensorsModel model(folder.path()); });
  };
  for (const char* name : {"../model-00001-of-00003.safetensors", "/etc/passwd", ".safetensors", "model.bin", ""}) {
    refuse([&](nlohmann::json& map) { map["first"] = name; }, "no name of a safetensors file next to it");
  }
  refuse([](nlohmann::json& map) { map["first"] = 1; }, "something else than files");
  refuse([](nlohmann::json& map) { map.erase("first"), map["fourth"] = "model-00001-of-00003.safetensors"; }, "first");
  refuse([](nlohmann::json& map) { map["fourth"] = "model-00001-of-00003.safetensors"; }, "has no tensor fourth");
  refuse([](nlohmann::json& map) { map["first"] = map["second"]; }, "has no tensor first");
  write_file(index, "{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"x.safetensors\"}}");
  require_error(ErrorKind::checkpoint, {"twice"}, [&] { const SafetensorsModel model(folder.path()); });
  const TemporaryFolder empty;
  require_error(ErrorKind::checkpoint, {"neither"}, [&] { const SafetensorsModel model(empty.path()); });
}
