// Dumps of MediaWiki: pages, what is left out, and XML that is broken or hostile.
#include "data/cleaning/wikipedia.h"

#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Hands out the text in parts of this size.
XmlReader::More parts_of(std::string text, std::size_t bytes) {
  return [text = std::move(text), bytes, at = std::size_t{0}](std::string& out) mutable {
    const std::size_t count = std::min(bytes, text.size() - at);
    out.append(text, at, count);
    at += count;
    return count > 0;
  };
}

std::string page(const std::string& title, const std::string& space, const std::string& text,
                 const std::string& extra = "") {
  return "  <page>\n    <title>" + title + "</title>\n    <ns>" + space + "</ns>\n    <id>7</id>\n" + extra +
         "    <revision>\n      <id>99</id>\n      <contributor><username>A</username><id>5</id></contributor>\n"
         "      <text bytes=\"3\" xml:space=\"preserve\">" +
         text + "</text>\n    </revision>\n  </page>\n";
}

const std::string kHead =
    "<?xml version=\"1.0\"?>\n<mediawiki xmlns=\"http://x/\" xml:lang='de'>\n<siteinfo><namespaces>"
    "<namespace key=\"-2\" case=\"first-letter\">Medium</namespace><namespace key=\"0\" /><namespace "
    "key=\"6\">Datei</namespace>"
    "<namespace key=\"14\">Kategorie</namespace><namespace key=\"10\">Vorlage</namespace></namespaces></siteinfo>\n";

std::vector<WikipediaPage> pages_of(const std::string& xml, std::size_t bytes = 1 << 16) {
  WikipediaDump dump("dump.xml", parts_of(xml, bytes));
  std::vector<WikipediaPage> pages;
  for (WikipediaPage page; dump.next(page);) pages.push_back(page);
  return pages;
}

void require_refused(const std::string& xml, const std::vector<std::string>& parts) {
  require_error(ErrorKind::data, parts, [&] { pages_of(xml); });
}

}  // namespace

TEST_CASE("Wikipedia's dump: articles, whatever parts it comes in") {
  const std::string xml = kHead + page("A &amp; B", "0", "x &lt;ref&gt; &#228; &#x1F600; &quot;&apos;\nline") +
                          page("Talk:A", "1", "no") + page("C", "0", "#REDIRECT [[A]]", "<redirect title=\"A\" />") +
                          page("D", "0", "#Redirect [[A]]") + page("E", "0", "") +
                          page("F", "0", "a<![CDATA[<b>&amp;]]>c<!-- d -->e") + "</mediawiki>\n";
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{7}, std::size_t{100}, xml.size()}) {
    const auto pages = pages_of(xml, bytes);
    REQUIRE(pages.size() == 3);
    CHECK(pages[0].title == "A & B");
    CHECK(pages[0].id == "7");
    CHECK(pages[0].text == "x <ref> \u00E4 \U0001F600 \"'\nline");
    CHECK(pages[1].title == "E");
    CHECK(pages[1].text.empty());
    CHECK(pages[2].text == "a<b>&amp;ce");
  }
  WikipediaDump dump("dump.xml", parts_of(xml, 50));
  for (WikipediaPage page; dump.next(page);) continue;
  CHECK(dump.pages() == 6);
  CHECK(dump.redirects() == 2);
  CHECK(dump.others() == 1);
  CHECK(dump.position() == xml.size());
  CHECK(dump.hidden_namespaces() ==
        std::vector<std::string>{"File", "Image", "Media", "Category", "Medium", "Datei", "Kategorie"});
}

TEST_CASE("Wikipedia's dump: broken XML is an error with byte and line") {
  const std::string start = kHead + page("A", "0", "x");
  require_refused("", {"dump.xml: byte 0 (line 1)", "not a dump of MediaWiki"});
  require_refused("text", {"byte 4", "not a dump"});
  require_refused("<html></html>", {"<html>", "<mediawiki>"});
  require_refused(start, {"within <mediawiki>", "incomplete"});
  require_refused(start + "<page><title>B", {"within <title>", "incomplete"});
  require_refused(start + "<page", {"ends within a tag", "incomplete"});
  require_refused(start + "<page></title>", {"</title> where <page> is open"});
  require_refused(start + "</mediawiki></page>", {"where nothing is open"});
  require_refused(start + "<page><title>a & b</title>", {"'&' does not begin an entity"});
  require_refused(start + "<page><title>&nbsp;</title>", {"an entity that XML does not define"});
  require_refused(start + "<page><title>&#0;</title>", {"a reference to a character"});
  require_refused(start + "<page><title>&#x110000;</title>", {"a reference to a character"});
  require_refused(start + "<page><title>&#x;</title>", {"a reference to a character"});
  require_refused(start + "<page><title>&#1g;</title>", {"a malformed numeric character reference"});
  require_refused(start + std::string("<page><title>a\0b</title>", 24), {"a control character"});
  require_refused(start + page("B", "0", "x\xFFy"), {"the page '7' is not UTF-8"});
  require_refused(start + page("B", "0", "<b>x</b>"), {"text with tags in it"});
  require_refused(start + page("", "0", "x"), {"without a title"});
  require_refused(start + "< page>", {"'<' begins no tag"});
  require_refused(start + "<page a=b>", {"quotation marks"});
  require_refused(start + "<page a>", {"an attribute without"});
  require_refused(kHead + "\n\n\n<page></x>", {"(line 7)"});
}

TEST_CASE("Wikipedia's dump: hostile XML takes no memory") {
  const std::string big(std::size_t{1} << 20, 'x');
  require_refused("<!DOCTYPE x [<!ENTITY a \"&b;&b;\">]><mediawiki/>", {"a document type"});
  require_refused(kHead + "<page " + big + ">", {"a tag or comment of more than 65536 bytes"});
  require_refused(kHead + "<!-- " + big + big + " -->", {"a tag or comment of more than 1048576 bytes"});
  require_refused(kHead + "<page><title>" + big, {"a text of more than 4096 bytes"});
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<a>";
  require_refused(kHead + deep, {"more than 64 tags"});
  require_error(ErrorKind::data, {"a text of more than 1000 bytes"}, [&] {
    WikipediaDump dump("dump.xml", parts_of(kHead + page("A", "0", big), 1 << 12), 1000);
    WikipediaPage page;
    dump.next(page);
  });
  // Text that is of no interest is not kept, however long it is.
  std::size_t left = 2000, most = 0;
  WikipediaDump dump("dump.xml", [&](std::string& out) {
    most = std::max(most, out.size());
    if (left == 2000)
      out += kHead + "<other>";
    else if (left > 1)
      out.append(1 << 14, 'y');
    else if (left == 1)
      out += "</other></mediawiki>";
    return left > 0 && left-- > 0;
  });
  WikipediaPage page;
  CHECK(!dump.next(page));
  CHECK(most < std::size_t{1} << 18);
}
