// Where files will lie: folders that are yet to be made, the free space of their disks, and what those disks are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

/// `directory`, or the nearest folder above it that exists.
std::string existing_folder(const std::string& directory);

/// Bytes that are free for this user on the file system of `directory`, or of the nearest folder above it that exists;
/// nothing where the file system does not count. Throws Error(filesystem) where it cannot be asked.
std::optional<std::int64_t> free_space(const std::string& directory);

/// "tmpfs", "nfs" and so on where a folder's files are not on a disk of this machine; empty where they seem to be.
std::string storage_that_is_no_local_disk(const std::string& folder);

/// A descriptor of a new file that no folder lists: without a name from the start, or, where the file system has no
/// such files, from now on. Below 0, with errno, where there is none.
int open_unnamed_file(const std::string& folder);

}  // namespace megatron
