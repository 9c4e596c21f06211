// The reader of checkpoints' rank files on a file of any bytes. As with shard_file.cpp, HDF5's checksums let few
// changes of a good file through to where it is understood; checkpoint_folder.cpp goes in behind them.
#include "checkpoint/rank_file.h"

#include "fuzz/fuzz.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::ScratchFile file({reinterpret_cast<const char*>(data), size});
  for (const int moments : {0, 2}) {
    fuzz::allow({ErrorKind::checkpoint}, [&] { read_piece_table(file.path(), 3, 5, moments); });
  }
  return 0;
}
