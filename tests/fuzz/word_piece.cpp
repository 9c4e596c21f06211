// The readers of vocab.txt and of a tokenizer.json of type WordPiece, and the tokenizer that they make. The input is a
// file and a text, with a NUL byte between them; a file that begins with "{" is a tokenizer.json.
#include "data/tokenizer_kinds/word_piece_tokenizer.h"
#include "fuzz/fuzz.h"
#include "fuzz/use_tokenizer.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(all.find('\0'), all.size());
  const std::string_view text = all.substr(std::min(end + 1, all.size()));
  const fuzz::ScratchFile file{std::string(all.substr(0, end))};
  fuzz::allow({ErrorKind::data}, [&] {
    WordPieceVocabulary vocabulary =
        all.starts_with('{') ? read_word_piece_json(file.path(), 2) : read_word_piece_text(file.path(), true, 2);
    const WordPieceTokenizer tokenizer(std::move(vocabulary));
    fuzz::use_tokenizer(tokenizer, text);
    const fuzz::ScratchFile kept{tokenizer.tokenizer_json()};
    fuzz::require(WordPieceTokenizer(read_word_piece_json(kept.path(), 0)).hash() == tokenizer.hash(),
                  "another tokenizer from its own tokenizer.json");
  });
  return 0;
}
