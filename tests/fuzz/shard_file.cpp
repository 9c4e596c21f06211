// The shard reader on a file of any bytes, whose checksums and whose end (of which the superblock has the place) are
// taken as right: the stored shards with any change, in the metadata as in the contents.
#include "data/shards/token_shard.h"
#include "fuzz/fuzz.h"
#include "fuzz/hdf5_end.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::ScratchFile file(fuzz::with_right_end({reinterpret_cast<const char*>(data), size}));
  fuzz::allow({ErrorKind::data}, [&] {
    TokenShard shard(file.path());
    const std::vector<std::uint64_t> documents = shard.read_documents();
    fuzz::require(documents.size() == shard.documents() + 1 && documents.back() == shard.tokens() &&
                      std::is_sorted(documents.begin(), documents.end()),
                  "documents that are not parts of the tokens");
    fuzz::require(shard.tokens() <= size, "more tokens than the file can hold");
    std::vector<std::int32_t> ids(shard.tokens() + 1, -7);
    shard.read(0, shard.tokens(), ids.data());
    fuzz::require(ids.back() == -7, "read more than there is");
    ids.pop_back();
    const auto known = [&](std::int32_t id) { return static_cast<std::uint32_t>(id) < shard.vocabulary().size; };
    fuzz::require(std::all_of(ids.begin(), ids.end(), known), "an id outside the vocabulary");
  });
  return 0;
}
