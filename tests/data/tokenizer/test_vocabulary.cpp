// The readers of vocab.json and merges.txt: what is refused, with file and line, before anything uses it.
#include "data/tokenizer/bpe_vocabulary.h"

#include <functional>

#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "gpt2_support.h"
#include "support/require_error.h"
#include "support/temporary_folder.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A vocabulary of the 256 bytes, "ab", "abc" and the end of text, in files that a test may spoil.
struct Files {
  TemporaryFolder folder;
  std::string vocab, merges = "#version: 0.2\na b\nab c\n";

  Files() {
    const std::string whole = contents_of(golden_file(kVocabFile));
    // The trained vocabulary begins with the bytes, one character each, as ids 0 .. 255.
    vocab = "{\n";
    std::size_t at = 1;
    for (int id = 0; id < 256; ++id) {
      const std::size_t end = whole.find(',', whole.find("\":", at));
      vocab += whole.substr(at, end - at) + ",\n";
      at = end + 1;
    }
    vocab += "\"ab\": 256,\n\"abc\": 257,\n\"<|endoftext|>\": 258\n}\n";
  }

  BpeVocabulary read() {
    write_file(folder.file(kVocabFile), vocab);
    write_file(folder.file(kMergeFile), merges);
    return read_bpe_vocabulary(folder.file(kVocabFile), folder.file(kMergeFile));
  }
  Files& replace(std::string Files::*text, const std::string& old, const std::string& by) {
    const std::size_t at = (this->*text).find(old);
    REQUIRE(at != std::string::npos);
    (this->*text).replace(at, old.size(), by);
    return *this;
  }
};

}  // namespace

TEST_CASE("vocabulary: valid with or without version line and last newline", "[tokenizer]") {
  for (const std::string merges : {"#version: 0.2\na b\nab c\n", "a b\nab c\n", "a b\nab c", "#version\na b\nab c"}) {
    Files files;
    files.merges = merges;
    const BpeVocabulary vocabulary = files.read();
    CHECK(vocabulary.tokens.size() == 259);
    CHECK(vocabulary.end_of_text == 258);
    REQUIRE(vocabulary.merges.size() == 2);
    CHECK(vocabulary.merges[1].result == 257);
    CHECK(vocabulary.tokens[257] == "abc");
  }
}

TEST_CASE("vocabulary: a byte is written as GPT-2 writes it", "[tokenizer]") {
  const BpeVocabulary vocabulary = read_bpe_vocabulary(golden_file(kVocabFile), golden_file(kMergeFile));
  std::string bytes;
  for (std::size_t id = 0; id < 256; ++id) bytes += vocabulary.tokens[id];
  // In the order of the characters: 33-126, 161-172, 174-255, then those that have none of their own.
  CHECK(bytes.substr(0, 3) == "!\"#");
  CHECK(bytes.substr(93, 3) == "~\xA1\xA2");
  CHECK(bytes.substr(187, 3) == std::string("\xFF\0\x01", 3));
  CHECK(bytes[220] == ' ');
  CHECK(bytes[255] == '\xAD');
}

TEST_CASE("vocabulary: everything that is wrong has its error", "[tokenizer]") {
  struct Case {
    std::string Files::*file;
    std::string old, by;
    std::vector<std::string> parts;
  };
  const auto vocab = &Files::vocab, merges = &Files::merges;
  const std::vector<Case> cases = {
      {vocab, "\"ab\": 256", "\"ab\": 256,\n\"ab\": 256", {"vocab.json:259:", "\"ab\"", "twice"}},
      {vocab, "\"ab\": 256", "\"ab\": 255", {"vocab.json", "two tokens have id 255"}},
      {vocab, "\"abc\": 257", "\"abc\": 259", {"vocab.json", "id 259", "0 .. n-1"}},
      {vocab, "\"abc\": 257", "\"abc\": 1000000", {"vocab.json:259:", "1000000"}},
      {vocab, "\"abc\": 257", "\"abc\": 99999999999999999999", {"vocab.json:259:", "too large"}},
      {vocab, "\"abc\": 257", "\"abc\": -1", {"vocab.json:259:", "whole number"}},
      {vocab, "\"abc\": 257", "\"abc\": 257.5", {"vocab.json:259:", "whole number"}},
      {vocab, "\"abc\": 257", "\"abc\": \"257\"", {"vocab.json:259:", "whole number"}},
      {vocab, "\"abc\": 257", "\"a\\qc\": 257", {"vocab.json:259:", "escape"}},
      {vocab, "\"abc\": 257", "\"a\\ud800c\": 257", {"vocab.json:259:", "surrogate"}},
      {vocab, "\"abc\": 257", "\"a\xFF\": 257", {"vocab.json:259:", "invalid UTF-8"}},
      {vocab, "\"abc\": 257", "\"a b\": 257", {"vocab.json:259:", "256 characters"}},
      {vocab, "\"abc\": 257", "\"a\\u0500\": 257", {"vocab.json:259:", "256 characters"}},
      {vocab, "\"abc\": 257", "\"\": 257", {"vocab.json:259:", "256 characters"}},
      {vocab, "\"abc\": 257", "\"" + std::string(5000, 'a') + "\": 257", {"vocab.json:259:", "5000 bytes"}},
      {vocab, "\"a\":", "\"aa\":", {"vocab.json", "0x61 is no token"}},
      {vocab, "<|endoftext|>", "<|end|>", {"vocab.json", "no token that ends documents", "259"}},
      {vocab, "\n}\n", "", {"vocab.json:260:", "not valid JSON", "found the end"}},
      {vocab, "\n}\n", "}x", {"vocab.json:260:", "nothing more"}},
      {vocab, "{\n", "[", {"vocab.json:1:", "an object"}},
      {merges, "a b", "a  b", {"merges.txt:2:", "one space"}},
      {merges, "a b", "ab", {"merges.txt:2:", "one space"}},
      {merges, "a b", " b", {"merges.txt:2:", "one space"}},
      {merges, "a b\n", "a b\n\n", {"merges.txt:3:", "one space"}},
      {merges, "a b\n", "a b\r\n", {"merges.txt:2:", "CR LF"}},
      {merges, "a b\n", "a b\na b\n", {"merges.txt:3:", "twice"}},
      {merges, "a b\n", "a b\nb a\n", {"merges.txt:3:", "vocabulary lacks"}},
      {merges, "a b\n", "a b\nxyz a\n", {"merges.txt:3:", "\"xyz\" is no token"}},
      {merges, "a b\nab c\n", "ab c\na b\n", {"merges.txt:2:", "\"ab\"", "wrong order"}},
      {merges, "ab c\n", "", {"merges.txt:3:", "\"abc\" with id 257", "cut off", "added token", "<...>"}},
      {vocab, "\"abc\": 257", "\"a\\nb\\t\\u001b\": 257", {"vocab.json:259:", "\"a\\nb\\t\\x1b\" (id 257)"}},
      {merges, "a b", std::string(59, 'x') + "\u20AC", {"merges.txt:2:", "\"" + std::string(59, 'x') + "...\""}},
      {merges, "a b\n", "a \xC3\n", {"merges.txt:2:", "invalid UTF-8"}},
  };
  for (const Case& one : cases) {
    Files files;
    INFO(one.old << " -> " << one.by.substr(0, 60));
    require_error(ErrorKind::data, one.parts, [&] { files.replace(one.file, one.old, one.by).read(); });
  }
  Files files;
  files.replace(vocab, "\"abc\": 257", "\"b</w>\": 257");
  require_error(ErrorKind::data, {"merges.txt:2:", "\"b</w>\" marks the end of a word"},
                [&] { files.replace(merges, "a b\n", "a b</w>\n").read(); });
}

TEST_CASE("vocabulary: no merge may make the end of text", "[tokenizer]") {
  Files files;
  const std::string text(kEndOfText);
  std::string tokens, merges;
  for (std::size_t length = 2; length <= text.size(); ++length) {
    if (length < text.size()) tokens += fmt::format("\"{}\": {},\n", text.substr(0, length), 257 + length);
    merges += fmt::format("{} {}\n", text.substr(0, length - 1), text[length - 1]);
  }
  files.replace(&Files::vocab, "\"<|endoftext|>\"", tokens + "\"<|endoftext|>\"").merges += merges;
  require_error(ErrorKind::data, {"merges.txt:15:", "no text may encode to"}, [&] { files.read(); });
}

TEST_CASE("vocabulary: files that are absent, folders or huge", "[tokenizer]") {
  Files files;
  files.read();
  const std::string vocab = files.folder.file(kVocabFile), merges = files.folder.file(kMergeFile);
  require_error(ErrorKind::data, {"nothing", "No such file", "download_vocab.sh"},
                [&] { read_bpe_vocabulary(files.folder.file("nothing"), merges); });
  require_error(ErrorKind::data, {"regular file"}, [&] { read_bpe_vocabulary(vocab, files.folder.path()); });
  std::filesystem::resize_file(merges, kLargestVocabularyFile + 1);
  require_error(ErrorKind::data, {"merges.txt", "too many", "at most", "download_vocab.sh"},
                [&] { read_bpe_vocabulary(vocab, merges); });
  files.merges.clear();
  for (int i = 0; i < 10'000'000; ++i) files.merges += "a b\n";
  require_error(ErrorKind::data, {"merges.txt:2:", "twice"}, [&] { files.read(); });
}

TEST_CASE("vocabulary: the hash is of the mapping, not of the files' bytes", "[tokenizer]") {
  Files files;
  const auto hash = [&] {
    files.read();
    return make_tokenizer({"gpt2", files.folder.file(kVocabFile), files.folder.file(kMergeFile)})->hash();
  };
  const std::uint64_t original = hash();
  files.replace(&Files::merges, "#version: 0.2\n", "").replace(&Files::vocab, ",\n\"abc\"", " ,  \"\\u0061bc\"");
  CHECK(hash() == original);
  files.merges = "b c\na b\nab c\n";
  require_error(ErrorKind::data, {"vocabulary lacks"}, hash);
  files.merges = "a b\nab c\n";
  files.replace(&Files::vocab, "\"\\u0061bc\": 257", "\"bc\": 257").merges = "a b\nb c\n";
  const std::uint64_t other = hash();
  CHECK(other != original);
  files.merges = "b c\na b\n";  // the same tokens with the same ids, merged in another order
  CHECK((hash() != other && hash() != original));
}
