#include "base/system/storage.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/system/errno_text.h"

namespace megatron {

std::string existing_folder(const std::string& directory) {
  std::filesystem::path place = std::filesystem::absolute(directory);
  std::error_code error;
  while (!std::filesystem::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  return place.string();
}

std::optional<std::int64_t> free_space(const std::string& directory) {
  struct statvfs status {};
  if (::statvfs(existing_folder(directory).c_str(), &status) != 0)
    fail_with_errno("examine the file system of", directory);
  if (status.f_blocks == 0) return std::nullopt;
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

std::string storage_that_is_no_local_disk(const std::string& folder) {
  struct statfs disk {};
  if (::statfs(folder.c_str(), &disk) != 0) return "";
  switch (static_cast<std::uint32_t>(disk.f_type)) {
    case 0x01021994:
    case 0x858458F6: return "tmpfs";
    case 0x6969: return "nfs";
    case 0x0BD00BD0: return "lustre";
    case 0x47504653: return "gpfs";
    case 0x19830326: return "beegfs";
    case 0x00C36400: return "ceph";
    case 0xFF534D42:
    case 0xFE534D42:
    case 0x517B: return "smb";
    default: return "";
  }
}

int open_unnamed_file(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  std::string path = folder + "/.unnamed.XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) (void)::unlink(path.c_str());
  return named;
}

}  // namespace megatron
