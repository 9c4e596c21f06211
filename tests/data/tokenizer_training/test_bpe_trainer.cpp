// Vocabularies learned from text, against Hugging Face's tokenizers (scripts/oracles/bpe_trainer_oracle.py).
#include "data/tokenizer_training/bpe_trainer.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer_kinds/gpt2_tokenizer.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

const nlohmann::json& golden() {
  static const nlohmann::json file = [] {
    std::ifstream stream(MEGATRON_GOLDEN_FOLDER "/bpe_trainer.json");
    return nlohmann::json::parse(stream);
  }();
  return file;
}

BpeVocabulary train(const std::vector<std::string>& documents, std::int64_t vocab_size, std::int64_t least_count) {
  BpeTrainer trainer;
  for (const std::string& document : documents) trainer.add_text(document);
  return trainer.train(vocab_size, least_count);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

TEST_CASE("bpe trainer: the same merges and ids as Hugging Face's", "[bpe_trainer]") {
  for (const nlohmann::json& c : golden()) {
    const auto documents = c.at("documents").get<std::vector<std::string>>();
    INFO(documents[0].substr(0, 80));
    const BpeVocabulary vocabulary =
        train(documents, c.at("vocab_size").get<std::int64_t>(), c.at("least_count").get<std::int64_t>());
    std::vector<std::string> merges = lines_of(vocabulary.merge_text), tokens;
    CHECK(merges[0] == "#version: 0.2");
    merges.erase(merges.begin());
    CHECK(merges == c.at("merges").get<std::vector<std::string>>());
    const ByteAlphabet alphabet;
    for (const std::string& token : vocabulary.tokens) tokens.push_back(alphabet.written(token));
    CHECK(tokens.back() == kEndOfText);
    CHECK(static_cast<std::size_t>(vocabulary.end_of_text) + 1 == tokens.size());
    tokens.pop_back();
    CHECK(tokens == c.at("tokens").get<std::vector<std::string>>());
  }
}

TEST_CASE("bpe trainer: its files are a vocabulary that encodes and decodes", "[bpe_trainer]") {
  const TemporaryFolder folder;
  for (const nlohmann::json& c : golden()) {
    const auto documents = c.at("documents").get<std::vector<std::string>>();
    const BpeVocabulary vocabulary = train(documents, 350, 1);
    write_file(folder.file("vocab.json"), vocabulary.vocab_text);
    write_file(folder.file("merges.txt"), vocabulary.merge_text);
    const Gpt2Tokenizer tokenizer(folder.file("vocab.json"), folder.file("merges.txt"));
    CHECK(tokenizer.vocab_size() == static_cast<std::int64_t>(vocabulary.tokens.size()));
    CHECK(tokenizer.eod_id() == vocabulary.end_of_text);
    const auto encoder = tokenizer.make_encoder();
    std::vector<std::int32_t> ids;
    encoder->encode(documents[0], ids);
    CHECK(tokenizer.decode(ids) == documents[0]);
    if (vocabulary.tokens.size() > 280) CHECK(ids.size() < documents[0].size());
  }
}

TEST_CASE("bpe trainer: order of documents and overlong words do not matter", "[bpe_trainer]") {
  auto documents = golden()[0].at("documents").get<std::vector<std::string>>();
  const BpeVocabulary forward = train(documents, 400, 2);
  std::reverse(documents.begin(), documents.end());
  CHECK(train(documents, 400, 2).merge_text == forward.merge_text);
  documents.push_back(std::string(3 * kLongestToken, 'q'));
  CHECK(train(documents, 400, 2).merge_text == forward.merge_text);
  // <|endoftext|> is made of pieces that no merge crosses; its parts may be tokens, it is one only as the last.
  const BpeVocabulary vocabulary = train({std::string(kEndOfText), std::string(kEndOfText)}, 300, 1);
  CHECK(std::count(vocabulary.tokens.begin(), vocabulary.tokens.end(), kEndOfText) == 1);
}
