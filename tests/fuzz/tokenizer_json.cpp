// The reader of tokenizer.json, and the tokenizer that it makes. The input is the values of pre_tokenizer, normalizer,
// added_tokens, merges and ignore_merges, and a text, with a NUL byte between them; the vocabulary is the 256 bytes,
// "ab" and <|endoftext|>.
#include <nlohmann/json.hpp>

#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer_kinds/gpt2_tokenizer.h"
#include "fuzz/fuzz.h"
#include "fuzz/use_tokenizer.h"

using namespace megatron;

namespace {

const std::string& vocabulary() {
  static const std::string text = [] {
    const ByteAlphabet alphabet;
    nlohmann::json vocab = {{"ab", 256}, {"<|endoftext|>", 257}};
    for (int byte = 0; byte < 256; ++byte) vocab[alphabet.written(std::string(1, static_cast<char>(byte)))] = byte;
    return vocab.dump();
  }();
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto part = [&] {
    const std::string_view text = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    return std::string(text);
  };
  std::string file = R"({"pre_tokenizer":)" + part();
  file += R"(,"normalizer":)" + part() + R"(,"added_tokens":)" + part();
  file += R"(,"model":{"type":"BPE","merges":)" + part() + R"(,"ignore_merges":)" + part();
  const fuzz::ScratchFile json(file + R"(,"vocab":)" + vocabulary() + "}}");
  fuzz::allow({ErrorKind::data}, [&] { fuzz::use_tokenizer(Gpt2Tokenizer(json.path(), ""), rest); });
  return 0;
}
