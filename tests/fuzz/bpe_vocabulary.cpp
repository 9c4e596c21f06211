// The readers of vocab.json and merges.txt, and the tokenizer that they make. The input is the two files and a text
// with a NUL byte between them; after a first byte that is odd, vocab.json continues after the 256 bytes and
// <|endoftext|>.
#include <nlohmann/json.hpp>

#include "base/text/utf8.h"
#include "data/tokenizer_kinds/gpt2_tokenizer.h"
#include "fuzz/fuzz.h"

using namespace megatron;

namespace {

const std::string& beginning() {
  static const std::string text = [] {
    std::string entries = "{";
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      std::string written;
      append_utf8(written, itself ? byte : next++);
      entries += nlohmann::json(written).dump() + ":" + std::to_string(byte) + ",";
    }
    return entries + "\"<|endoftext|>\":256";
  }();
  return text;
}

void use(const Gpt2Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  const auto encoder = tokenizer.make_encoder();
  for (int time = 0; time < 2; ++time) {  // the second time out of its memory
    ids.clear();
    encoder->encode(text, ids);
    for (const std::int32_t id : ids) {
      fuzz::require(id >= 0 && id < tokenizer.vocab_size() && id != tokenizer.eod_id(), "an id that no text has");
    }
    fuzz::require(tokenizer.decode(ids) == text, "another text than was encoded");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto part = [&] {
    const std::string_view text = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    return std::string(text);
  };
  const std::string vocabulary = (data[0] % 2 == 1 ? beginning() : "") + part(), merges = part();
  const fuzz::ScratchFile vocab_file(vocabulary), merge_file(merges);
  fuzz::allow({ErrorKind::data}, [&] { use(Gpt2Tokenizer(vocab_file.path(), merge_file.path()), rest); });
  return 0;
}
