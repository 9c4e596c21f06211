// The readers of vocab.txt and of a tokenizer.json of type WordPiece, and the tokenizer that they make. The input is a
// file and a text, with a NUL byte between them; a file that begins with "{" is a tokenizer.json.
#include "fuzz/fuzz.h"
#include "tokenizer/word_piece_tokenizer.h"

using namespace megatron;

namespace {

void use(const WordPieceTokenizer& tokenizer, std::string_view text) {
  for (const SpecialTokens special : {SpecialTokens::text, SpecialTokens::tokens}) {
    const auto encoder = tokenizer.make_encoder(special);
    std::vector<std::int32_t> ids, again;
    encoder->encode(text, ids);
    encoder->encode(text, again);  // out of its memory
    fuzz::require(ids == again, "other ids for the same text");
    for (const std::int32_t id : ids) {
      fuzz::require(id >= 0 && id < tokenizer.vocab_size(), "an id outside the vocabulary");
      fuzz::require(special == SpecialTokens::tokens || id != tokenizer.eod_id(), "a text that ends a document");
    }
    tokenizer.decode(ids);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(all.find('\0'), all.size());
  const std::string_view text = all.substr(std::min(end + 1, all.size()));
  const fuzz::ScratchFile file{std::string(all.substr(0, end))};
  fuzz::allow({ErrorKind::data}, [&] {
    WordPieceVocabulary vocabulary =
        all.starts_with('{') ? read_word_piece_json(file.path(), 2) : read_word_piece_text(file.path(), true, 2);
    const WordPieceTokenizer tokenizer(std::move(vocabulary));
    use(tokenizer, text);
    const fuzz::ScratchFile kept{tokenizer.tokenizer_json()};
    fuzz::require(WordPieceTokenizer(read_word_piece_json(kept.path(), 0)).hash() == tokenizer.hash(),
                  "another tokenizer from its own tokenizer.json");
  });
  return 0;
}
