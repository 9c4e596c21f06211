// Free space of a disk, and the disk on which a folder that is yet to be made will lie.
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

}  // namespace megatron
