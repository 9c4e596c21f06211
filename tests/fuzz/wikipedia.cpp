// Dumps of MediaWiki: refused, or pages of UTF-8 whose plain text is no longer than their wiki text. The first byte is
// the size of the parts that the dump comes in. The input is tried as wiki text, too.
#include "data/cleaning/wikipedia.h"
#include "base/text/utf8.h"
#include "data/cleaning/wiki_text.h"
#include "fuzz/fuzz.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t part = std::size_t{data[0]} + 1;
  WikiText wiki;
  fuzz::allow({ErrorKind::data}, [&] {
    std::size_t at = 0;
    WikipediaDump dump("dump", [&](std::string& out) {
      const std::string_view next = input.substr(at, part);
      out.append(next);
      at += next.size();
      return !next.empty();
    });
    for (WikipediaPage page; dump.next(page);) {
      const std::string text = wiki.plain(page.text);
      fuzz::require(first_invalid_utf8(text) == text.size(), "a plain text that is not UTF-8");
    }
  });
  wiki.plain(input);
  fuzz::require(wiki.work() <= 200 * (size + 1), "more work than a multiple of the text");
  return 0;
}
