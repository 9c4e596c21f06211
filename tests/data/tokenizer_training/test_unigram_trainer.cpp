// Unigram vocabularies made from text: what becomes a piece, and that the result encodes any text.
#include "data/tokenizer_training/unigram_trainer.h"

#include <algorithm>
#include <cmath>

#include "data/tokenizer/gpt2_support.h"
#include "data/tokenizer/unigram_vocabulary.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Ids = std::vector<std::int32_t>;
using Pieces = std::vector<std::pair<std::string, double>>;

/// A tokenizer with these pieces.
struct Small {
  TemporaryFolder folder;
  std::unique_ptr<Tokenizer> tokenizer;

  explicit Small(const std::string& json) {
    write_file(folder.file(kTokenizerFile), json);
    tokenizer = make_tokenizer({"unigram", folder.file(kTokenizerFile), ""});
  }
  Ids ids(const std::string& text) const { return encode(*tokenizer->make_encoder(SpecialTokens::text), text); }
};

}  // namespace

TEST_CASE("UnigramTrainer: frequent words become pieces, and every text has ids") {
  const auto train = [](std::int64_t most) {
    UnigramTrainer trainer;
    Draw draw(2);
    const char* const words[] = {"the", "reading", "reader", "sleeping", "sleeper", "walking", "walker", "caf\u00e9"};
    for (int i = 0; i < 2000; ++i) trainer.add_text(std::string(words[draw.below(8)]) + "\u2003 the\n");
    CHECK(trainer.distinct_words() == 8);
    return trainer.train(most, 2);
  };
  const Pieces pieces = train(40);
  CHECK((pieces.size() > 25 && pieces.size() <= 40));  // 18 characters, and few others that make the text more probable
  CHECK(pieces == train(40));
  CHECK(pieces.front().first == kMark + "the");
  double sum = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) CHECK(pieces[i].second <= pieces[i - 1].second);
    sum += std::exp(pieces[i].second);
  }
  CHECK(sum <= 1.001);
  const Small small(write_unigram_json(pieces, 5));
  CHECK(small.tokenizer->vocab_size() == static_cast<std::int64_t>(pieces.size()) + 8);
  CHECK(small.ids("the").size() == 1);
  for (const std::string text : {"reading caf\u00e9", "the dreads cafe\u0301"}) {
    const Ids ids = small.ids(text);
    CHECK(std::count(ids.begin(), ids.end(), 2) == 0);
  }
  CHECK(small.tokenizer->decode(small.ids("reader  the\twalking cafe\u0301")) == "reader the walking caf\u00e9");
  const std::size_t few = train(20).size();
  CHECK((few > 10 && few <= 20));  // half of them characters
}

TEST_CASE("UnigramTrainer: one long word and rare characters and special names") {
  UnigramTrainer trainer;
  trainer.add_text(std::string(100'000, 'z'));
  for (int i = 0; i < 3000; ++i) trainer.add_text("</s> <pad>x <extra_id_7> \u6771\u4eac");
  trainer.add_text("\U0001f600");
  const Pieces pieces = trainer.train(60, 2);
  for (const auto& [piece, score] : pieces) {
    CHECK((piece != "</s>" && piece != "<pad>" && !piece.starts_with("<extra_id_")));
    CHECK(piece.find("\U0001f600") == std::string::npos);
    CHECK(std::isfinite(score));
  }
  const Small small(write_unigram_json(pieces, 0));
  const Ids unknown = small.ids("\U0001f600");
  CHECK((unknown.size() == 2 && unknown[1] == 2));
}
