// The reader of Megatron-LM's indexed data sets. The input is two bytes that say how long the index is, the index, and
// the tokens.
#include "data/indexed/indexed_reader.h"

#include <fstream>

#include "fuzz/fuzz.h"

using namespace megatron;

namespace {

/// A file whose name the reader makes up.
class NamedFile {
 public:
  NamedFile(std::string path, std::string_view contents) : path_(std::move(path)) {
    std::ofstream(path_, std::ios::binary) << contents;
  }
  ~NamedFile() { ::unlink(path_.c_str()); }

 private:
  std::string path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices({reinterpret_cast<const char*>(data), size});
  const std::string_view index = choices.take(choices.number(2)), tokens = choices.rest();
  const fuzz::ScratchFile scratch;  // for a unique name
  const NamedFile index_file(scratch.path() + ".idx", index), tokens_file(scratch.path() + ".bin", tokens);
  fuzz::allow({ErrorKind::data}, [&] {
    IndexedReader reader(scratch.path());
    std::uint64_t sum = 0;
    for (const std::uint32_t length : reader.lengths()) sum += length;
    fuzz::require(sum == reader.tokens() && sum * bytes_of(reader.type()) == tokens.size(),
                  "lengths and tokens differ");
    const std::vector<std::uint64_t>& documents = reader.documents();
    fuzz::require(documents.empty() || (documents.front() == 0 && documents.back() == reader.sequences() &&
                                        std::is_sorted(documents.begin(), documents.end())),
                  "a document index that is none");
    std::vector<std::int32_t> ids(reader.tokens());
    reader.read(0, ids.size(), ids.data());
    fuzz::require(std::all_of(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 0; }), "an id below zero");
  });
  return 0;
}
