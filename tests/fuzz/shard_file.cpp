// The shard reader on a file of any bytes. HDF5's checksums let few changes of a good file through to where it is
// understood; shard_contents.cpp goes in behind them.
#include "data/token_shard.h"
#include "fuzz/fuzz.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::ScratchFile file({reinterpret_cast<const char*>(data), size});
  fuzz::allow({ErrorKind::data}, [&] {
    TokenShard shard(file.path());
    shard.read_documents();
    std::vector<std::int32_t> ids(std::min<std::uint64_t>(shard.tokens(), 1 << 16));
    shard.read(0, ids.size(), ids.data());
    shard.read(shard.tokens() - ids.size(), ids.size(), ids.data());
  });
  return 0;
}
