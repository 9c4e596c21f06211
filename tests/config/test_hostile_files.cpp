// Input files that are damaged, or made to do damage: errors with a place, never a crash.
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "base/core/philox.h"
#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("texts that no parser should see", "[config][fault-52]") {
  CHECK(contains(parse_error("\xEF\xBB\xBF" + small_file()),
                 "f.toml:1:1: error: the file begins with a byte-order mark"));
  CHECK(contains(parse_error(std::string("\xFF\xFEm\0", 4)), "byte-order mark"));
  CHECK(contains(parse_error("[model]\nlay" + std::string(1, '\0') + "ers = 1"), "f.toml:2:4: error: a NUL byte"));
  CHECK(contains(parse_error("[model]\n# caf\xe9\n"), "f.toml:2:6: error: byte 0xE9 is not valid UTF-8"));
  CHECK(contains(parse_error("# \xed\xa0\x80\n"), "not valid UTF-8"));  // a surrogate
  CHECK(contains(parse_error("# \xc0\xaf\n"), "not valid UTF-8"));      // overlong
  CHECK(contains(parse_error("x = " + std::string(300, '[') + std::string(300, ']')), "nested brackets"));
  CHECK(contains(parse_error("x = " + std::string(300, '{')), "nested brackets"));
  std::string dotted = "a";
  for (int i = 0; i < 100000; ++i) dotted += ".a";
  CHECK(contains(parse_error(dotted + " = 1\n"), "a dotted key of more than 16 parts"));
  CHECK(contains(parse_error("[" + dotted + "]\n"), "a dotted key of more than 16 parts"));
  CHECK(contains(parse_error("x = \"" + std::string(2000000, 'a') + "\""), "more than 1048576 bytes"));
  CHECK(contains(parse_error("[model\nlayers = 1\n"), "f.toml:1:"));
  CHECK(contains(parse_error("[model]\nlayers = 1\nlayers = 2\n"), "f.toml:3:"));
  CHECK(lines(parse_error("[model]\nlayers = = 1\n")) == 1);
  // Brackets and dots in strings and comments do not count.
  const std::string many(40, '['), dots(40, '.');
  CHECK(error_of([&] {
          parse_config_text(small_file() + "validation = \"" + many + dots + "\\\"" + many + "\" # " + many + dots +
                                "\ntest = '''" + many + "\n" + many + "'''\n",
                            "f.toml");
        }).empty());
  // Nothing but ASCII outside of comments and one-line strings: the parser's own answer to such text is undefined.
  const std::string stray = "a character that is not ASCII";
  CHECK(contains(parse_error("[model]\nlayers = \xC3\xA9\n"), "f.toml:2:10: error: " + stray));
  CHECK(contains(parse_error("[model\xC3\x97]\n"), "f.toml:1:7: error: " + stray));
  CHECK(contains(parse_error("x = \"\"\"\\\n\xC3\xA9\"\"\""), stray));
  CHECK(contains(parse_error("x = \"\"\"\\\xC3\xA9\"\"\""), stray));
  CHECK(contains(parse_error("x = 0\003\"p$\xC6\xB1\""), "f.toml:1:10: error: " + stray));  // the quote is in a word
  CHECK(parse_config_text(small_file() + "test = \"caf\xC3\xA9\" # \xC3\xA9\n", "f.toml").data.test == "caf\xC3\xA9");
  CHECK(parse_small({"data.test=caf\xC3\xA9"}).data.test == "caf\xC3\xA9");
  CHECK(contains(error_of([] { parse_small({"model.layers=\xC3\xA9"}); }), "model.layers"));
  // Many keys are no depth.
  std::string wide = "[model]\n";
  for (int i = 0; i < 2000; ++i) wide += "key" + std::to_string(i) + " = 1.5\n";
  CHECK(lines(parse_error(wide)) >= 2000);
}

TEST_CASE("damaged files end in an error, never in a crash", "[config][fault-52]") {
  std::ifstream file(repository() / "inputs/gpt3_175b.toml", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  REQUIRE(whole.size() > 1000);
  const std::string letters = "[]{}\"'=.,#\\\n\r\t 0-e_\xc3\xff$";
  int refused = 0;
  for (std::uint32_t i = 0; i < 1500; ++i) {
    const PhiloxCounter random = philox4x32<>({i, 0, 0, 0}, 7);
    std::string text = whole;
    if (i % 3 == 0) text.resize(random[0] % text.size());
    for (std::uint32_t change = 0; change < 1 + i % 4; ++change) {
      const PhiloxCounter at = philox4x32<>({i, change, 1, 0}, 7);
      text.insert(at[0] % (text.size() + 1), 1 + at[2] % 3, letters[at[1] % letters.size()]);
    }
    refused += error_of([&] { parse_config_text(text, "f.toml"); }).empty() ? 0 : 1;
  }
  CHECK(refused > 700);  // the others hit comments and strings
}

TEST_CASE("files: missing, directories, too large, CRLF, names in UTF-8", "[config][fault-52]") {
  const auto folder = std::filesystem::temp_directory_path() / ("config_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  CHECK(
      contains(error_of([&] { parse_config((folder / "none.toml").string()); }), "none.toml: error: cannot be opened"));
  CHECK(contains(error_of([&] { parse_config(folder.string()); }), "is a directory"));
  const auto file = folder / "größe.toml";
  std::string text = small_file() + "validation = \"dätä/日本\"\n";
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.insert(at, 1, '\r');
  std::ofstream(file, std::ios::binary) << text;
  CHECK(parse_config(file.string()).data.validation == "dätä/日本");
  std::ofstream(file, std::ios::binary) << std::string(3 << 20, '#');
  CHECK(contains(error_of([&] { parse_config(file.string()); }), "größe.toml:1:1: error: more than 1048576 bytes"));
  std::filesystem::remove_all(folder);
}
