// Languages of stored sentences, as pycld2 finds them, and of texts that have none.
#include "data/cleaning/language.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("language: stored sentences as pycld2 finds them") {
  if (!has_language_detection()) {
    return require_error(ErrorKind::configuration, {"without CLD2", "libcld2-dev"}, [] { guess_language("text"); });
  }
  std::ifstream file(MEGATRON_GOLDEN_FOLDER "/repair.json");
  const auto golden = nlohmann::json::parse(file);
  REQUIRE(golden.at("languages").size() > 20);
  CHECK_FALSE(is_language("english"));
  CHECK_FALSE(is_language("EN"));
  for (const auto& row : golden.at("languages")) {
    const LanguageGuess guess = guess_language(row[0].get<std::string>());
    INFO(row[0]);
    CHECK(guess.code == row[1].get<std::string>());
    CHECK(is_language(guess.code));
    CHECK(guess.share == row[2].get<int>() / 100.0);
    CHECK(guess.reliable == row[3].get<bool>());
  }
}

TEST_CASE("language: shares of a mixed text, and texts without a language") {
  if (!has_language_detection()) return;
  const std::string english =
      "The ferry leaves the harbour at half past seven, and no passenger knows how long it will take. ";
  const std::string german =
      "Die Brücke muss alle sechs Jahre geprüft werden, auch wenn niemand einen Schaden vermutet. ";
  const LanguageGuess mixed = guess_language(english + english + english + german);
  CHECK(mixed.code == "en");
  CHECK(mixed.share > 0.5);
  CHECK(mixed.share < 0.95);
  for (const std::string& text :
       {std::string(), std::string("12 34 +-"), std::string(100, '\0'), std::string("\xFF\xFE\x80")}) {
    CHECK(guess_language(text).code == "un");
    CHECK(guess_language(text).share == 0);
    CHECK(!guess_language(text).reliable);
  }
  CHECK(guess_language(english + "\xFF" + german + german + german).code == "en");  // up to the damage
}
