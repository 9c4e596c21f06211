// The text that a clone without git-lfs has in the place of a large file.
#pragma once

namespace megatron::test {

inline constexpr const char* kLfsPointer =
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

}  // namespace megatron::test
