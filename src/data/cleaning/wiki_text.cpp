#include "data/cleaning/wiki_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data/cleaning/html_entities.h"
#include "data/cleaning/wiki_markup.h"

namespace megatron {

namespace {

constexpr std::size_t kLevels = 6;  // heading levels
constexpr char kDropped = '\x02';   // in a line, where a template was

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}
std::string_view without_outer_blanks(std::string_view text) {
  while (!text.empty() && (is_blank(text.front()) || text.front() == '\n')) text.remove_prefix(1);
  while (!text.empty() && (is_blank(text.back()) || text.back() == '\n')) text.remove_suffix(1);
  return text;
}
bool same_name(std::string_view a, std::string_view b) {
  const auto folded = [](char c) { return c == '_' ? ' ' : c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return folded(x) == folded(y); });
}
/// As "de" in [[de:Baum]]: a link to the same page in another language.
bool is_language_prefix(std::string_view prefix) {
  const std::size_t letters = std::min(prefix.find('-'), prefix.size());
  const bool code =
      std::all_of(prefix.begin(), prefix.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '-'; });
  return code && letters >= 2 && letters <= 3 && prefix.size() <= 12;
}

/// Appends the line with single spaces, and without brackets that held nothing but templates.
void append_tidy(std::string_view line, std::string& out) {
  constexpr std::string_view kLeft = ",;:)";
  const std::size_t begin = out.size();
  bool dropped = false;  // a template, since the last character
  for (std::size_t at = 0; at < line.size(); ++at) {
    const char c = line[at];
    const bool at_begin = out.size() == begin, after_open = !at_begin && out.back() == '(';
    if (c == kDropped) {
      dropped = true;
    } else if (is_blank(c)) {
      if (!at_begin && !after_open && out.back() != ' ') out.push_back(' ');
    } else if (!(after_open && dropped && kLeft.find(c) != kLeft.npos)) {
      out.push_back(c);
      dropped = false;
    } else if (c == ')') {
      out.pop_back();
    }
  }
  while (out.size() > begin && out.back() == ' ') out.pop_back();
}

struct Line {
  std::string text;
  std::size_t level = 0;  ///< heading level; 0: none
};

/// Joins lines: no heading without a text, no two empty lines in a row.
std::string joined(const std::vector<Line>& lines) {
  std::vector<bool> kept(lines.size(), true);
  std::array<bool, kLevels + 1> has_text{};  // since the last heading of this level or above it
  for (std::size_t i = lines.size(); i-- > 0;) {
    const Line& line = lines[i];
    if (line.level == 0) {
      if (!line.text.empty()) has_text.fill(true);
      continue;
    }
    kept[i] = has_text[line.level] && !line.text.empty();
    std::fill(has_text.begin() + static_cast<std::ptrdiff_t>(line.level), has_text.end(), false);
  }
  std::string out;
  bool empty_line = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!kept[i] || lines[i].text.empty()) {
      empty_line = true;
      continue;
    }
    if (!out.empty()) out += empty_line || lines[i].level > 0 ? "\n\n" : "\n";
    out += lines[i].text;
    empty_line = lines[i].level > 0;
  }
  return out;
}

class Writer {
 public:
  Writer(std::string_view text, const std::vector<std::string>& hidden, std::uint64_t& work)
      : text_(text), hidden_(hidden), work_(work), brackets_(brackets_of(text, work)) {}

  std::string run() {
    bool line_begins = true;
    while (at_ < text_.size()) {
      ++work_;
      if (line_begins) {
        line_begins = begin_line();
        continue;
      }
      while (!ends_.empty() && ends_.back().first < at_) ends_.pop_back();  // within what was dropped
      if (!ends_.empty() && at_ == ends_.back().first) {
        at_ += ends_.back().second;
        ends_.pop_back();
      } else if (!bracket()) {
        line_begins = text_[at_] == '\n';
        character();
      }
    }
    end_line();
    return joined(lines_);
  }

 private:
  void end_line() {
    Line line;
    line.level = level_;
    append_tidy(line_, line.text);
    const auto is_empty = [](const Line& one) { return one.text.empty() && one.level == 0; };
    if (lines_.empty() || !is_empty(lines_.back()) || !is_empty(line)) lines_.push_back(std::move(line));
    line_.clear();
    level_ = 0;
  }

  /// Markup at the beginning of a line: headings, lists, rulers. Rows of tables that are left open are dropped; then
  /// another line begins.
  bool begin_line() {
    const char c = text_[at_];
    if (c == '|') {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size() - 1) + 1;
      work_ += end - at_;
      at_ = end;
      return true;
    }
    if (c == '=') {
      heading();
      return false;
    }
    constexpr std::string_view kLists = "*#:;";
    const std::size_t lists = std::min(text_.find_first_not_of(kLists, at_), text_.size()) - at_;
    work_ += lists;
    at_ += lists;
    if (c == '-' && text_.substr(at_).starts_with("----"))
      at_ = std::min(text_.find_first_not_of('-', at_), text_.size());
    return false;
  }

  void heading() {
    const std::size_t line_end = std::min(text_.find('\n', at_), text_.size());
    work_ += line_end - at_;
    std::string_view line = text_.substr(at_, line_end - at_);
    while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
    const std::size_t before = std::min(line.find_first_not_of('='), line.size());
    const std::size_t after = before == line.size() ? 0 : line.size() - 1 - line.find_last_not_of('=');
    const std::size_t level = std::min({before, after, kLevels});
    if (level == 0) {
      line_ += '=';
      ++at_;
      return;
    }
    level_ = level;
    heading_end_ = at_ + line.size() - level;
    at_ += level;
  }

  /// Handles an opening bracket; false if none is here.
  bool bracket() {
    while (next_ < brackets_.size() && brackets_[next_].begin < at_) ++next_, ++work_;
    if (next_ == brackets_.size() || brackets_[next_].begin != at_) return false;
    const Bracket& here = brackets_[next_];
    if (!here.closed) {
      if (here.kind == BracketKind::external) line_ += '[';
      at_ += here.width;
    } else if (here.kind == BracketKind::link)
      link(here);
    else if (here.kind == BracketKind::external)
      external(here);
    else
      line_ += kDropped, at_ = here.end + here.end_width;
    return true;
  }

  /// Where the target of a link ends: at its first '|', a link within it or its own end. Templates are passed over.
  std::size_t target_end(const Bracket& of) {
    std::size_t at = of.begin + of.width, inner = next_ + 1;
    while (at < of.end && text_[at] != '|') {
      ++work_;
      while (inner < brackets_.size() && brackets_[inner].begin < at) ++inner, ++work_;
      const bool opens = inner < brackets_.size() && brackets_[inner].begin == at;
      const BracketKind kind = opens ? brackets_[inner].kind : BracketKind::external;
      if (kind == BracketKind::link) break;
      const bool dropped = kind != BracketKind::external && brackets_[inner].closed;
      at = dropped ? brackets_[inner].end + brackets_[inner].end_width : at + (text_[at] == kLiteral ? 2 : 1);
    }
    return std::min(at, of.end);
  }

  void link(const Bracket& of) {
    const std::size_t begin = of.begin + of.width, stop = target_end(of);
    const std::size_t end = text_[stop] == '|' ? stop : of.end;
    std::string_view target = without_outer_blanks(text_.substr(begin, stop - begin));
    work_ += target.size();
    const bool shown = target.starts_with(':');  // as a link to a category, and not as one of its members
    if (shown) target.remove_prefix(1);
    const std::size_t colon = target.find(':');
    const std::string_view prefix =
        colon == target.npos ? std::string_view() : without_outer_blanks(target.substr(0, colon));
    const auto is_prefix = [&](const std::string& name) { return same_name(name, prefix); };
    const bool hidden =
        std::any_of(hidden_.begin(), hidden_.end(), is_prefix) || (end == of.end && is_language_prefix(prefix));
    if (hidden && !shown && !prefix.empty()) {
      at_ = of.end + of.end_width;
      return;
    }
    ends_.emplace_back(of.end, of.end_width);
    at_ = end == of.end ? begin : end + 1;
    if (end == of.end && shown) at_ = text_.find(':', at_) + 1;
    if (end + 1 == of.end) {  // [[Tree (graph)|]] is Tree
      target = target.substr(colon == target.npos ? 0 : colon + 1);
      for (const char c : without_outer_blanks(target.substr(0, target.find(" (")))) {
        if (c != kLiteral) line_.push_back(c);
      }
    }
  }

  /// [address text] is the text, [address] nothing.
  void external(const Bracket& of) {
    const std::string_view inside = text_.substr(of.begin, of.end - of.begin);
    const std::size_t space = of.begin + std::min(inside.find_first_of(" \t"), inside.size());
    work_ += space - of.begin;
    ends_.emplace_back(of.end, of.end_width);
    at_ = space;
  }

  void character() {
    const char c = text_[at_];
    if (c == kLiteral && at_ + 1 < text_.size()) {
      line_.push_back(text_[at_ + 1]);
      at_ += 2;
    } else if (c == '\n') {
      end_line();
      ++at_;
    } else if (c == '=' && at_ == heading_end_) {
      at_ += level_;
    } else if (c == '\'' || c == ']' || c == '}') {
      quotes(c);
    } else if (c == '&') {
      entity();
    } else if (c == '_' && text_.substr(at_).starts_with("__")) {
      magic_word();
    } else {
      line_.push_back(c);
      ++at_;
    }
  }

  /// Runs of two apostrophes or more are italic or bold; of closing brackets, left over.
  void quotes(char c) {
    const std::size_t run = std::min(text_.find_first_not_of(c, at_), text_.size()) - at_;
    work_ += run;
    at_ += run;
    if (run == 1 || (c == '\'' && run == 4)) line_.push_back(c);
    if (c == '\'' && run > 5) line_.append(run - 5, c);
  }

  void entity() {
    const EntityMatch match = first_entity(text_.substr(at_, kLongestEntity));
    if (match.bytes == 0) {
      line_.push_back(text_[at_++]);
      return;
    }
    constexpr std::string_view kNonBreaking = "\u00A0";
    if (match.text == kNonBreaking || match.text == "\n")
      line_.push_back(' ');
    else
      line_ += match.text;
    at_ += match.bytes;
  }

  /// __NOTOC__ and the like.
  void magic_word() {
    constexpr std::size_t kLongest = 24;
    std::size_t end = at_ + 2;
    while (end < text_.size() && end - at_ < kLongest && text_[end] >= 'A' && text_[end] <= 'Z') ++end;
    if (end > at_ + 2 && text_.substr(end).starts_with("__")) {
      at_ = end + 2;
    } else {
      line_ += "__";
      at_ += 2;
    }
  }

  std::string_view text_;
  const std::vector<std::string>& hidden_;
  std::uint64_t& work_;
  const std::vector<Bracket> brackets_;
  std::size_t next_ = 0;  // among the brackets
  std::size_t at_ = 0, heading_end_ = std::string_view::npos, level_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>> ends_;  // ends of links that are being written, and their widths
  std::string line_;
  std::vector<Line> lines_;
};

}  // namespace

WikiText::WikiText(std::vector<std::string> hidden_namespaces) : hidden_(std::move(hidden_namespaces)) {}

std::string WikiText::plain(std::string_view wiki) {
  const std::string text = without_tags(wiki, work_);
  return Writer(text, hidden_, work_).run();
}

}  // namespace megatron
