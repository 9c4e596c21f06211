// Steps on whole corpora: the same bytes for any number of ranks and any size of blocks, each rule by hand-made cases.
#include <zlib.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/core/philox.h"
#include "data/cleaning/language.h"
#include "data/cleaning_steps/clean_support.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Rules that this corpus does not all break.
const KeyValues kLoose = {{"min_characters", "40"},  {"min_words", "3"},         {"min_stop_words", "off"},
                          {"max_mean_word", "60"},   {"max_top_2_gram", "off"},  {"max_top_3_gram", "off"},
                          {"max_top_4_gram", "off"}, {"min_letter_words", "0.4"}};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Documents with all that steps react to, in the order and with the spacing of no serialiser.
std::string corpus(int documents) {
  std::string text;
  for (int i = 0; i < documents; ++i) {
    const std::string words(mix64(static_cast<std::uint64_t>(i)) % 300, 'w');
    text += "{ \"id\":" + std::to_string(i) + ", \"text\" :\"no. " + std::to_string(i) +
            (i % 3 == 0 ? "  a \\u0001" : "") + words + "\",\"url\": \"http://site" + std::to_string(i % 40) +
            ".example/" + (i % 7 == 0 ? "picture.jpg" : std::to_string(i % 90)) + "\" , \"more\":[1.50,{\"x\":null}]}" +
            (i % 5 == 0 ? "\r\n" : "\n");
  }
  return text;
}

}  // namespace

TEST_CASE("clean: every step makes the same bytes on 1, 2, 3 and 8 ranks", "[clean][fault-140]") {
  const ShardFolder folder;
  const std::string text = corpus(400);
  const std::size_t half = text.find("{ \"id\":211");
  write_file(folder.file("a.jsonl"), text.substr(0, half));
  write_file(folder.file("b.jsonl"), text.substr(half) + text.substr(0, 5000).substr(0, text.rfind('\n', 5000) + 1));
  const std::vector<std::string> inputs = {"a.jsonl", "b.jsonl"};
  SECTION("urls") {
    require_same_everywhere(folder, job_of(folder, "urls", inputs));
  }
  SECTION("text") {
    require_same_everywhere(folder, job_of(folder, "text", inputs, kLoose));
  }
  SECTION("split") {
    require_same_everywhere(folder, job_of(folder, "split", inputs, {{"parts", "a=1,b=2"}}));
  }
  SECTION("shuffle") {
    require_same_everywhere(folder, job_of(folder, "shuffle", inputs));
  }
  SECTION("sample") {
    require_same_everywhere(folder, job_of(folder, "sample", inputs, {{"fraction", "0.3"}}));
  }
  SECTION("sample of a number") {
    require_same_everywhere(folder, job_of(folder, "sample", inputs, {{"documents", "37"}}));
  }
  SECTION("merge, compressed") {
    StepJob job = job_of(folder, "merge", inputs);
    job.packing = GENERATE(Packing::gzip, Packing::zstd);
    require_same_everywhere(folder, job);
  }
}

TEST_CASE("clean: what a step does not change stays byte for byte", "[clean]") {
  const ShardFolder folder;
  const std::string kept = R"({"a":1.0e5 ,  "text":"plain \u00e4 \/ text", "b":{"text":"  x  "}, "a":NaN})";
  const std::string changed = R"({"z": "\ud83d\ude00","text" : "two  spaces\u0007","url":"\u0041"})";
  write_file(folder.file("a.jsonl"), "\xEF\xBB\xBF" + kept + "\r\n\n   \n" + changed);
  play(job_of(folder, "text", {"a.jsonl"}, {{"gopher", "false"}}));
  CHECK(documents(folder) == kept + "\n" + R"({"z": "\ud83d\ude00","text" : "two spaces","url":"\u0041"})" + "\n");
  const nlohmann::json found = report(folder);
  CHECK(found["documents"]["read"] == 2);
  CHECK(found["documents"]["kept"] == 2);
  CHECK(found["changed"]["white_space"]["documents"] == 1);
  CHECK(found["changed"]["repair_controls"]["documents"] == 1);
  CHECK(found["changed"]["white_space"]["examples"][0]["byte"] == 3 + kept.size() + 2 + 1 + 4);
}

TEST_CASE("clean: texts that need escapes are written as JSON", "[clean]") {
  const ShardFolder folder;
  const std::string text = "a \"quote\" \\ \t tab\n\nand\x01 \xC3\xA4  end";
  write_file(folder.file("a.jsonl"), json_line(text));
  play(job_of(folder, "text", {"a.jsonl"}, {{"white_space", "none"}, {"gopher", "false"}}));
  std::string expected = text;
  expected.erase(expected.find('\x01'), 1);
  CHECK(nlohmann::json::parse(documents(folder))["text"] == expected);
}

TEST_CASE("clean: urls of documents, by rule, with examples", "[clean][urls]") {
  const ShardFolder folder;
  const auto line = [](const std::string& url) { return nlohmann::json{{"url", url}, {"text", "x"}}.dump() + "\n"; };
  const std::string good = line("http://one.example/"), also = line(" http://two.example/a?b ");
  write_file(folder.file("a.jsonl"), good + line("http://youtube.com/x") + line("http://one.example/a.PNG") +
                                         line("http://") + line("no url at all") + good + also);
  write_file(folder.file("b.jsonl"), line("http://two.example/a?b") + good);
  StepJob job = job_of(folder, "urls", {"a.jsonl", "b.jsonl"});
  job.examples = 2;
  play(job, 2);
  CHECK(documents(folder) == good + also);
  const nlohmann::json removed = report(folder)["removed"];
  for (const char* rule : {"domain", "extension", "too_short", "malformed"}) CHECK(removed[rule]["documents"] == 1);
  CHECK(removed["duplicate"]["documents"] == 3);
  REQUIRE(removed["duplicate"]["examples"].size() == 2);
  CHECK(removed["duplicate"]["examples"][0]["text"] == "http://one.example/");
  CHECK(removed["duplicate"]["examples"][0]["file"] == folder.file("a.jsonl"));
  CHECK(removed["duplicate"]["examples"][1]["text"] == "http://two.example/a?b");
  CHECK(removed["duplicate"]["examples"][1]["byte"] == 0);
}

TEST_CASE("clean: urls of lists, with lists of one's own", "[clean][urls]") {
  const ShardFolder folder;
  write_file(folder.file("a.txt"),
             "http://youtube.com/x\n\nhttp://my.example/a\r\n  http://other.example/ \nhttp://my.example/a");
  write_file(folder.file("domains"), "# is no name\n other \n\n");
  play(job_of(folder, "urls", {"a.txt"}, {{"domains", folder.file("domains")}}), 3);
  CHECK(documents(folder, "documents.txt") == "http://youtube.com/x\nhttp://my.example/a\n");
  std::filesystem::remove_all(folder.file("out"));
  play(job_of(folder, "urls", {"a.txt"}, {{"duplicates", "false"}}), 3);
  CHECK(documents(folder, "documents.txt") == "http://my.example/a\n  http://other.example/ \nhttp://my.example/a\n");
}

TEST_CASE("clean: lengths in characters and tokens", "[clean][text]") {
  const ShardFolder folder;
  std::string input;
  for (const std::size_t length : {1u, 9u, 10u, 11u, 20u, 21u}) input += json_line(std::string(length, 'a'));
  write_file(folder.file("a.jsonl"), input);
  const auto kept = [&](const KeyValues& keys) {
    KeyValues all = keys;
    all.emplace_back("gopher", "false");
    play(job_of(folder, "text", {"a.jsonl"}, all));
    std::vector<std::size_t> lengths;
    for (const std::string& line : lines_of(documents(folder))) {
      lengths.push_back(nlohmann::json::parse(line)["text"].get<std::string>().size());
    }
    std::filesystem::remove_all(folder.file("out"));
    return lengths;
  };
  CHECK(kept({{"min_characters", "10"}, {"max_characters", "20"}}) == std::vector<std::size_t>{10, 11, 20});
  CHECK(kept({{"min_tokens", "10"}, {"max_tokens", "20"}}) == std::vector<std::size_t>{10, 11, 20});
  CHECK(kept({{"min_tokens", "2"}}) == std::vector<std::size_t>{9, 10, 11, 20, 21});
  CHECK(kept({}).size() == 6);
}

TEST_CASE("clean: split, sample and shuffle keep each document once", "[clean]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), corpus(1000));
  const std::vector<std::string> all = lines_of([&] {
    play(job_of(folder, "merge", {"a.jsonl"}), 2);
    return documents(folder);
  }());
  REQUIRE(all.size() == 1000);
  std::filesystem::remove_all(folder.file("out"));
  SECTION("split") {
    play(job_of(folder, "split", {"a.jsonl"}, {{"parts", "train=0.8,test=0.2"}}), 3);
    std::vector<std::string> train = lines_of(documents(folder, "train.jsonl")),
                             test = lines_of(documents(folder, "test.jsonl"));
    CHECK(test.size() > 140);  // 200, with a standard deviation of 13
    CHECK(test.size() < 260);
    train.insert(train.end(), test.begin(), test.end());
    CHECK(std::set<std::string>(train.begin(), train.end()) == std::set<std::string>(all.begin(), all.end()));
  }
  SECTION("split by a member: equal values in one part, in any order of the documents") {
    play(job_of(folder, "split", {"a.jsonl"}, {{"parts", "a=1,b=1"}, {"by", "url"}}), 2);
    std::set<std::string> urls[2];
    for (const int part : {0, 1}) {
      for (const std::string& line : lines_of(documents(folder, part == 0 ? "a.jsonl" : "b.jsonl"))) {
        urls[part].insert(nlohmann::json::parse(line)["url"]);
      }
      CHECK(urls[part].size() > 20);
    }
    for (const std::string& url : urls[0]) CHECK(urls[1].count(url) == 0);
  }
  SECTION("sample") {
    play(job_of(folder, "sample", {"a.jsonl"}, {{"documents", "100"}}), 3);
    const std::vector<std::string> sample = lines_of(documents(folder));
    CHECK(sample.size() == 100);
    std::size_t at = 0;  // in the order of the input
    for (const std::string& line : all) at += at < sample.size() && sample[at] == line ? 1 : 0;
    CHECK(at == 100);
    CHECK(report(folder)["removed"]["not_sampled"]["documents"] == 900);
    std::filesystem::remove_all(folder.file("out"));
    play(job_of(folder, "sample", {"a.jsonl"}, {{"documents", "5000"}}));
    CHECK(lines_of(documents(folder)).size() == 1000);
  }
  SECTION("shuffle") {
    play(job_of(folder, "shuffle", {"a.jsonl"}, {{"seed", "5"}}), 3);
    std::vector<std::string> shuffled = lines_of(documents(folder));
    int in_place = 0;
    for (std::size_t i = 0; i < all.size(); ++i) in_place += shuffled[i] == all[i] ? 1 : 0;
    CHECK(in_place < 20);  // 1 is expected
    std::vector<std::string> sorted = all;
    std::sort(sorted.begin(), sorted.end());
    const std::vector<std::string> first = shuffled;
    std::sort(shuffled.begin(), shuffled.end());
    CHECK(shuffled == sorted);
    std::filesystem::remove_all(folder.file("out"));
    play(job_of(folder, "shuffle", {"a.jsonl"}, {{"seed", "6"}}), 3);
    CHECK(lines_of(documents(folder)) != first);
  }
}

TEST_CASE("clean: values that cannot be are refused", "[clean]") {
  const ShardFolder folder;
  write_file(folder.file("a.jsonl"), json_line("x"));
  write_file(folder.file("a.txt"), "x\n");
  const auto refused = [&](const std::string& step, const std::vector<std::string>& inputs, const KeyValues& keys,
                           const std::vector<std::string>& parts) {
    require_clean_error(folder, ErrorKind::configuration, parts, [&] { play(job_of(folder, step, inputs, keys)); });
  };
  refused("sample", {"a.jsonl"}, {}, {"fraction and documents"});
  refused("sample", {"a.jsonl"}, {{"fraction", "1.5"}}, {"fraction 1.5"});
  refused("split", {"a.jsonl"}, {{"parts", "a=1,a=2"}}, {"a is there twice"});
  refused("split", {"a.jsonl"}, {{"parts", "../a=1"}}, {"../a=1", "NAME=SHARE"});
  refused("split", {"a.jsonl"}, {{"parts", "a=0"}}, {"a=0"});
  refused("split", {"a.jsonl"}, {{"parts", "a=inf,b=1"}}, {"a=inf"});
  refused("split", {"a.jsonl"}, {{"parts", "a=1e308,b=1e308"}}, {"the shares are too large"});
  refused("text", {"a.txt"}, {}, {"text reads JSON lines"});
  refused("merge", {"a.txt", "a.jsonl"}, {}, {"one kind"});
  refused("text", {"a.jsonl"}, {{"min_tokens", "2"}, {"tokenizer", "none"}}, {"none"});
  if (has_language_detection()) {
    refused("text", {"a.jsonl"}, {{"languages", "en,english"}}, {"'english'", "en, de"});
  }
  refused("urls", {"a.jsonl"}, {{"min_character", "2"}}, {"min_character", "did you mean 'min_characters'"});
  refused("urls", {"a.jsonl"}, {{"min_characters", "-1"}}, {"min_characters: '-1'", "whole number"});
  require_clean_error(folder, ErrorKind::data, {"absent"}, [&] {
    play(job_of(folder, "urls", {"a.jsonl"}, {{"domains", folder.file("absent")}}));
  });
}

TEST_CASE("clean: no step has a key of the name of an option of all steps", "[clean]") {
  const std::set<std::string_view> options = {"help",     "version", "name",     "input",       "inputs",
                                              "output",   "format",  "text_key", "compress",    "compat",
                                              "examples", "longest", "skip_bad", "block_bytes", "overwrite"};
  for (const StepRow& step : step_table()) {
    for (const KeyRow& key : step.keys) {
      INFO(step.name << " " << key.name);
      CHECK(options.count(key.name) == 0);
    }
  }
}

TEST_CASE("clean: thresholds of Megatron-LM's tools", "[clean]") {
  const StepKeys keys(find_step("text")->keys, Compatibility::megatron);
  CHECK(keys.threshold("min_tokens", 5) == 128);
  CHECK_FALSE(keys.flag("gopher"));
  CHECK_FALSE(StepKeys(find_step("text")->keys).threshold("min_tokens", 5));
}
