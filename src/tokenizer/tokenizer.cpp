#include "tokenizer/tokenizer.h"

#include "base/error.h"
#include "tokenizer/byte_tokenizer.h"

namespace megatron {

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name) {
  if (name == "byte") return std::make_unique<ByteTokenizer>();
  fail(ErrorKind::configuration, "there is no tokenizer \"{}\"; choose one of: byte", name);
}

}  // namespace megatron
