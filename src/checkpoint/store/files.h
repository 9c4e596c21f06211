// Durable files: the few POSIX calls that the commit protocol is made of, each with an error that says what to do.
//
// Knows nothing of checkpoints; adds to base/system/durable_file.h what folders of files need. Symbolic links are never
// followed in the last component of a path. All functions throw Error(filesystem) unless they say otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/system/durable_file.h"
#include "base/system/errno_text.h"

namespace megatron {

struct FileDigest {
  std::int64_t bytes = 0;
  std::string xxh3_128;  ///< 32 lower-case hexadecimal digits, canonical byte order
};

/// Size and hash of a regular file, streamed. Error(checkpoint) if the disk has lost part of it (EIO).
FileDigest digest_file(const std::string& path);
/// The hash of a text, in the same form.
std::string digest_text(std::string_view text);

enum class FileType { absent, regular, directory, other };
/// Type of what is there, symbolic links not followed (they are `other`). Throws where it cannot be told.
FileType file_type(const std::string& path);
/// Bytes of a regular file; -1 if it is none or not there. Throws where it cannot be told.
std::int64_t file_bytes(const std::string& path);

/// Creates a folder with its parents unless it is there.
void create_folder_durably(const std::string& path);

/// A regular file of at most `limit` bytes, whole.
std::string read_text_file(const std::string& path, std::int64_t limit);

/// Gives the complete folder `from` the name `to` and syncs `parent`. If `to` exists, the two change places in one
/// atomic step where the file system can (Linux renameat2), else by way of `aside`; without an `aside` that is an
/// error, unless it is an empty folder. Returns where the former `to` is now, `from` or `aside`; empty: there was none.
std::string put_folder_in_place(const std::string& from, const std::string& to, const std::string& aside,
                                const std::string& parent);

}  // namespace megatron
