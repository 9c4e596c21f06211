#include "data/evaluation_tasks/detokenizer.h"
#include "support/catch.h"

namespace megatron::test {
namespace {

TEST_CASE("detokenizer: each replacement, alone") {
  const auto check = [](const char* text, const char* expected) { CHECK(detokenized_wikitext(text) == expected); };
  check("", "");
  check("the cats ' tails", "the cats' tails");
  check("well @-@ known", "well-known");
  check("1 @,@ 000 @.@ 5", "1,000.5");
  check("a : b ; c . d ! e ? f , g", "a: b; c. d! e? f, g");
  check("see ( the  one \n) and ( ) .", "see (the  one) and () .");
  check("[ a ] { b }", "[a] {b}");
  check("( a ( b ) c )", "(a ( b) c )");  // up to the first that closes
  check("( never closed", "( never closed");
  check("said \" yes \" and \" no", "said \"yes\" and \" no");
  check("a ' quoted ' word", "a 'quoted' word");
  check(" = = = = Deep = = = = ", " ==== Deep ==== ");
  check("= = = Title = = =", "=== Title ===");
  check("= = Part = =", "== Part ==");
  check("40 \u00B0 north", "40\u00B0north");
  check("line \n next \n \n last", "line\nnext\n\nlast");
  check("about N men", "about 1 men");
  check("the dog 's bone", "the dog's bone");
  check("(\u00A0a\u2003)", "(a)");  // any white space
}

TEST_CASE("detokenizer: replacements act on what earlier ones left") {
  CHECK(detokenized_wikitext(" \n = Robert <unk> = \n \n He said , \" It ' s 3 @.@ 5 ( m ) . \" \n") ==
        "\n= Robert <unk> =\n\nHe said, \"It ' s 3.5 (m).\"\n");
}

TEST_CASE("detokenizer: time is linear in texts of nothing but marks") {
  const std::string quotes(4 << 20, '"'), opened(4 << 20, '(');
  CHECK(detokenized_wikitext(quotes) == quotes);
  CHECK(detokenized_wikitext(opened) == opened);
}

}  // namespace
}  // namespace megatron::test
