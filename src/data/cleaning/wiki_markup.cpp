#include "data/cleaning/wiki_markup.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "data/cleaning/ascii.h"

namespace megatron {

namespace {

/// Fate of a tag, or of it and what it holds.
enum class TagUse : std::uint8_t { dropped, literal, line, stripped };
struct TagRow {
  std::string_view name;
  TagUse use;
};
constexpr TagRow kTags[] = {{"ce", TagUse::dropped},
                            {"chem", TagUse::dropped},
                            {"gallery", TagUse::dropped},
                            {"graph", TagUse::dropped},
                            {"hiero", TagUse::dropped},
                            {"imagemap", TagUse::dropped},
                            {"includeonly", TagUse::dropped},
                            {"indicator", TagUse::dropped},
                            {"inputbox", TagUse::dropped},
                            {"mapframe", TagUse::dropped},
                            {"maplink", TagUse::dropped},
                            {"math", TagUse::dropped},
                            {"ref", TagUse::dropped},
                            {"references", TagUse::dropped},
                            {"score", TagUse::dropped},
                            {"script", TagUse::dropped},
                            {"style", TagUse::dropped},
                            {"table", TagUse::dropped},
                            {"templatedata", TagUse::dropped},
                            {"templatestyles", TagUse::dropped},
                            {"timeline", TagUse::dropped},
                            {"nowiki", TagUse::literal},
                            {"pre", TagUse::literal},
                            {"source", TagUse::literal},
                            {"syntaxhighlight", TagUse::literal},
                            {"blockquote", TagUse::line},
                            {"br", TagUse::line},
                            {"center", TagUse::line},
                            {"dd", TagUse::line},
                            {"div", TagUse::line},
                            {"dl", TagUse::line},
                            {"dt", TagUse::line},
                            {"hr", TagUse::line},
                            {"li", TagUse::line},
                            {"ol", TagUse::line},
                            {"p", TagUse::line},
                            {"poem", TagUse::line},
                            {"ul", TagUse::line},
                            {"abbr", TagUse::stripped},
                            {"b", TagUse::stripped},
                            {"bdi", TagUse::stripped},
                            {"bdo", TagUse::stripped},
                            {"big", TagUse::stripped},
                            {"cite", TagUse::stripped},
                            {"code", TagUse::stripped},
                            {"data", TagUse::stripped},
                            {"del", TagUse::stripped},
                            {"dfn", TagUse::stripped},
                            {"em", TagUse::stripped},
                            {"font", TagUse::stripped},
                            {"h1", TagUse::stripped},
                            {"h2", TagUse::stripped},
                            {"h3", TagUse::stripped},
                            {"h4", TagUse::stripped},
                            {"h5", TagUse::stripped},
                            {"h6", TagUse::stripped},
                            {"i", TagUse::stripped},
                            {"ins", TagUse::stripped},
                            {"kbd", TagUse::stripped},
                            {"mark", TagUse::stripped},
                            {"noinclude", TagUse::stripped},
                            {"onlyinclude", TagUse::stripped},
                            {"q", TagUse::stripped},
                            {"rb", TagUse::stripped},
                            {"rp", TagUse::stripped},
                            {"rt", TagUse::stripped},
                            {"ruby", TagUse::stripped},
                            {"s", TagUse::stripped},
                            {"samp", TagUse::stripped},
                            {"section", TagUse::stripped},
                            {"small", TagUse::stripped},
                            {"span", TagUse::stripped},
                            {"strike", TagUse::stripped},
                            {"strong", TagUse::stripped},
                            {"sub", TagUse::stripped},
                            {"sup", TagUse::stripped},
                            {"time", TagUse::stripped},
                            {"tt", TagUse::stripped},
                            {"u", TagUse::stripped},
                            {"var", TagUse::stripped},
                            {"wbr", TagUse::stripped}};
constexpr std::size_t kLongestTagName = 15;

bool is_tag_space(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}

class TagStripper {
 public:
  TagStripper(std::string_view text, std::uint64_t& work) : text_(text), work_(work) { out_.reserve(text.size()); }

  std::string run() {
    while (at_ < text_.size()) {
      const std::size_t plain = std::min(text_.find('<', at_), text_.size());
      work_ += plain - at_ + 1;
      for (; at_ < plain; ++at_) put(text_[at_]);
      if (at_ < text_.size() && !comment() && !tag()) put(text_[at_++]);
    }
    return std::move(out_);
  }

 private:
  void put(char c) {
    const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t';
    if (!control) out_.push_back(c);
  }

  /// A comment ends at "-->" or with the text. One that has a line for itself takes the line with it.
  bool comment() {
    if (!text_.substr(at_).starts_with("<!--")) return false;
    const std::size_t found = text_.find("-->", at_ + 4), end = found == text_.npos ? text_.size() : found + 3;
    work_ += end - at_;
    at_ = end;
    if ((out_.empty() || out_.back() == '\n') && at_ < text_.size() && text_[at_] == '\n') ++at_;
    return true;
  }

  /// The place after </name ...> from `from` on, and where it begins; npos if there is none.
  std::pair<std::size_t, std::size_t> closing(std::size_t from, std::string_view name) {
    for (std::size_t at = text_.find("</", from); at != text_.npos; at = text_.find("</", at + 2)) {
      const std::string_view found = text_.substr(at + 2, name.size());
      if (!std::equal(found.begin(), found.end(), name.begin(), name.end(),
                      [](char a, char b) { return ascii_lower(a) == b; }))
        continue;
      std::size_t end = at + 2 + name.size();
      while (end < text_.size() && is_tag_space(text_[end])) ++end;
      if (end < text_.size() && text_[end] == '>') return {at, end + 1};
    }
    return {text_.npos, text_.npos};
  }

  bool tag() {
    const bool closes = at_ + 1 < text_.size() && text_[at_ + 1] == '/';
    const std::size_t begin = at_ + (closes ? 2 : 1);
    std::size_t end = begin;
    char name[kLongestTagName];
    while (end < text_.size() && end - begin < kLongestTagName &&
           (is_ascii_letter(text_[end]) || (text_[end] >= '1' && text_[end] <= '6'))) {
      name[end - begin] = ascii_lower(text_[end]);
      ++end;
    }
    const std::string_view wanted(name, end - begin);
    const auto row =
        std::find_if(std::begin(kTags), std::end(kTags), [&](const TagRow& of) { return of.name == wanted; });
    if (row == std::end(kTags)) return false;
    const std::size_t close = text_.find_first_of("<>", end);
    work_ += std::min(close, text_.size()) - at_;
    if (close == text_.npos || text_[close] == '<' ||
        !(is_tag_space(text_[end]) || text_[end] == '/' || text_[end] == '>'))
      return false;
    const bool empty = text_[close - 1] == '/';
    at_ = close + 1;
    bool& unclosed = unclosed_[static_cast<std::size_t>(row - std::begin(kTags))];
    const bool holds = !closes && !empty && !unclosed && (row->use == TagUse::dropped || row->use == TagUse::literal);
    if (row->use == TagUse::line) put('\n');
    if (!holds) return true;
    const auto [content_end, after] = closing(at_, row->name);
    work_ += std::min(after, text_.size()) - at_;
    unclosed = after == text_.npos;  // then none of this name is closed from here on
    if (unclosed) return true;
    if (row->use == TagUse::literal) put_literal(text_.substr(at_, content_end - at_));
    at_ = after;
    return true;
  }

  void put_literal(std::string_view content) {
    constexpr std::string_view kMarkup = "[]{}|'=*#:;<_-!";
    for (const char c : content) {
      if (kMarkup.find(c) != kMarkup.npos) out_.push_back(kLiteral);
      put(c);
    }
  }

  std::string_view text_;
  std::uint64_t& work_;
  std::string out_;
  std::size_t at_ = 0;
  std::array<bool, std::size(kTags)> unclosed_{};
};

class BracketMatcher {
 public:
  BracketMatcher(std::string_view text, std::uint64_t& work) : text_(text), work_(work) {}

  std::vector<Bracket> run() {
    bool line_begins = true;  // nothing but spaces and ':' so far
    while (at_ < text_.size()) {
      ++work_;
      const char c = text_[at_];
      const std::size_t before = at_;
      if (c == kLiteral)
        at_ += 2;
      else if (c == '{')
        open_braces(line_begins);
      else if (c == '}')
        close_braces();
      else if (c == '[')
        open_squares();
      else if (c == ']')
        close_squares();
      else if (c == '|' && line_begins)
        close_table();
      else
        ++at_;
      work_ += at_ - before;
      if (c == '\n') {
        while (!open_.empty() && top().kind == BracketKind::external) pop();
      }
      line_begins = c == '\n' || (line_begins && (c == ' ' || c == '\t' || c == ':'));
    }
    return std::move(brackets_);
  }

 private:
  Bracket& top() { return brackets_[open_.back()]; }
  std::size_t& open_of(BracketKind kind) { return open_of_[static_cast<std::size_t>(kind)]; }
  std::size_t run_of(char c) const { return std::min(text_.find_first_not_of(c, at_), text_.size()) - at_; }
  bool next_is(std::size_t offset, char c) const { return at_ + offset < text_.size() && text_[at_ + offset] == c; }

  void push(BracketKind kind, std::size_t width) {
    open_.push_back(brackets_.size());
    ++open_of(kind);
    brackets_.push_back({kind, false, static_cast<std::uint8_t>(width), 0, at_, 0});
    at_ += width;
  }
  void pop() {
    --open_of(top().kind);
    open_.pop_back();
    ++work_;
  }
  /// Closes the innermost bracket of this kind, of which one is open; those within it stay open for ever.
  void close(BracketKind kind, std::size_t width) {
    while (top().kind != kind) pop();
    top().closed = true;
    top().end = at_;
    top().end_width = static_cast<std::uint8_t>(width);
    pop();
    at_ += width;
  }

  /// Two by two; the first of an odd number has three, as parameters of templates do.
  void open_braces(bool line_begins) {
    std::size_t run = run_of('{');
    if (run == 1 && line_begins && next_is(1, '|')) return push(BracketKind::table, 2);
    if (run == 1) ++at_;
    for (; run > 1; run -= run % 2 == 1 ? 3 : 2) push(BracketKind::template_, run % 2 == 1 ? 3 : 2);
  }
  void close_braces() {
    std::size_t run = run_of('}');
    while (run > 1 && open_of(BracketKind::template_) > 0) {
      while (top().kind != BracketKind::template_) pop();
      const std::size_t width = std::min<std::size_t>(top().width, run);
      close(BracketKind::template_, width);
      run -= width;
    }
    at_ += run;
  }
  void close_table() {
    const bool closes = next_is(1, '}') && open_of(BracketKind::table) > 0;
    if (!closes || (next_is(2, '}') && top().kind != BracketKind::table)) {
      ++at_;
    } else {
      close(BracketKind::table, 2);
    }
  }
  void open_squares() {
    std::size_t run = run_of('[');
    if (run % 2 == 1) {
      const std::string_view rest = text_.substr(at_ + 1, 8);
      const bool external =
          run == 1 && (rest.starts_with("http://") || rest.starts_with("https://") || rest.starts_with("//") ||
                       rest.starts_with("ftp://") || rest.starts_with("mailto:"));
      if (external) return push(BracketKind::external, 1);
      ++at_;
    }
    for (; run > 1; run -= 2) push(BracketKind::link, 2);
  }
  void close_squares() {
    std::size_t run = run_of(']');
    while (run > 0) {
      const bool link = run > 1 && open_of(BracketKind::link) > 0, external = open_of(BracketKind::external) > 0;
      if (external && (top().kind == BracketKind::external || !link)) {
        close(BracketKind::external, 1);
        run -= 1;
      } else if (link) {
        close(BracketKind::link, 2);
        run -= 2;
      } else {
        break;
      }
    }
    at_ += run;
  }

  std::string_view text_;
  std::uint64_t& work_;
  std::size_t at_ = 0;
  std::vector<Bracket> brackets_;
  std::vector<std::size_t> open_;
  std::array<std::size_t, 4> open_of_{};
};

}  // namespace

std::string without_tags(std::string_view wiki, std::uint64_t& work) {
  return TagStripper(wiki, work).run();
}

std::vector<Bracket> brackets_of(std::string_view text, std::uint64_t& work) {
  return BracketMatcher(text, work).run();
}

}  // namespace megatron
