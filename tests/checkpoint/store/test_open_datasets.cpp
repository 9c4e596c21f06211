// Datasets that stay open between reads: the last ones used.
#include "checkpoint/store/layouts.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/open_datasets.h"
#include "checkpoint/store/tensor_slices.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("a dataset that is in use stays open while others come and go", "[checkpoint]") {
  const TemporaryFolder folder;
  const float number = 2.5f;
  const TensorSlice slice{"a", {1}, {{0}, {1}}, 0, 1};
  const auto file = [&](std::size_t rank) { return folder.file(rank_file_name(static_cast<int>(rank))); };
  write_rank_file(file(0), 0, 1, {slice}, [&](const std::string&, std::int64_t) { return std::span(&number, 1); });
  for (std::size_t rank = 1; rank <= OpenDatasets::kMost + 1; ++rank) std::filesystem::copy(file(0), file(rank));
  OpenDatasets open;
  const auto read = [&](std::size_t rank) {
    float value = 0;
    open.at(file(rank), kValues).read(0, &value, 1);
    return value;
  };
  CHECK(read(0) == 2.5f);
  std::filesystem::remove(file(0));  // it can be read as long as it is open
  for (std::size_t rank = 1; rank <= OpenDatasets::kMost + 1; ++rank) {
    CHECK(read(rank) == 2.5f);
    CHECK(read(0) == 2.5f);
  }
  std::filesystem::remove(file(1));  // used longest ago
  CHECK(error_of([&] { read(1); }).kind() == ErrorKind::checkpoint);
}
