#include "data/cleaning/xml_reader.h"

#include <algorithm>

#include "base/core/error.h"
#include "base/text/utf8.h"

namespace megatron {

namespace {

constexpr std::size_t kMostTagBytes = std::size_t{64} << 10, kMostDepth = 64, kMostEntityBytes = 12;
constexpr std::size_t kTextPiece = std::size_t{64} << 10;
constexpr std::size_t kMostSkipped = std::size_t{1} << 20;  // a comment or an instruction

bool is_xml_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_name(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ':' || c == '_' ||
         c == '-' || c == '.' || byte >= 0x80;
}

}  // namespace

XmlReader::XmlReader(std::string name, More more) : name_(std::move(name)), more_(std::move(more)) {
  if (starts_with("\xEF\xBB\xBF")) advance(3);
}

void XmlReader::refuse(const std::string& what) const {
  fail(ErrorKind::data, "{}: byte {} (line {}): {}", name_, position(), line_, what);
}

/// Whether that many bytes are left; they are then in the window.
bool XmlReader::has(std::size_t bytes) {
  while (window_.size() - at_ < bytes && !ended_) {
    if (at_ > kTextPiece) {
      window_begin_ += at_;
      window_.erase(0, at_);
      at_ = 0;
    }
    ended_ = !more_(window_);
  }
  return window_.size() - at_ >= bytes;
}

void XmlReader::advance(std::size_t bytes) {
  const auto from = window_.begin() + static_cast<std::ptrdiff_t>(at_);
  line_ += static_cast<std::uint64_t>(std::count(from, from + static_cast<std::ptrdiff_t>(bytes), '\n'));
  at_ += bytes;
}

bool XmlReader::starts_with(std::string_view text) {
  return has(text.size()) && std::string_view(window_).substr(at_, text.size()) == text;
}

/// Bytes before the next `end`, which must come within `most` bytes.
std::size_t XmlReader::find(std::string_view end, std::size_t most) {
  std::size_t searched = 0;
  for (std::size_t wanted = 256;; wanted *= 2) {
    const bool all = !has(std::min(wanted, most));
    const std::size_t found = std::string_view(window_).substr(at_, std::min(wanted, most)).find(end, searched);
    if (found != std::string_view::npos) return found;
    if (all) refuse("the file ends within a tag or comment; it is incomplete");
    if (wanted >= most) refuse(fmt::format("a tag or comment of more than {} bytes", most));
    searched = wanted - std::min(wanted, end.size());
  }
}

void XmlReader::append(std::string_view part, std::string* text, std::size_t most_bytes) const {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 && !is_xml_space(c); };
  if (std::any_of(part.begin(), part.end(), is_control)) refuse("a control character, which XML does not have");
  if (text == nullptr) return;
  if (part.size() > most_bytes - std::min(most_bytes, text->size()))
    refuse(fmt::format("a text of more than {} bytes", most_bytes));
  text->append(part);
}

void XmlReader::read_entity(std::string& text) {
  has(kMostEntityBytes);
  const std::string_view rest = std::string_view(window_).substr(at_, kMostEntityBytes);
  const std::size_t end = rest.find(';');
  if (end == rest.npos) refuse("'&' does not begin an entity");
  const std::string_view name = rest.substr(1, end - 1);
  constexpr std::pair<std::string_view, char> kKnown[] = {
      {"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
  if (name.starts_with('#')) {
    const bool hex = name.starts_with("#x");
    std::uint32_t value = 0;
    const std::string_view digits = name.substr(hex ? 2 : 1);
    for (const char c : digits) {
      const auto letter = static_cast<unsigned>((c | 0x20) - 'a');
      const bool digit = c >= '0' && c <= '9';
      if (!digit && !(hex && letter < 6)) refuse("a malformed numeric character reference");
      value = std::min<std::uint32_t>(value * (hex ? 16 : 10) + (digit ? static_cast<unsigned>(c - '0') : letter + 10),
                                      0x110000);
    }
    const bool control = value < 0x20 && value != '\t' && value != '\n' && value != '\r';
    if (digits.empty() || control || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      refuse("a reference to a character that XML does not have");
    append_utf8(text, value);
  } else {
    const auto known =
        std::find_if(std::begin(kKnown), std::end(kKnown), [&](const auto& row) { return row.first == name; });
    if (known == std::end(kKnown)) refuse("an entity that XML does not define");
    text.push_back(known->second);
  }
  at_ += end + 1;
}

/// Text up to the next '<'.
void XmlReader::read_text(std::string* text, std::size_t most_bytes) {
  std::string entity;
  while (has(1) && window_[at_] != '<') {
    if (window_[at_] == '&') {
      entity.clear();
      read_entity(entity);
      append(entity, text, most_bytes);
      continue;
    }
    const std::string_view piece = std::string_view(window_).substr(at_, kTextPiece);
    const std::string_view part = piece.substr(0, piece.find_first_of("<&"));
    append(part, text, most_bytes);
    advance(part.size());
  }
}

/// Skips a comment, an instruction, or takes over a CDATA section, if one is there.
bool XmlReader::skip_non_tag(std::string* text, std::size_t most_bytes) {
  constexpr std::string_view kCdata = "<![CDATA[";
  if (starts_with("<!--")) {
    advance(4);
    advance(find("-->", kMostSkipped) + 3);
  } else if (starts_with("<?")) {
    advance(find("?>", kMostSkipped) + 2);
  } else if (starts_with(kCdata)) {
    advance(kCdata.size());
    const std::size_t bytes = find("]]>", std::min(most_bytes, kMostSkipped << 6));
    append(std::string_view(window_).substr(at_, bytes), text, most_bytes);
    advance(bytes + 3);
  } else if (starts_with("<!")) {
    refuse("a document type, which could define entities; a dump of MediaWiki has none");
  } else {
    return false;
  }
  return true;
}

void XmlReader::read_attributes(std::string_view tag) {
  attributes_.clear();
  while (!tag.empty()) {
    const auto take_while = [&](const auto& test) {
      const auto end = std::find_if_not(tag.begin(), tag.end(), test);
      const std::string_view taken = tag.substr(0, static_cast<std::size_t>(end - tag.begin()));
      tag.remove_prefix(taken.size());
      return taken;
    };
    take_while(is_xml_space);
    if (tag.empty()) break;
    const std::string_view name = take_while(is_name);
    take_while(is_xml_space);
    if (name.empty() || !tag.starts_with('=')) refuse("an attribute without a name or a value");
    tag.remove_prefix(1);
    take_while(is_xml_space);
    const char quote = tag.empty() ? '\0' : tag.front();
    const std::size_t end = quote == '"' || quote == '\'' ? tag.find(quote, 1) : tag.npos;
    if (end == tag.npos) refuse("an attribute's value without quotation marks");
    attributes_.emplace_back(name, tag.substr(1, end - 1));
    tag.remove_prefix(end + 1);
  }
}

XmlReader::Event XmlReader::read_tag() {
  const std::size_t bytes = find(">", kMostTagBytes);
  std::string_view tag = std::string_view(window_).substr(at_ + 1, bytes - 1);
  const bool ends = tag.starts_with('/');
  if (ends) tag.remove_prefix(1);
  empty_tag_ = !ends && tag.ends_with('/');
  if (empty_tag_) tag.remove_suffix(1);
  const std::string_view name =
      tag.substr(0, static_cast<std::size_t>(std::find_if_not(tag.begin(), tag.end(), is_name) - tag.begin()));
  if (name.empty()) refuse("'<' begins no tag");
  if (first_invalid_utf8(tag) != tag.size()) refuse("a tag that is not UTF-8");
  tag_ = name;
  tag.remove_prefix(name.size());
  if (ends) {
    if (!std::all_of(tag.begin(), tag.end(), is_xml_space)) refuse(fmt::format("</{}> with attributes", tag_));
    if (open_.empty() || open_.back() != tag_) {
      refuse(fmt::format("</{}> where {} is open", tag_, open_.empty() ? "nothing" : "<" + open_.back() + ">"));
    }
    open_.pop_back();
  } else {
    read_attributes(tag);
    if (open_.size() == kMostDepth) refuse(fmt::format("more than {} tags within each other", kMostDepth));
    open_.push_back(tag_);
  }
  advance(bytes + 1);
  return ends ? Event::end : Event::start;
}

XmlReader::Event XmlReader::next(std::string* text, std::size_t most_bytes) {
  if (empty_tag_) {
    empty_tag_ = false;
    open_.pop_back();
    return Event::end;
  }
  while (true) {
    read_text(text, most_bytes);
    if (!has(1)) {
      if (!open_.empty()) refuse(fmt::format("the file ends within <{}>; it is incomplete", open_.back()));
      return Event::end_of_file;
    }
    if (!skip_non_tag(text, most_bytes)) return read_tag();
  }
}

std::string_view XmlReader::attribute(std::string_view name) const {
  const auto found =
      std::find_if(attributes_.begin(), attributes_.end(), [&](const auto& row) { return row.first == name; });
  return found == attributes_.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace megatron
