// Files that bzip2 has compressed.
#include "data/preprocess/bzip2_text.h"

#include "fuzz/packed_file.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::read_packed(data, size, [](const std::string& path, std::uint64_t bytes) {
    return is_bzip2(path) ? std::make_unique<Bzip2Text>(path, bytes) : nullptr;
  });
  return 0;
}
