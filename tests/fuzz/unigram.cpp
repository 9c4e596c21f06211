// The reader of a tokenizer.json of type Unigram, and the tokenizer that it makes. The input is a file and a text, with
// a NUL byte between them.
#include "data/tokenizer_kinds/unigram_tokenizer.h"
#include "fuzz/fuzz.h"
#include "fuzz/use_tokenizer.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(all.find('\0'), all.size());
  const std::string_view text = all.substr(std::min(end + 1, all.size()));
  const fuzz::ScratchFile file{all.substr(0, end)};
  fuzz::allow({ErrorKind::data}, [&] {
    const UnigramTokenizer tokenizer(read_unigram_json(file.path(), 2));
    fuzz::use_tokenizer(tokenizer, text);
    const fuzz::ScratchFile kept{tokenizer.tokenizer_json()};
    fuzz::require(UnigramTokenizer(read_unigram_json(kept.path(), 0)).hash() == tokenizer.hash(),
                  "another tokenizer from its own tokenizer.json");
  });
  return 0;
}
