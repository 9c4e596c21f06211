#include "data/cleaning/url_rules.h"

#include <algorithm>

#include "base/text/utf8.h"
#include "data/cleaning/ascii.h"

namespace megatron {

namespace {

void assign_lower(std::string& to, std::string_view from) {
  to.assign(from);
  for (char& c : to) c = ascii_lower(c);
}

bool is_unicode_space(std::uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool has_space(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = first_code_point(text.substr(i));
    if (is_unicode_space(c.value)) return true;
    i += std::max<std::uint32_t>(c.bytes, 1);
  }
  return false;
}

/// Takes the last label off a host: what is behind the last dot.
std::string_view take_last_label(std::string_view& host) {
  const std::size_t dot = host.rfind('.');
  const std::string_view label = host.substr(dot == std::string_view::npos ? 0 : dot + 1);
  host = host.substr(0, dot == std::string_view::npos ? 0 : dot);
  return label;
}

bool is_address(std::string_view host) {
  int numbers = 0;
  while (!host.empty()) {
    const std::string_view label = take_last_label(host);
    if (label.empty() || label.size() > 3 || !std::all_of(label.begin(), label.end(), is_ascii_digit)) return false;
    ++numbers;
  }
  return numbers == 4;
}

bool is_label(std::string_view label) {
  constexpr std::size_t kLongestLabel = 63;
  return !label.empty() && label.size() <= kLongestLabel && label.front() != '-' && label.back() != '-' &&
         std::all_of(label.begin(), label.end(),
                     [](char c) { return is_ascii_letter(c) || is_ascii_digit(c) || c == '-'; });
}

/// Labels with dots between them, of which the last has two characters at least; a dot may follow.
bool is_host_name(std::string_view host) {
  if (host.ends_with('.')) host.remove_suffix(1);
  const std::string_view top = take_last_label(host);
  const auto belongs = [](char c) { return is_ascii_letter(c) || is_ascii_digit(c) || c == '-'; };
  if (top.size() < 2 || !std::all_of(top.begin(), top.end(), belongs) || host.empty()) return false;
  while (!host.empty()) {
    const bool more = host.find('.') != std::string_view::npos;
    if (!is_label(take_last_label(host)) || (more && host.empty())) return false;
  }
  return true;
}

}  // namespace

std::string_view host_of(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  const std::size_t user = url.rfind('@');
  if (user != std::string_view::npos) url.remove_prefix(user + 1);
  return url.substr(0, url.find(':'));
}

std::string_view registered_name(std::string_view host) {
  constexpr std::string_view kSecondLevels[] = {"ac", "co",  "com", "edu", "go",  "gob", "gouv", "gov", "id", "ltd",
                                                "me", "mil", "ne",  "net", "nom", "or",  "org",  "plc", "sch"};
  if (host.ends_with('.')) host.remove_suffix(1);
  if (is_address(host)) return {};
  std::string_view rest = host;
  const std::string_view top = take_last_label(rest);
  if (rest.empty()) return top;
  std::string_view above = rest;
  const std::string_view second = take_last_label(above);
  const bool second_level =
      top.size() == 2 && !above.empty() &&
      std::find(std::begin(kSecondLevels), std::end(kSecondLevels), second) != std::end(kSecondLevels);
  return second_level ? take_last_label(above) : second;
}

bool is_well_formed_url(std::string_view url) {
  const auto take = [&](std::string_view word) {
    const bool there =
        url.size() >= word.size() &&
        std::equal(word.begin(), word.end(), url.begin(), [](char wanted, char c) { return wanted == ascii_lower(c); });
    if (there) url.remove_prefix(word.size());
    return there;
  };
  if (!take("https://") && !take("http://")) return false;
  const std::size_t host_end = std::min(url.find_first_of(":/?"), url.size());
  const std::string_view host = url.substr(0, host_end);
  if (!is_host_name(host) && !is_address(host)) return false;
  url.remove_prefix(host_end);
  if (url.starts_with(':')) {
    const std::size_t end = std::min(url.find_first_not_of("0123456789", 1), url.size());
    if (end == 1) return false;
    url.remove_prefix(end);
  }
  if (url.empty() || url == "/") return true;
  return (url[0] == '/' || url[0] == '?') && url.size() > 1 && !has_space(url.substr(1));
}

UrlRules::UrlRules(const std::vector<std::string>& domains, const std::vector<std::string>& extensions,
                   std::uint64_t fewest_characters)
    : fewest_characters_(fewest_characters) {
  for (const std::string& domain : domains) {
    assign_lower(lower_, domain);
    (lower_.find('.') == std::string::npos ? names_ : hosts_).insert(lower_);
  }
  for (const std::string& extension : extensions) {
    assign_lower(lower_, extension);
    extensions_.push_back(lower_);
  }
}

bool UrlRules::has_listed_domain() {
  std::string_view host = host_of(lower_);
  if (host.ends_with('.')) host.remove_suffix(1);
  constexpr std::size_t kLongestHost = 253;  // bytes of a name in DNS
  if (host.size() > kLongestHost) return false;
  key_.assign(registered_name(host));
  if (names_.contains(key_)) return true;
  while (!hosts_.empty() && !host.empty()) {  // the host, and those it is below
    key_.assign(host);
    if (hosts_.contains(key_)) return true;
    const std::size_t dot = host.find('.');
    host = dot == std::string_view::npos ? std::string_view() : host.substr(dot + 1);
  }
  return false;
}

bool UrlRules::has_listed_extension() const {
  const std::string_view host = host_of(lower_), url = lower_;
  const auto behind_host = static_cast<std::size_t>(host.data() + host.size() - url.data());
  const std::string_view path = url.substr(behind_host, url.find('?', behind_host) - behind_host);
  return std::any_of(extensions_.begin(), extensions_.end(),
                     [&](const std::string& extension) { return path.ends_with(extension); });
}

UrlFault UrlRules::fault_of(std::string_view url) {
  assign_lower(lower_, url);
  if (has_listed_domain()) return UrlFault::domain;
  if (has_listed_extension()) return UrlFault::extension;
  if (characters_of(url) < fewest_characters_) return UrlFault::too_short;
  return is_well_formed_url(url) ? UrlFault::none : UrlFault::malformed;
}

}  // namespace megatron
