// Learning a WordPiece vocabulary: by hand, and that what is learned can be used.
#include "data/tokenizer_training/word_piece_trainer.h"

#include "data/tokenizer/gpt2_support.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Tokens = std::vector<std::string>;

std::string times(int count, const std::string& word) {
  std::string text;
  for (int i = 0; i < count; ++i) text += word + " ";
  return text;
}

const Tokens kSpecial = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

Tokens with_special(Tokens more) {
  more.insert(more.begin(), kSpecial.begin(), kSpecial.end());
  return more;
}

Tokens trained(const std::string& text, bool lower_case = true, std::int64_t least_count = 5, std::int64_t size = 64) {
  WordPieceTrainer trainer(lower_case);
  trainer.add_text(text);
  return trainer.train(size, least_count);
}

}  // namespace

TEST_CASE("WordPiece trainer: characters, then pairs by count, then by ids", "[word_piece_trainer]") {
  const std::string text =
      times(10, "hug") + times(5, "Pug") + times(12, "pun") + times(4, "b\u00fbn") + times(5, "hugs");
  const Tokens tokens =
      with_special({"b", "h", "p", "##g", "##n", "##s", "##u", "##ug", "##un", "hug", "pun", "pug", "hugs"});
  CHECK(trained(text) == tokens);
  WordPieceTrainer parts(true);  // the same text in other portions
  for (const int count : {0, 1}) {
    for (const char* word : {"hug", "Pug", "pun", "b\u00fbn", "hugs"}) {
      const int all = std::string(word) == "hug" ? 10 : std::string(word) == "pun" ? 12 : word[0] == 'b' ? 4 : 5;
      parts.add_text(times(count == 0 ? 3 : all - 3, word));
    }
  }
  CHECK(parts.distinct_words() == 5);
  CHECK(parts.train(64, 5) == tokens);
  const Tokens cased = trained(text, false, 4);
  CHECK(std::count(cased.begin(), cased.end(), "Pug") == 1);
  CHECK(std::count(cased.begin(), cased.end(), "b\u00fbn") == 1);
}

TEST_CASE("WordPiece trainer: never more tokens than asked and no rare characters", "[word_piece_trainer]") {
  std::string text;
  for (std::uint32_t c = 0; c < 100; ++c) {
    for (std::uint32_t i = 0; i <= c; ++i) {
      text += 'x';
      append_utf8(text, 0x3B1 + c);
      text += ' ';
    }
  }
  const Tokens tokens = trained(text, false, 1);
  CHECK(tokens.size() == 62);  // 5, x, 28 characters that continue words, and their pairs with x
  std::string last = "##", first = "##";
  append_utf8(last, 0x3B1 + 99);
  append_utf8(first, 0x3B1);
  CHECK(std::count(tokens.begin(), tokens.end(), last) == 1);
  CHECK(std::count(tokens.begin(), tokens.end(), first) == 0);
  CHECK(trained(std::string(200, 'x'), true, 1) == kSpecial);  // no word
}

TEST_CASE("WordPiece trainer: what was learned encodes what it was learned from", "[word_piece_trainer]") {
  const TemporaryFolder folder;
  Draw draw(8);
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    for (std::uint64_t letters = 1 + draw.below(6); letters > 0; --letters) {
      text += static_cast<char>('a' + draw.below(2 + draw.below(12)));
    }
    text += i % 7 == 0 ? ", " : " ";
  }
  std::string lines;
  for (const std::string& token : trained(text, true, 2, 300)) lines += token + "\n";
  write_file(folder.file(kWordPieceFile), lines);
  const auto tokenizer = make_tokenizer({"bert-uncased", folder.file(kWordPieceFile), ""});
  CHECK(tokenizer->vocab_size() == 302);
  const auto encoder = tokenizer->make_encoder();
  const auto ids = encode(*encoder, text);
  CHECK(std::count(ids.begin(), ids.end(), tokenizer->special_ids().unk) == 0);
  CHECK(ids.size() < text.size() / 2);
}
