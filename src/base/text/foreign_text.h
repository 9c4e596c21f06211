// Advice about a file or line that is not of the kind that was meant, told by its first bytes: for messages that name
// the cause and the way out. Strings in, strings out; empty where nothing is known.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace megatron {

/// Bytes that a pointer of Git LFS has at most.
inline constexpr std::size_t kLongestLfsPointer = 1024;

/// Advice about a file of at most kLongestLfsPointer bytes, by its first ones, if it is a pointer of Git LFS.
std::string lfs_advice(std::string_view beginning);

/// Advice about a file of Parquet: a command that makes JSON lines of it, in the folder where it is typed. Never empty.
std::string parquet_advice(const std::string& path);

/// Advice about a text that should be UTF-8, if it is UTF-16 or UTF-32.
std::string encoding_advice(std::string_view beginning);

/// Advice about a line that should be a JSON object and is none, if it is the beginning of a JSON array or of an object
/// on several lines, or has a second byte order mark.
std::string json_line_advice(std::string_view line);

}  // namespace megatron
