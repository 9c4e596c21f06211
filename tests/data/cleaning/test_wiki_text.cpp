// Wiki text to plain text: each kind of markup, what is left open, hostile texts.
#include "data/cleaning/wiki_text.h"

#include "base/text/utf8.h"
#include "data/cleaning/linear_work.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

using namespace std::string_view_literals;

std::string plain(std::string_view wiki) {
  return WikiText().plain(wiki);
}

}  // namespace

TEST_CASE("wiki text: templates go, also within each other") {
  CHECK(plain("A {{b|{{c}}|d={{{1|{{e}}}}}}} F") == "A F");
  CHECK(plain("{{Infobox\n| name = x\n| image = [[File:a.jpg|{{x}}]]\n}}\nText") == "Text");
  CHECK(plain("{{{1}}} a {{{2|b}}} c") == "a c");
  CHECK(plain("x {{open y") == "x open y");
  CHECK(plain("x }} y") == "x y");
  CHECK(plain("{a} {{b}} }") == "{a} }");
  CHECK(plain("Born ({{lang|de|x}}, {{date}}) in A ({{n}}; b) or f()") == "Born in A (b) or f()");
}

TEST_CASE("wiki text: tables go, also within each other") {
  CHECK(plain("a\n{| class=x\n|-\n| b || c\n{|\n| d\n|}\n|}\ne") == "a\n\ne");
  CHECK(plain(":{|\n|{{x|\n|}}\n|}\ne") == "e");
  CHECK(plain("a\n{| open\n| row\n! head\nb") == "a\nopen\n! head\nb");
  CHECK(plain("a {| b |} c") == "a {| b |} c");
}

TEST_CASE("wiki text: links become their text") {
  CHECK(plain("[[Tree]] [[Tree|oak]]s [[Tree#Root|root]] [[#Here]]") == "Tree oaks root #Here");
  CHECK(plain("a [[File:x.jpg|thumb|A [[big]] tree, {{y}}]] b [[image:z.png]]") == "a b");
  CHECK(plain("[[Category:Trees]][[de:Baum]] [[zh-min-nan:x]]text [[:Category:Trees]] [[:de:Baum|German]]") ==
        "text Category:Trees German");
  CHECK(plain("[[a|b [[c]] d]]") == "b c d");
  CHECK(plain("[[a [[b|c]] d]]") == "a c d");
  CHECK(plain("[[{{x|y}}a|b]]") == "b");
  CHECK(plain("[[Tree (graph)|]] [[Help:Tree (x)|]]") == "Tree Tree");
  CHECK(plain("[[open a]] [[open b") == "open a open b");
  CHECK(plain("see [[x]]] and ]] [") == "see x] and [");
  CHECK(WikiText({"Datei"}).plain("a [[Datei:x.jpg|y]] [[datei:z]] [[File:x|y]]") == "a y");
}

TEST_CASE("wiki text: external links keep their text") {
  CHECK(plain("[http://a.b/c d e] [https://a.b] [//a.b x] [mailto:a@b write] [not] http://bare") ==
        "d e x write [not] http://bare");
  CHECK(plain("[http://a open\nb]") == "[http://a open\nb]");
  CHECK(plain("[[File:x|[http://a b]]] c") == "c");
  CHECK(plain("[http://a [[b|c]] d]") == "c d");
}

TEST_CASE("wiki text: headings stay where a text follows") {
  CHECK(plain("a\n== One ==\nb\n=== Two ===\n== Three ==\n{{x}}\n== Four == \n=== Five ===\nc\n== Six ==") ==
        "a\n\nOne\n\nb\n\nFour\n\nFive\n\nc");
  CHECK(plain("= a\n==\n=\n===b==\nc") == "= a\n==\n=\n\n=b\n\nc");
}

TEST_CASE("wiki text: quotes, lists, rulers, magic words, entities") {
  CHECK(plain("''i'' '''b''' '''''both''''' it's ''''x''''") == "i b both it's 'x'");
  CHECK(plain("* a\n** b\n# c\n; t : d\n: e\n----\nf") == "a\nb\nc\nt : d\ne\n\nf");
  CHECK(plain("__NOTOC__a__b __X") == "a__b __X");
  CHECK(plain("a&nbsp;b &amp; &lt;i&gt; &#91;[c]] &nosuch;") == "a b & <i> [[c &nosuch;");
  CHECK(plain("a\n\n\n\nb\nc  d") == "a\n\nb\nc d");
}

TEST_CASE("wiki text: tags go, some with what they hold") {
  CHECK(plain("a<ref>b</ref><ref name=x />c<REF name=\"y\">d\ne</Ref >f") == "acf");
  CHECK(plain("a <math>x^2</math> <b>b</b> x<sup>2</sup><br/>c <!-- d --> e") == "a b x2\nc e");
  CHECK(plain("<nowiki>[[a]] ''b'' {{c}}</nowiki> <pre>\n* d\n== e ==</pre>") == "[[a]] ''b'' {{c}}\n* d\n== e ==");
  CHECK(plain("a < b, c > d, <unknown> #include <stdio.h>") == "a < b, c > d, <unknown> #include <stdio.h>");
  CHECK(plain("a <ref>open b <ref>c</ref> d") == "a d");
  CHECK(plain("a <ref>open b") == "a open b");
  CHECK(plain("a\n<!-- line -->\nb <!-- open") == "a\nb");
  CHECK(plain("<gallery>\nFile:a.jpg|b\n</gallery>\n<references><ref>x</ref></references>") == "");
  CHECK(plain("<table><tr><td>x</td></tr></table>y") == "y");
}

TEST_CASE("wiki text: an article") {
  CHECK(plain("{{Short description|Plant}}\n{{Infobox tree\n| name = Oak\n}}\n[[File:Oak.jpg|thumb|An [[oak]].]]\n"
              "An '''oak''' ({{IPA|x}}) is a [[tree]] of the [[genus|genus ''Quercus'']].<ref>{{cite|a}}</ref> It is "
              "[[hardwood|hard]].\n\n"
              "== Species ==\n* [[White oak]]\n* Red oak\n{| class=\"wikitable\"\n! a\n|}\n\n== References "
              "==\n{{reflist}}\n\n[[Category:Trees]]\n") ==
        "An oak is a tree of the genus Quercus. It is hard.\n\nSpecies\n\nWhite oak\nRed oak");
}

TEST_CASE("wiki text: hostile texts, in linear work") {
  for (const std::string_view part : {"{{"sv,     "}}"sv,      "[["sv,      "]]"sv,          "<"sv,
                                      "<ref"sv,   "<ref>"sv,   "</ref>"sv,  "<math><ref>"sv, "<!--"sv,
                                      "{|\n"sv,   "\n{|"sv,    "|}\n"sv,    "[http://a"sv,   "[http://a]\n"sv,
                                      "]"sv,      "[[a|"sv,    "[[File:"sv, "{{[["sv,        "{{[[}}"sv,
                                      "[[{{]]"sv, "'"sv,       "''"sv,      "="sv,           "\n="sv,
                                      "*"sv,      "_"sv,       "&"sv,       "&amp;"sv,       "\0"sv,
                                      "\x01"sv,   "\xFF"sv,    "("sv,       "( "sv,          "[[a[[b]]"sv,
                                      "{{a}}"sv,  "\n|"sv,     "</"sv,      "<nowiki>"sv,    "<pre>[</pre>"sv,
                                      "{{{"sv,    "[[[[a]]"sv, "[[:"sv,     "[[:a]]"sv}) {
    require_linear(part, 60, [](const std::string& text) {
      WikiText wiki;
      const std::string out = wiki.plain(text);
      CHECK(out.size() <= text.size());
      return wiki.work();
    });
  }
  for (const auto& [open, close] : {std::pair("[["sv, "]]"sv),
                                    {"[[a"sv, "z]]"sv},
                                    {"[[a:"sv, "|]]"sv},
                                    {"[[[http://a "sv, "]]]"sv},
                                    {"[[{{a}}"sv, "]]"sv}}) {
    require_linear(open, 60, [&](const std::string& text) {
      WikiText wiki;
      wiki.plain(text + repeated(close, text.size() / open.size() * close.size()));
      return wiki.work();
    });
  }
  const std::string deep = repeated("[[a|", 1 << 20) + repeated("]]", 1 << 20);
  CHECK(plain(deep).size() < 10);
  CHECK(plain(repeated("{{", 1 << 20) + repeated("}}", 1 << 20)).empty());
}

TEST_CASE("wiki text: pieces of markup in any order end, as UTF-8") {
  constexpr std::string_view kPieces[] = {
      "{{",   "}}",  "[[",        "]]", "{|", "|}", "|",    "\n",       "=",         "==", "'''",   "<ref>", "</ref>",
      "<!--", "-->", "[http://x", " ",  "]",  "*",  "&lt;", "<nowiki>", "</nowiki>", "a",  "File:", ":",     "\u00E9"};
  std::uint32_t state = 3;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (int n = 0; n < 24; ++n) {
      state = state * 1664525 + 1013904223;
      text += kPieces[(state >> 16) % std::size(kPieces)];
    }
    const std::string out = plain(text);
    INFO(text);
    REQUIRE(first_invalid_utf8(out) == out.size());
    REQUIRE(out.find('\x01') == out.npos);
    REQUIRE(out.find('\x02') == out.npos);
  }
}
