// Sentences: where they end, by each mode; and that shards know it, from text to the reader.
#include "data/preprocess/sentences.h"

#include "data/samples/t5_samples.h"
#include "data/tokenizer/vocabulary_file.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "preprocess_support.h"
#include "support/catch.h"
#include "support/needs_icu.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using Texts = std::vector<std::string>;

Texts split(SentenceMode mode, const std::string& text, const std::string& language = "en") {
  SentenceSplitter splitter(mode, language);
  Texts result;
  for (const std::string_view sentence : splitter.split(text, {})) result.emplace_back(sentence);
  CHECK(splitter.split("", {}).empty());
  return result;
}

/// The sentences of a finished set as texts; a document ends with '/'.
Texts sentences_of(const std::string& prefix) {
  TokenDataset dataset(prefix);
  REQUIRE(dataset.has_sentences());
  const std::vector<std::uint64_t> starts = dataset.read_sentences();
  Texts texts;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    std::vector<std::int32_t> ids(starts[i + 1] - starts[i]);
    dataset.read(starts[i], ids.size(), ids.data());
    std::string text;
    for (const std::int32_t id : ids) text.push_back(id == 256 ? '|' : static_cast<char>(id));
    const auto documents = dataset.document_starts();
    if (std::binary_search(documents.begin(), documents.end(), starts[i + 1])) text += '/';
    texts.push_back(text);
  }
  return texts;
}

PreprocessJob sentence_job(const ShardFolder& folder, const std::string& input, SentenceMode mode) {
  PreprocessJob job = job_of(folder, {input});
  job.sentences = mode;
  return job;
}

}  // namespace

TEST_CASE("sentences: ICU's rules with abbreviations and wrapped and blank lines", "[sentences]") {
  needs_icu();
  CHECK(split(SentenceMode::icu, "One. Two? Three!") == Texts{"One. ", "Two? ", "Three!"});
  CHECK(split(SentenceMode::icu, "Mr. Smith met Prof. Jones. They ate.") ==
        Texts{"Mr. Smith met Prof. Jones. ", "They ate."});
  CHECK(split(SentenceMode::icu, "It is 3.14 here. Gr\u00fc\u00dfe.") ==
        Texts{"It is 3.14 here. ", "Gr\u00fc\u00dfe."});
  CHECK(split(SentenceMode::icu, "A line\r\nthat ends here.\nNext") == Texts{"A line  that ends here. ", "Next"});
  CHECK(split(SentenceMode::icu, "A title\n \t\n\n  Text. More\n\n") == Texts{"A title", "Text. ", "More"});
  CHECK(split(SentenceMode::icu, "\n\n \n").size() <= 1);
  CHECK(split(SentenceMode::icu, "\u6771\u4eac\u3002\u5927\u962a\u3002") ==
        Texts{"\u6771\u4eac\u3002", "\u5927\u962a\u3002"});
  // An abbreviation of German, and none of English.
  CHECK(split(SentenceMode::icu, "Es sind z.B. Hunde.", "de").size() == 1);
  for (const std::string language : {"", "xx", "e n", "en@ss=none"}) {
    require_error(ErrorKind::configuration, {"--language"}, [&] { SentenceSplitter(SentenceMode::icu, language); });
  }
}

#ifndef MEGATRON_ICU
TEST_CASE("sentences: a build without ICU says so and what to install", "[sentences][fault]") {
  require_error(ErrorKind::configuration, {"without ICU", "libicu-dev", "--sentences lines"},
                [] { SentenceSplitter(SentenceMode::icu, "en"); });
}
#endif

TEST_CASE("sentences: lines, and names that are wrong", "[sentences]") {
  CHECK(split(SentenceMode::lines, "a. b\n\nc\n") == Texts{"a. b", "", "c"});
  CHECK(sentence_mode("icu") == SentenceMode::icu);
  require_error(ErrorKind::configuration, {"--sentences punkt", "icu lines array"}, [] { sentence_mode("punkt"); });
}

TEST_CASE("preprocess: shards know sentences, whatever says where they end", "[sentences]") {
  needs_icu();
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("One. Two.") + json_line("") + json_line("Three."));
  run(sentence_job(folder, "a.jsonl", SentenceMode::icu), 2);
  const Texts expected = {"One.", "Two.|/", "Three.|/"};
  CHECK(sentences_of(folder.file("out/p")) == expected);
  write_file(folder.file("b.jsonl"), json_line("One.\n\n Two. \n") + json_line(" \n") + json_line("Three."));
  run(sentence_job(folder, "b.jsonl", SentenceMode::lines));
  CHECK(sentences_of(folder.file("out/p")) == expected);
  write_file(folder.file("c.jsonl"),
             "{\"text\": 1, \"text\": [\"One.\", \" \", \"Two.\"]}\n{\"text\": []}\n{\"text\": [\"Thr\\u0065e.\"]}\n");
  run(sentence_job(folder, "c.jsonl", SentenceMode::array));
  CHECK(sentences_of(folder.file("out/p")) == expected);
  write_file(folder.file("d.txt"), "One.\nTwo.\n\nThree.\n");
  PreprocessJob plain = sentence_job(folder, "d.txt", SentenceMode::icu);
  plain.append_eod = false;
  run(plain);
  CHECK(sentences_of(folder.file("out/p")) == Texts{"One.", "Two.", "Three./"});
}

TEST_CASE("preprocess: sentence documents have no end if tokenizers tell words", "[sentences]") {
  needs_icu();
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("One. Two."));
  PreprocessJob job = sentence_job(folder, "a.jsonl", SentenceMode::icu);
  job.tokenizer = {"bert-uncased", MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/bert_uncased.txt", ""};
  const auto ends = [&] {
    run(job);
    TokenDataset dataset(job.output);
    std::int32_t last = 0;
    dataset.read(dataset.document_start(1) - 1, 1, &last);
    return static_cast<std::uint64_t>(last) == dataset.vocabulary().eod_id;
  };
  CHECK_FALSE(ends());
  job.append_eod = true;
  job.output = folder.file("out/ends");
  CHECK(ends());
  job.append_eod = {};
  job.sentences = SentenceMode::none;
  job.output = folder.file("out/tokens");
  CHECK(ends());
}

TEST_CASE("preprocess: without sentences shards are what they were", "[sentences]") {
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("One. Two."));
  run(job_of(folder, {"a.jsonl"}));
  TokenDataset dataset(folder.file("out/p"));
  CHECK_FALSE(dataset.has_sentences());
  CHECK((dataset.vocabulary().special == SpecialIds{}));
  require_error(ErrorKind::data, {"p-00000.h5", "--split-sentences"}, [&] { dataset.read_sentences(); });
}

TEST_CASE("preprocess: texts that are no sentences are refused and leave nothing", "[sentences][fault]") {
  needs_icu();
  ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("text"));
  require_clean_error(folder, sentence_job(folder, "a.jsonl", SentenceMode::array), ErrorKind::data,
                      {"a.jsonl:1:", "a JSON string instead of an array of strings"});
  write_file(folder.file("b.jsonl"), "{\"text\": [\"a\"]}\n{\"text\": [\"a\", 1]}\n");
  require_clean_error(folder, sentence_job(folder, "b.jsonl", SentenceMode::array), ErrorKind::data, {"b.jsonl:2:"});
  require_clean_error(folder, sentence_job(folder, "b.jsonl", SentenceMode::icu), ErrorKind::data,
                      {"b.jsonl:1:", "a JSON array instead of a string"});
  write_file(folder.file("c.jsonl"), "{\"text\": [\"a\", ]}\n");
  require_clean_error(folder, sentence_job(folder, "c.jsonl", SentenceMode::array), ErrorKind::data,
                      {"c.jsonl:1:", "not valid JSON"});
  write_file(folder.file("d.txt"), "text\n");
  require_clean_error(folder, sentence_job(folder, "d.txt", SentenceMode::array), ErrorKind::configuration, {"d.txt"});
  write_file(folder.file("e.jsonl"), json_line("") + json_line(" \n\t"));
  require_clean_error(folder, sentence_job(folder, "e.jsonl", SentenceMode::icu), ErrorKind::data,
                      {"no text was found"});
}

TEST_CASE("preprocess: shards alone are enough for T5, whatever its tokenizer", "[sentences]") {
  needs_icu();
  const ShardFolder folder;
  std::string line;
  for (int i = 0; i < 40; ++i) line += "The first of their years was made in the city by others. ";
  write_file(folder.file("in.jsonl"), "{\"text\": \"" + line + "\"}\n");
  const std::string kinds = MEGATRON_GOLDEN_FOLDER "/tokenizer_kinds/";
  for (const auto& [name, file] : std::vector<std::pair<std::string, std::string>>{
           {"sentencepiece", kinds + "spm_t5.model"}, {"unigram", kinds + "unigram_t5.json"}}) {
    INFO(name);
    PreprocessJob job = sentence_job(folder, "in.jsonl", SentenceMode::icu);
    job.tokenizer = {name, file, "", 20};
    job.output = folder.file(name);
    run(job);
    TokenDataset dataset(job.output);
    const Vocabulary& vocabulary = dataset.vocabulary();
    CHECK((vocabulary.special.sentinels == 20 && vocabulary.special.sentinel_step == -1));
    CHECK(vocabulary.special.first_sentinel == static_cast<std::int32_t>(vocabulary.size) - 1);
    CHECK(tokenizer_file_exists(job.output + (name == "unigram" ? ".tokenizer.json" : ".tokenizer.model")));
    const std::vector<std::uint64_t> sentences = dataset.read_sentences(), documents = {0, sentences.size() - 1};
    const T5Samples samples({&dataset, sentences, documents}, {vocabulary.special, vocabulary.continues},
                            {.end_document = 1, .sequence_length = 128, .decoder_length = 64});
    const T5Sample sample = samples.make(0);
    std::int32_t sentinel = vocabulary.special.first_sentinel;
    bool follows_sentinel = false;
    for (const std::int32_t token : sample.encoder_tokens) {
      if (follows_sentinel) CHECK(vocabulary.continues[static_cast<std::size_t>(token)] == 0);  // whole words
      follows_sentinel = token == sentinel;
      if (follows_sentinel) --sentinel;
    }
    CHECK(sentinel < vocabulary.special.first_sentinel);
    CHECK(sample.tokens[0] == 0);
    CHECK(sample.tokens[1] == vocabulary.special.first_sentinel);
    CHECK(sample.targets[static_cast<std::size_t>(sample.length) - 1] == 1);
  }
}
