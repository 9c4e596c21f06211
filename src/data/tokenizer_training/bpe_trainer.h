// BpeTrainer: makes a byte-level BPE vocabulary from text (Sennrich et al., 2016): starting from the 256 bytes, the
// pair of neighbours that occurs most often inside pieces (piece_scanner.h) becomes a token, again and again. If pairs
// occur equally often, the one with the smaller ids is taken, left before right; bytes have the ids of their
// characters' order (byte_alphabet.h), tokens follow as they are made. So the result depends on the text alone, and is
// that of Hugging Face's BpeTrainer with the byte-level alphabet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe_vocabulary.h"
#include "data/tokenizer/piece_scanner.h"
#include "data/tokenizer_training/word_counts.h"

namespace megatron {

/// Counts are 64-bit. Memory: every distinct piece once, and the places of pairs among them. Time: a pass over the
/// text, then for each merge the pieces that hold the pair, out of a heap of pairs.
class BpeTrainer {
 public:
  /// Counts the pieces of a text. One that is longer than any token may be (kLongestToken) is left out: it is no word.
  void add_text(std::string_view text);

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t distinct_pieces() const { return pieces_.size(); }

  /// A vocabulary of at most `vocab_size` tokens (256 bytes, merges, <|endoftext|> last): fewer if no pair is left that
  /// occurs `least_count` times. The texts of its two files are set. Ends what was counted: to be called once.
  BpeVocabulary train(std::int64_t vocab_size, std::int64_t least_count);

 private:
  PieceScanner scanner_;
  WordCounts pieces_;
  std::uint64_t bytes_ = 0;
};

}  // namespace megatron
