// Free memory by the files that the kernel tells it in, made up here.
#include "base/system/memory_usage.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

class System {
 public:
  void write(const std::string& path, const std::string& text) const {
    const std::string file = folder_.file(path);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    std::ofstream(file) << text;
  }
  /// A group of version 2; `folder` from the root of all groups, "" for it.
  void group(const std::string& folder, const std::string& limit, std::size_t used, std::size_t inactive = 0,
             std::size_t active = 0, std::size_t slabs = 0) const {
    write("cgroup" + folder + "/memory.max", limit + "\n");
    write("cgroup" + folder + "/memory.current", std::to_string(used) + "\n");
    write("cgroup" + folder + "/memory.stat", "anon 4096\nfile 999999999999\ninactive_anon 4096\ninactive_file " +
                                                  std::to_string(inactive) + "\nactive_file " + std::to_string(active) +
                                                  "\nslab_reclaimable " + std::to_string(slabs) + "\n");
  }
  std::optional<std::size_t> free() const {
    return free_memory_bytes({.proc = folder_.file("proc"), .control_groups = folder_.file("cgroup")});
  }

 private:
  TemporaryFolder folder_;
};

std::string mebibytes(std::size_t count) {
  return std::to_string(count * kMebibyte);
}

}  // namespace

TEST_CASE("free memory without control groups is what the kernel holds available") {
  const System system;
  CHECK_FALSE(system.free());
  system.write("proc/meminfo", "MemTotal:  9999999 kB\nMemFree:   17 kB\nMemAvailable:   8192 kB\n");
  CHECK(system.free() == 8 * kMebibyte);
  system.write("proc/meminfo", "MemTotal:  9999999 kB\nMemAvailable:   0 kB\n");
  CHECK(system.free() == 0u);
}

TEST_CASE("free memory: a control group's limit less its use but for file pages") {
  const System system;
  system.write("proc/meminfo", "MemAvailable:   1048576 kB\n");
  system.write("proc/self/cgroup", "0::/job/step\n");
  system.group("/job/step", "max", 90 * kMebibyte);
  CHECK(system.free() == 1024 * kMebibyte);
  system.group("/job/step", mebibytes(100), 90 * kMebibyte);
  CHECK(system.free() == 10 * kMebibyte);
  system.group("/job/step", mebibytes(100), 100 * kMebibyte, 30 * kMebibyte, 5 * kMebibyte);
  CHECK(system.free() == 35 * kMebibyte);
  system.group("/job/step", mebibytes(100), 100 * kMebibyte, 30 * kMebibyte, 5 * kMebibyte, 7 * kMebibyte);
  CHECK(system.free() == 42 * kMebibyte);
  // The tightest of the group and those it is in decides, up to the root that a container sees.
  system.group("/job", mebibytes(200), 180 * kMebibyte);
  CHECK(system.free() == 20 * kMebibyte);
  system.group("", mebibytes(300), 295 * kMebibyte, kMebibyte);
  CHECK(system.free() == 6 * kMebibyte);
  // Nothing left is nothing, also where more is used than the limit allows.
  system.group("/job", mebibytes(100), 180 * kMebibyte);
  CHECK(system.free() == 0u);
  // Without the kernel's own estimate the group's is known still.
  system.write("proc/meminfo", "");
  CHECK(system.free() == 0u);
  system.group("/job", "max", 180 * kMebibyte);
  CHECK(system.free() == 6 * kMebibyte);
}

TEST_CASE("free memory under control groups of version 1") {
  const System system;
  system.write("proc/meminfo", "MemAvailable:   1048576 kB\n");
  system.write("proc/self/cgroup", "5:devices:/elsewhere\n4:memory:/job\n0::/\n");
  const std::string folder = "cgroup/memory/job/";
  system.write(folder + "memory.limit_in_bytes", mebibytes(100) + "\n");
  system.write(folder + "memory.usage_in_bytes", mebibytes(80) + "\n");
  system.write(folder + "memory.stat",
               "inactive_file 1\ntotal_inactive_file " + mebibytes(7) + "\ntotal_active_file " + mebibytes(2) + "\n");
  CHECK(system.free() == 29 * kMebibyte);
}

TEST_CASE("memory use is plausible and the peak notices 64 MiB") {
  const std::size_t now = resident_bytes(), before = peak_resident_bytes();
  CHECK(before + (std::size_t{1} << 20) >= now);  // the kernel's counters lag a little
  CHECK(now > 1000000);
  CHECK(free_memory_bytes().value_or(0) > 0);
  const std::size_t size = std::size_t{64} << 20;
  {
    const std::string block(size, 'x');
    CHECK(resident_bytes() >= size);
    CHECK(block[size / 2] == 'x');
  }
  CHECK(peak_resident_bytes() >= now + size / 2);
}
