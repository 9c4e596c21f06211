#include <filesystem>
#include <optional>

#include "base/system/disk_speed.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;

TEST_CASE("disk speed: measured without a trace, or not at all") {
  const TemporaryFolder folder;
  if (const std::optional<DiskSpeed> speed = measure_disk(folder.path())) {
    CHECK(speed->bytes_per_second > 0);
    CHECK(speed->seconds_per_sync >= 0);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK_FALSE(measure_disk(folder.file("not_there")));
  CHECK_FALSE(measure_disk("/proc"));
}
