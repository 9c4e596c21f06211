// The file of logits: what it holds, and that nothing is left of one that was not published.
#include "inference/generation/logits_file.h"

#include "data/hdf5/hdf5_reader.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;

TEST_CASE("logits file: rows and whose they are") {
  const TemporaryFolder folder;
  const std::string path = folder.file("logits.h5");
  const std::vector<float> first = {1, 2.5, -3}, second = {4, 5, 6};
  {
    LogitsFile file({"--logits", path}, 3);
    file.add(0, 0, first);
    file.add(2, 7, second);
    CHECK_FALSE(std::filesystem::exists(path));
    file.publish();
  }
  CHECK(folder.files() == std::vector<std::string>{"logits.h5"});
  const Hdf5Reader reader(path, ErrorKind::data);
  CHECK(reader.read_u64("vocab_size") == 3);
  const auto read = [&](const std::string& name, auto value) {
    const Hdf5Array array = reader.open_dataset(name);
    std::vector<decltype(value)> values(array.elements());
    array.read(0, values.data(), values.size());
    return values;
  };
  CHECK(read("logits", float{}) == std::vector<float>{1, 2.5, -3, 4, 5, 6});
  CHECK(read("texts", std::int64_t{}) == std::vector<std::int64_t>{0, 2});
  CHECK(read("positions", std::int64_t{}) == std::vector<std::int64_t>{0, 7});
}

TEST_CASE("logits file: an unpublished one leaves nothing and the old one stays") {
  const TemporaryFolder folder;
  const std::string path = folder.file("logits.h5");
  std::ofstream(path) << "old";
  {
    LogitsFile file({"--logits", path}, 3);
    file.add(0, 0, std::vector<float>{1, 2, 3});
  }
  CHECK(folder.files() == std::vector<std::string>{"logits.h5"});
  CHECK(std::filesystem::file_size(path) == 3);
}
