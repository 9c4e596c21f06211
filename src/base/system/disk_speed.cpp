#include "base/system/disk_speed.h"

#include <unistd.h>

#include <vector>

#include "base/core/timers.h"
#include "base/system/storage.h"

namespace megatron {

namespace {

constexpr std::size_t kBlockBytes = 1 << 20;
constexpr int kBlocks = 8;

// Seconds until the disk has them; nothing if it does not take them.
std::optional<double> seconds_to_write(int file, const std::vector<char>& block, int blocks) {
  const double start = Timers::steady_seconds();
  for (int i = 0; i < blocks; ++i) {
    if (::write(file, block.data(), block.size()) != static_cast<ssize_t>(block.size())) return std::nullopt;
  }
  if (::fdatasync(file) != 0) return std::nullopt;
  return Timers::steady_seconds() - start;
}

}  // namespace

std::optional<DiskSpeed> measure_disk(const std::string& folder) {
  const int file = open_unnamed_file(folder);
  if (file < 0) return std::nullopt;
  const std::optional<double> sync = seconds_to_write(file, std::vector<char>(8, 1), 1);
  const std::optional<double> all =
      sync ? seconds_to_write(file, std::vector<char>(kBlockBytes, 1), kBlocks) : std::nullopt;
  (void)::close(file);
  if (!all || *all <= 0) return std::nullopt;
  return DiskSpeed{*sync, static_cast<double>(kBlocks * kBlockBytes) / *all};
}

}  // namespace megatron
