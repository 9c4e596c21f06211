// Hugging Face's tokenizer.json: ids as their library gives them (scripts/golden/make_tokenizer_json_golden.py), and
// what is refused by name.
#include "data/tokenizer_kinds/tokenizer_json.h"

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/hugging_face_folder.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

const std::string kGolden = MEGATRON_GOLDEN_FOLDER "/tokenizer_json/";

json read_json(const std::string& path) {
  std::ifstream stream(path);
  return json::parse(stream);
}

std::unique_ptr<Tokenizer> golden_tokenizer(const std::string& name) {
  return make_tokenizer({"gpt2", kGolden + name + ".json", ""});
}

}  // namespace

TEST_CASE("tokenizer.json: the ids of Hugging Face's library", "[tokenizer_json]") {
  const json cases = read_json(kGolden + "cases.json");
  for (const auto& [name, expected] : cases.items()) {
    INFO(name);
    const auto tokenizer = golden_tokenizer(name);
    CHECK(tokenizer->vocab_size() == expected.at("vocab_size"));
    CHECK(tokenizer->eod_id() == expected.at("eod"));
    const auto encoder = tokenizer->make_encoder();
    for (const json& text : expected.at("texts")) {
      INFO(text.at("text"));
      std::vector<std::int32_t> ids;
      encoder->encode(text.at("text").get<std::string>(), ids);
      CHECK(ids == text.at("ids").get<std::vector<std::int32_t>>());
      if (name == "plain" || name == "added") CHECK(tokenizer->decode(ids) == text.at("text").get<std::string>());
    }
  }
}

TEST_CASE("tokenizer.json: the special tokens in a text are text", "[tokenizer_json]") {
  const auto tokenizer = golden_tokenizer("added");
  std::vector<std::int32_t> ids;
  tokenizer->make_encoder()->encode("<|endoftext|><|pad|>", ids);
  CHECK(ids.size() > 2);
  CHECK(std::find(ids.begin(), ids.end(), tokenizer->eod_id()) == ids.end());
  CHECK(tokenizer->decode(ids) == "<|endoftext|><|pad|>");
}

TEST_CASE("tokenizer.json: truncation and padding are of batches, not of a text", "[tokenizer_json]") {
  const TemporaryFolder folder;
  json file = read_json(kGolden + "plain.json");
  file["truncation"] = {{"direction", "Right"}, {"max_length", 8}, {"strategy", "LongestFirst"}, {"stride", 0}};
  file["padding"] = {{"strategy", "BatchLongest"}, {"direction", "Right"}, {"pad_id", 0}, {"pad_token", "<pad>"}};
  write_file(folder.file(kTokenizerFile), file.dump());
  CHECK(make_tokenizer({"gpt2", folder.file(kTokenizerFile), ""})->hash() == golden_tokenizer("plain")->hash());
}

TEST_CASE("tokenizer.json: with ignore_merges an added word may be a piece, too", "[tokenizer_json]") {
  const TemporaryFolder folder;
  json file = read_json(kGolden + "plain.json");
  json& vocab = file["model"]["vocab"];
  const std::size_t word = vocab.size();
  vocab["qz"] = word;
  file["model"]["ignore_merges"] = true;
  file["added_tokens"].push_back({{"id", word},
                                  {"content", "qz"},
                                  {"single_word", true},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", false}});
  write_file(folder.file(kTokenizerFile), file.dump());
  std::vector<std::int32_t> ids;
  make_tokenizer({"gpt2", folder.file(kTokenizerFile), ""})->make_encoder()->encode("1qz", ids);
  CHECK(ids.back() == static_cast<std::int32_t>(word));  // tokenizers 0.23: no word by itself, but all of a piece
}

TEST_CASE("tokenizer.json: sequences within a sequence are its steps", "[tokenizer_json]") {
  const TemporaryFolder folder;
  const auto sequence = [](const std::vector<json>& list) { return json{{"type", "Sequence"}, {"normalizers", list}}; };
  const json nfkd = {{"type", "NFKD"}}, lowercase = {{"type", "Lowercase"}};
  json file = read_json(kGolden + "plain.json");
  std::vector<std::vector<std::int32_t>> found;
  for (const json& normalizer :
       {sequence({nfkd, lowercase}), sequence({sequence({}), sequence({sequence({nfkd}), lowercase})}), json()}) {
    file["normalizer"] = normalizer;
    write_file(folder.file(kTokenizerFile), file.dump());
    make_tokenizer({"gpt2", folder.file(kTokenizerFile), ""})
        ->make_encoder()
        ->encode("\xEF\xAC\x81 A", found.emplace_back());
  }
  CHECK(found[0] == found[1]);
  CHECK(found[0] != found[2]);
}

TEST_CASE("tokenizer.json: a file that is cut off says so", "[tokenizer_json][fault]") {
  const TemporaryFolder folder;
  const std::string whole = contents_of(kGolden + "plain.json");
  for (const std::size_t part : {1, 2, 3}) {
    write_file(folder.file(kTokenizerFile), whole.substr(0, part * whole.size() / 4));
    for (const char* kind : {"gpt2", "unigram", "bert-cased"}) {
      INFO(part << " of 4, " << kind);
      try {
        make_tokenizer({kind, folder.file(kTokenizerFile), ""});
        FAIL("no error");
      } catch (const Error& error) {
        INFO(error.what());
        CHECK(error.kind() == ErrorKind::data);
        const bool told = std::string(error.what()).find("cut off; fetch it again") != std::string::npos;
        CHECK((told || kind != std::string("gpt2")));  // others refuse what comes before
      }
    }
  }
}

TEST_CASE("tokenizer.json: added tokens beyond the model's rows are left out", "[tokenizer_json]") {
  const TemporaryFolder folder;
  json file = read_json(kGolden + "plain.json");
  const auto plain = golden_tokenizer("plain");
  const std::int64_t rows = plain->vocab_size();
  for (int more = 0; more < 2; ++more) {
    file["added_tokens"].push_back(
        {{"id", rows + more}, {"content", more == 0 ? "[PAD]" : "[MORE]"}, {"special", true}});
  }
  write_file(folder.file(kTokenizerFile), file.dump());
  const auto made = [&](std::int64_t for_rows) { return hugging_face_tokenizer(folder.path() + "/", for_rows); };
  CHECK(made(0).tokenizer->vocab_size() == rows + 2);
  CHECK(made(rows + 2).left_out == 0);
  const FolderTokenizer left = made(rows);
  CHECK(left.left_out == 2);
  CHECK(left.tokenizer->hash() == plain->hash());
  const TemporaryFolder kept;  // the file that is kept is the one without them
  write_file(kept.file(kTokenizerFile), std::string(left.tokenizer->files()[0].contents));
  CHECK(find_kept_tokenizer("gpt2", plain->hash(), kept.path() + "/").tokenizer != nullptr);
}

TEST_CASE("tokenizer.json: ids of the vocabulary without a token are unused ones", "[tokenizer_json]") {
  const TemporaryFolder folder;
  for (const bool ignore_merges : {false, true}) {
    json file = read_json(kGolden + "plain.json");
    json& vocab = file["model"]["vocab"];
    const auto words = static_cast<std::int32_t>(vocab.size());
    vocab["<|first|>"] = words + 1;
    vocab["<|last|>"] = words + 20;  // as cl100k's: tokenizers 0.23 keeps the ids and leaves those between alone
    file["model"]["ignore_merges"] = ignore_merges;
    file["added_tokens"].push_back({{"id", words + 1}, {"content", "<|first|>"}, {"special", true}});
    file["added_tokens"].push_back({{"id", words + 2}, {"content", "<|third|>"}, {"special", false}});
    write_file(folder.file(kTokenizerFile), file.dump());
    const auto tokenizer = make_tokenizer({"gpt2", folder.file(kTokenizerFile), ""});
    CHECK(tokenizer->vocab_size() == words + 21);
    CHECK(tokenizer->files()[0].contents == file.dump());
    std::vector<std::int32_t> ids;
    tokenizer->make_encoder()->encode("<|third|> <|unused_" + std::to_string(words) + "|>", ids);
    CHECK(ids.front() == words + 2);  // the number of tokens in the vocabulary, as that library gives it
    CHECK(std::find(ids.begin(), ids.end(), words) == ids.end());
    CHECK(tokenizer->decode(std::vector{words + 20}) == "<|last|>");
    json other = file;
    other["added_tokens"].back()["id"] = words + 3;
    write_file(folder.file(kTokenizerFile), other.dump());
    require_error(ErrorKind::data, {"has the id 309, and Hugging Face's library gives it 308"}, [&] {
      make_tokenizer({"gpt2", folder.file(kTokenizerFile), ""});
    });
    vocab["<|far|>"] = 3 * words;
    write_file(folder.file(kTokenizerFile), file.dump());
    require_error(ErrorKind::data, {"310 tokens, and 610 ids without one"}, [&] {
      make_tokenizer({"gpt2", folder.file(kTokenizerFile), ""});
    });
  }
}

TEST_CASE("tokenizer.json: the file is kept and what changes ids changes the hash", "[tokenizer_json]") {
  const TemporaryFolder folder;
  const auto plain = golden_tokenizer("plain");
  REQUIRE(plain->files().size() == 1);
  CHECK(plain->files()[0].name == kTokenizerFile);
  CHECK((plain->files()[0].contents == contents_of(kGolden + "plain.json")));
  CHECK(plain->hash() != golden_tokenizer("prefix")->hash());
  CHECK(plain->hash() != golden_tokenizer("added")->hash());
  // The same mapping out of the two older files is the same tokenizer.
  const json file = read_json(kGolden + "plain.json");
  std::string merges;
  for (const json& merge : file.at("model").at("merges")) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  write_file(folder.file("vocab.json"), file.at("model").at("vocab").dump());
  write_file(folder.file("merges.txt"), merges);
  CHECK(make_tokenizer({"gpt2", folder.file("vocab.json"), folder.file("merges.txt")})->hash() == plain->hash());
  // Other files there hide it in neither order, and are named only where it is missing.
  const auto kept = [&](std::uint64_t hash) { return find_kept_tokenizer("gpt2", hash, folder.path() + "/"); };
  const auto is_found = [&] {
    const KeptTokenizer found = kept(plain->hash());
    return found.tokenizer != nullptr && found.tokenizer->hash() == plain->hash() && found.others.empty();
  };
  CHECK(is_found());
  write_file(folder.file("tokenizer.json"), "{}");
  CHECK(is_found());
  write_file(folder.file("tokenizer.json"), contents_of(kGolden + "prefix.json"));
  CHECK(is_found());
  CHECK(kept(golden_tokenizer("prefix")->hash()).tokenizer->files()[0].name == kTokenizerFile);
  write_file(folder.file("vocab.json"), "{");
  const KeptTokenizer none = kept(plain->hash());
  CHECK(none.tokenizer == nullptr);
  CHECK_THAT(none.others, Contains("tokenizer.json: another vocabulary (hash") &&
                              Contains("; " + folder.file("vocab.json") + ":1: "));
  std::filesystem::remove(folder.file("merges.txt"));
  std::filesystem::remove(folder.file("tokenizer.json"));
  CHECK(kept(plain->hash()).others.empty());
}

TEST_CASE("tokenizer.json: what it asks for and is not there is refused by name", "[tokenizer_json][fault]") {
  struct Case {
    std::function<void(json&)> change;
    std::vector<std::string> parts;
  };
  const json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const auto steps = [](const std::vector<json>& list) { return json{{"type", "Sequence"}, {"pretokenizers", list}}; };
  const auto split = [](const std::string& pattern, const std::string& behavior) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", false}};
  };
  const Case cases[] = {
      {[](json& j) {
         j["normalizer"] = {{"type", "Prepend"}, {"prepend", "\u2581"}};
       },
       {"normalizer", "Prepend", "Qwen2", "tokenizer.model", "megatron_preprocess import"}},
      {[](json& j) {
         json nested = {{"type", "NFC"}};
         for (int i = 0; i < 70; ++i) nested = {{"type", "Sequence"}, {"normalizers", json::array({nested})}};
         j["normalizer"] = nested;
       },
       {"a normalizer of more than 64 levels"}},
      {[](json& j) { j["pre_tokenizer"]["type"] = "Metaspace"; }, {"pre_tokenizer", "Metaspace"}},
      {[](json& j) { j["pre_tokenizer"]["use_regex"] = false; }, {"pre_tokenizer.use_regex", "false"}},
      {[](json& j) { j["pre_tokenizer"]["novelty"] = 1; }, {"pre_tokenizer.novelty"}},
      {[](json& j) { j["pre_tokenizer"]["add_prefix_space"] = "no"; }, {"add_prefix_space"}},
      {[](json& j) { j["pre_tokenizer"] = nullptr; }, {"no pre_tokenizer"}},
      {[](json& j) { j.erase("pre_tokenizer"); }, {"no pre_tokenizer"}},
      {[&](json& j) {
         j["pre_tokenizer"] = steps({digits, digits, byte_level});
       },
       {"of 3 steps"}},
      {[&](json& j) {
         j["pre_tokenizer"] = steps({byte_level, digits});
       },
       {"pre_tokenizer", "ByteLevel"}},
      {[&](json& j) {
         j["pre_tokenizer"] = steps({{{"type", "Digits"}, {"individual_digits", false}}, byte_level});
       },
       {"individual_digits"}},
      {[&](json& j) {
         j["pre_tokenizer"] = steps({split("\\w+", "Isolated"), byte_level});
       },
       {"Split", "w+"}},
      {[&](json& j) {
         j["pre_tokenizer"] = steps({split("\\w+", "MergedWithNext"), byte_level});
       },
       {"Split", "MergedWithNext"}},
      {[](json& j) {
         j["post_processor"] = {{"type", "Novelty"}};
       },
       {"post_processor", "Novelty"}},
      {[](json& j) {
         j["post_processor"] = {{"type", "TemplateProcessing"}, {"single", json::array()}};
       },
       {"TemplateProcessing", "0 times"}},
      {[](json& j) {
         j["decoder"] = {{"type", "WordPiece"}};
       },
       {"decoder", "WordPiece"}},
      {[](json& j) { j["novelty"] = 1; }, {"\"novelty\""}},
      {[](json& j) { j["model"]["type"] = "Unigram"; }, {"model.type", "Unigram"}},
      {[](json& j) { j["model"]["dropout"] = 0.1; }, {"model.dropout", "0.1"}},
      {[](json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }, {"model.end_of_word_suffix"}},
      {[](json& j) { j["model"].erase("merges"); }, {"no model with vocab and merges"}},
      {[](json& j) {
         j["model"]["merges"][3] = json::array({"a", "b", "c"});
       },
       {"3 tokens instead of two"}},
      {[](json& j) { j["model"]["merges"][3] = "abc"; }, {"1 tokens instead of two"}},
      {[](json& j) {
         j["model"]["merges"][3] = json::array({"nowhere", "b"});
       },
       {"no token of the vocabulary"}},
      {[](json& j) { j["model"]["merges"].erase(j["model"]["merges"].size() - 1); }, {"before any merge makes"}},
      {[](json& j) { j["model"]["vocab"]["<|endoftext|>"] = 5000; }, {"there twice"}},
      {[](json& j) { j["added_tokens"][1]["novelty"] = true; }, {"novelty", "added token"}},
      {[](json& j) { j["added_tokens"][1]["content"] = "\u00E9"; }, {"\u00E9", "other bytes"}},
      {[](json& j) {
         j["model"]["vocab"]["<gone>"] = j["model"]["vocab"]["!"];
         j["model"]["vocab"].erase("!");
       },
       {"byte 0x21 is no token"}},
      {[](json& j) {
         j["added_tokens"][0]["content"] = "<|over|>";
         j["model"]["vocab"].erase("<|endoftext|>");
       },
       {"no token that ends documents", "<|end_of_text|>"}},
      {[](json& j) {
         j["added_tokens"].push_back({{"id", std::uint64_t{1} << 40}, {"content", "<far>"}});
       },
       {"ids are below"}},
      {[](json& j) { j["added_tokens"][1]["content"] = ""; }, {"a token of 0 bytes"}},
      {[](json& j) { j["model"]["vocab"] = json::array(); }, {"not a tokenizer.json", "an object"}},
  };
  const TemporaryFolder folder;
  const json good = read_json(kGolden + "added.json");
  for (const Case& c : cases) {
    json changed = good;
    c.change(changed);
    INFO(c.parts[0]);
    write_file(folder.file("t.json"), changed.dump());
    require_error(ErrorKind::data, c.parts, [&] { make_tokenizer({"gpt2", folder.file("t.json"), ""}); });
  }
  write_file(folder.file("t.json"), good.dump(1));  // spread over lines, it is as good
  CHECK(make_tokenizer({"gpt2", folder.file("t.json"), ""})->hash() == golden_tokenizer("added")->hash());
  write_file(folder.file("t.json"), "{\"added_tokens\": [],\n" + good.dump().substr(1));
  require_error(ErrorKind::data, {"t.json:2: ", "\"added_tokens\" is there twice"}, [&] {
    make_tokenizer({"gpt2", folder.file("t.json"), ""});
  });
  write_file(folder.file("t.json"), good.dump().substr(0, 3000));
  require_error(ErrorKind::data, {"t.json:1", "not a tokenizer.json", "byte 3001"}, [&] {
    make_tokenizer({"gpt2", folder.file("t.json"), ""});
  });
}
