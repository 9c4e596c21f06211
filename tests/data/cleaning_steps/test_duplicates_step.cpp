// The steps duplicates and decontaminate on whole corpora: what was planted is found, on any number of ranks.
#include <zlib.h>

#include "data/cleaning/cleaning_support.h"
#include "data/cleaning_steps/clean_support.h"
#include "data/cleaning_steps/text_parts.h"
#include "data/cleaning_steps/text_spill.h"

using namespace megatron;
using namespace megatron::test;

namespace {

std::string lines_of(const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += json_line(text);
  return lines;
}

struct Planted {
  std::vector<std::string> all, unique;
  std::size_t equal = 0, near = 0;
};

/// Texts of 100 words, of some of which an equal one follows somewhere later, and of some a similar one: 3 words in the
/// middle are others, which is a Jaccard similarity of 89/103 = 0.86 of 5 words, found with a probability of 0.997.
Planted planted(std::size_t documents) {
  Numbers numbers(5);
  Planted made;
  std::vector<std::vector<std::string>> words;
  for (std::size_t i = 0; i < documents; ++i) {
    words.push_back(made_up_words(numbers, 100));
    made.all.push_back(joined(words.back()));
    made.unique.push_back(made.all.back());
    if (i % 5 == 4) {
      made.all.push_back("  " + joined(words[numbers.below(static_cast<std::uint32_t>(i))]) + "\n");
      ++made.equal;
    }
    if (i % 7 == 6) {
      made.all.push_back(joined(edited(words[numbers.below(static_cast<std::uint32_t>(i))], 3, numbers)));
      ++made.near;
    }
  }
  return made;
}

/// Writes the texts into a plain file and a compressed one.
std::vector<std::string> write_texts(const ShardFolder& folder, const std::vector<std::string>& texts) {
  const auto half = texts.begin() + static_cast<std::ptrdiff_t>(texts.size() / 2);
  write_file(folder.file("a.jsonl"), lines_of({texts.begin(), half}));
  const std::string rest = lines_of({half, texts.end()});
  gzFile file = ::gzopen(folder.file("b.jsonl.gz").c_str(), "wb");
  REQUIRE(::gzwrite(file, rest.data(), static_cast<unsigned>(rest.size())) == static_cast<int>(rest.size()));
  REQUIRE(::gzclose(file) == Z_OK);
  return {"a.jsonl", "b.jsonl.gz"};
}

}  // namespace

TEST_CASE("duplicates: the first of planted duplicates stays", "[clean][duplicates]") {
  const ShardFolder folder;
  const Planted made = planted(100);
  const std::vector<std::string> inputs = write_texts(folder, made.all);
  SECTION("equal and similar ones") {
    play(job_of(folder, "duplicates", inputs), 3);
    CHECK(texts_of(documents(folder)) == made.unique);
    const nlohmann::json found = report(folder);
    CHECK(found["removed"]["duplicate"]["documents"] == made.equal + made.near);
    CHECK(found["duplicates"]["compared"] == made.all.size());
    CHECK(found["duplicates"]["removed"] == made.equal + made.near);
    CHECK(found["duplicates"]["equal"] == made.equal);
    std::size_t removed = 0;
    for (const auto& [size, count] : found["duplicates"]["clusters_of_size"].items()) {
      removed += (std::stoul(size) - 1) * count.get<std::size_t>();
    }
    CHECK(removed == made.equal + made.near);
    CHECK_FALSE(std::filesystem::exists(folder.file("out/.megatron_clean.scratch")));
  }
  SECTION("equal ones alone") {
    play(job_of(folder, "duplicates", inputs, {{"near", "false"}}), 2);
    CHECK(texts_of(documents(folder)).size() == made.unique.size() + made.near);
    CHECK_FALSE(report(folder)["duplicates"].contains("candidate_pairs"));
  }
  SECTION("a check that none but equal texts pass") {
    play(job_of(folder, "duplicates", inputs, {{"exact", "false"}, {"check", "1"}}), 2);
    CHECK(texts_of(documents(folder)).size() == made.unique.size() + made.near);
    const nlohmann::json found = report(folder)["duplicates"];
    CHECK(found["candidate_pairs"].get<std::size_t>() > found["confirmed_pairs"].get<std::size_t>());
  }
}

TEST_CASE("duplicates: the same bytes on 1, 2, 3 and 8 ranks", "[clean][duplicates][fault-140]") {
  const ShardFolder folder;
  const std::vector<std::string> inputs = write_texts(folder, planted(40).all);
  SECTION("documents") {
    require_same_everywhere(folder, job_of(folder, "duplicates", inputs));
  }
  SECTION("without a check, as Megatron-LM's") {
    require_same_everywhere(folder, job_of(folder, "duplicates", inputs, {{"check", "off"}, {"shingles", "megatron"}}));
  }
  SECTION("lines") {
    require_same_everywhere(folder, job_of(folder, "duplicates", inputs, {{"by", "line"}}));
  }
}

TEST_CASE("duplicates: bad documents that are left out have no number", "[clean][duplicates]") {
  const ShardFolder folder;
  std::string input;
  for (int i = 0; i < 300; ++i) input += (i % 3 == 0 ? "bad\n" : "") + json_line("text no. " + std::to_string(i % 200));
  write_file(folder.file("a.jsonl"), input);
  StepJob job = job_of(folder, "duplicates", {"a.jsonl"}, {{"near", "false"}});
  job.skip_bad = true;
  play(job, 3);
  const std::vector<std::string> texts = texts_of(documents(folder));
  REQUIRE(texts.size() == 200);
  for (std::size_t i = 0; i < 200; ++i) CHECK(texts[i] == "text no. " + std::to_string(i));
}

TEST_CASE("duplicates: paragraphs that were there before go", "[clean][duplicates]") {
  const ShardFolder folder;
  const std::string first = "A paragraph of\nsome words, the first.", second = "Another paragraph, of other words.";
  write_file(folder.file("a.jsonl"),
             lines_of({first + "\n\n" + second, "New words that none has had.\n\n \n" + first,
                       second + "\n\nshort\n\n" + first + "\n", "short\n\n" + second, second + "\n\n" + first, ""}));
  play(job_of(folder, "duplicates", {"a.jsonl"}, {{"by", "paragraph"}}), 2);
  CHECK(texts_of(documents(folder)) ==
        std::vector<std::string>{first + "\n\n" + second, "New words that none has had.", "short", "short", ""});
  const nlohmann::json found = report(folder);
  CHECK(found["changed"]["duplicate_parts"]["documents"] == 3);
  CHECK(found["changed"]["duplicate_parts"]["examples"][0]["text"] == first);
  CHECK(found["removed"]["nothing_left"]["documents"] == 1);
  CHECK(found["duplicates"]["compared"] == 9);
  CHECK(found["duplicates"]["removed"] == 6);
}

TEST_CASE("duplicates: a text in parts is the text", "[clean][duplicates]") {
  for (const std::string& text :
       std::vector<std::string>{"", "\n", "a", "a\n", "\n\na\nb\n\n\n c\r\n \t\nd", "a\n\n\n"}) {
    for (const ComparedPart part : {ComparedPart::document, ComparedPart::paragraph, ComparedPart::line}) {
      std::string whole;
      for (const std::string_view piece : parts_of_text(text, part)) whole += piece;
      CHECK(whole == text);
    }
  }
  CHECK(parts_of_text("\n\na\nb\n\n\n c\r\n \t\nd", ComparedPart::paragraph).size() == 3);
  CHECK(parts_of_text("\n\na\nb\n\n\n c\r\n \t\nd", ComparedPart::line).size() == 4);
}

TEST_CASE("duplicates: spilled texts are found by number, and checked", "[clean][duplicates]") {
  const ShardFolder folder;
  const std::vector<std::string> folders = {folder.file("0"), folder.file("1")};
  for (const std::string& name : folders) std::filesystem::create_directories(name);
  TextSpill here(folders, 0), there(folders, 1);
  const auto round = [&](TextSpill& spill, const std::vector<std::string>& texts) {
    std::string all;
    std::vector<std::size_t> ends;
    for (const std::string& text : texts) {
      all += text;
      ends.push_back(all.size());
    }
    spill.add_round(all, ends);
  };
  round(here, {"a", "", "bcd"});
  round(there, {"e"});
  round(here, {"fg"});
  round(there, {});
  round(here, {});
  round(there, {"h", "ij"});
  const std::vector<std::vector<double>> rounds = {{3, 1}, {1, 0}, {0, 2}};  // documents by rank
  for (TextSpill* spill : {&here, &there}) {
    for (const std::vector<double>& counts : rounds) spill->count_round(counts);
    const std::vector<std::string> expected = {"a", "", "bcd", "e", "fg", "h", "ij"};
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(spill->fetch(i) == expected[i]);
  }
  write_file(folder.file("0/texts"), "abXdfg");
  TextSpill damaged(folders, 1);
  for (const std::vector<double>& counts : rounds) damaged.count_round(counts);
  CHECK(damaged.fetch(0) == "a");
  require_error(ErrorKind::filesystem, {"0/texts", "not what was written"}, [&] { damaged.fetch(2); });
}

TEST_CASE("duplicates: values that cannot be are refused", "[clean][duplicates]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("x"));
  const auto refused = [&](const KeyValues& keys, const std::vector<std::string>& parts) {
    require_clean_error(folder, ErrorKind::configuration, parts,
                        [&] { play(job_of(folder, "duplicates", {"a.jsonl"}, keys), 2); });
  };
  refused({{"exact", "false"}, {"near", "false"}}, {"neither exact"});
  refused({{"exact", "false"}, {"by", "line"}}, {"only exact"});
  refused({{"by", "word"}}, {"by 'word'", "document paragraph line"});
  refused({{"shingles", "letters"}}, {"letters", "words, characters, megatron"});
  refused({{"hashes", "off"}}, {"hashes", "near=false"});
  refused({{"hashes", "5000"}}, {"4096"});
  refused({{"threshold", "1.5"}}, {"1.5"});
  refused({{"check", "2"}}, {"check 2"});
  refused({{"sort_memory", "0"}}, {"sort_memory 0"});
}
