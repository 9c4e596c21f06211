// Looking at a FileLock (base/system/file_lock.h) of another process.
#pragma once

#include <string>

namespace megatron {

/// Who holds a FileLock on this file now: "process 12 on node3"; empty if no process does, or it cannot be told.
/// Neither creates the file nor takes the lock. Not for the process that holds it: closing the file would let it go.
std::string lock_holder(const std::string& path);

}  // namespace megatron
