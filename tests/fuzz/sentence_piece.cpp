// The reader of SentencePiece's models, and the Encoders of what the reader lets through. The input is a length
// in a byte, a text of that length, and a model.
#include "data/tokenizer_kinds/sentence_piece_tokenizer.h"
#include "fuzz/fuzz.h"
#include "fuzz/use_tokenizer.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices input(std::string_view(reinterpret_cast<const char*>(data), size));
  const std::string_view text = input.take(input.number(1));
  const fuzz::ScratchFile file{input.rest()};
  fuzz::allow({ErrorKind::data}, [&] {
    SentencePieceModel model = read_sentence_piece_model({"sentencepiece", file.path(), "", 2});
    const SentencePieceTokenizer tokenizer(std::move(model));
    fuzz::use_tokenizer(tokenizer, text);
    const fuzz::ScratchFile kept{tokenizer.files().front().contents};
    SentencePieceModel again = read_sentence_piece_model({"sentencepiece", kept.path(), ""});
    fuzz::require(SentencePieceTokenizer(std::move(again)).hash() == tokenizer.hash(),
                  "another tokenizer from the file that is kept");
  });
  return 0;
}
