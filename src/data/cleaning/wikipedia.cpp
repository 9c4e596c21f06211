#include "data/cleaning/wikipedia.h"

#include <fmt/format.h>

#include <utility>

#include "base/text/utf8.h"

namespace megatron {

namespace {

constexpr std::size_t kMostTitleBytes = 4096, kMostNumberBytes = 32;
using Event = XmlReader::Event;

/// Whether the text is that of a redirect in dumps that do not mark them.
bool is_redirect(std::string_view text) {
  constexpr std::string_view kWord = "#redirect";
  if (text.size() < kWord.size()) return false;
  for (std::size_t i = 0; i < kWord.size(); ++i) {
    if ((i == 0 ? text[i] : text[i] | 0x20) != kWord[i]) return false;
  }
  return true;
}

}  // namespace

WikipediaDump::WikipediaDump(std::string name, XmlReader::More more, std::size_t most_page_bytes)
    : xml_(std::move(name), std::move(more)),
      most_page_bytes_(most_page_bytes),
      hidden_{"File", "Image", "Media", "Category"} {}

/// Remembers the name of a namespace whose links stand for no text. Its start was read last.
void WikipediaDump::read_namespace() {
  const std::string key(xml_.attribute("key"));
  std::string name;
  if (xml_.next(&name, kMostTitleBytes) != Event::end) xml_.refuse("<namespace> holds tags");
  constexpr std::string_view kMedia = "-2", kFile = "6", kCategory = "14";
  if ((key == kMedia || key == kFile || key == kCategory) && !name.empty()) hidden_.push_back(std::move(name));
}

/// Reads a page, whose start was read last; whether it is an article.
bool WikipediaDump::read_page(WikipediaPage& page) {
  const std::size_t depth = xml_.depth();
  page = {};
  std::string space, before;
  bool redirect = false, other = false;
  while (true) {
    const Event event = xml_.next();
    if (event == Event::end && xml_.depth() < depth) break;
    if (event == Event::end) continue;
    if (event == Event::end_of_file) xml_.refuse("the file ends within a page; it is incomplete");
    std::string* to = nullptr;
    std::size_t most = kMostNumberBytes;
    const bool in_page = xml_.depth() == depth + 1;
    if (in_page && xml_.tag() == "title") to = &page.title, most = kMostTitleBytes;
    if (in_page && xml_.tag() == "ns") to = &space;
    if (in_page && xml_.tag() == "id") to = &page.id;
    if (in_page && xml_.tag() == "redirect") redirect = true;
    if (!in_page && xml_.tag() == "text" && !redirect && !other) to = &page.text, most = most_page_bytes_;
    if (to == nullptr) continue;
    to->clear();
    if (xml_.next(to, most) != Event::end) xml_.refuse("text with tags in it");
    other = !space.empty() && space != "0";
  }
  ++pages_;
  if (!redirect && !other) redirect = is_redirect(page.text);
  if (other)
    ++others_;
  else if (redirect)
    ++redirects_;
  if (other || redirect) return false;
  if (page.title.empty()) xml_.refuse("a page without a title");
  for (const std::string* part : {&page.title, &page.text}) {
    if (first_invalid_utf8(*part) != part->size()) xml_.refuse(fmt::format("the page '{}' is not UTF-8", page.id));
  }
  return true;
}

bool WikipediaDump::next(WikipediaPage& page) {
  while (true) {
    const Event event = xml_.next();
    if (event == Event::end_of_file) {
      if (!begun_) xml_.refuse("no <mediawiki>: not a dump of MediaWiki");
      return false;
    }
    if (event == Event::end) continue;
    if (!begun_) {
      if (xml_.tag() != "mediawiki")
        xml_.refuse(fmt::format("<{}> where a dump of MediaWiki begins with <mediawiki>", xml_.tag()));
      begun_ = true;
    } else if (xml_.tag() == "namespace") {
      read_namespace();
    } else if (xml_.tag() == "base") {
      if (xml_.next(&base_, kMostTitleBytes) != Event::end) xml_.refuse("<base> holds tags");
    } else if (xml_.tag() == "page" && read_page(page)) {
      return true;
    }
  }
}

}  // namespace megatron
