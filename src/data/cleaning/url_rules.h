// Rules for URLs of web pages, as the openwebtext tools of Megatron-LM have them: domains and extensions that hold no
// text, what is too short, and what is no URL. Duplicates are the business of who sees all URLs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace megatron {

/// In the order of the checks: the first one that fails is the fault.
enum class UrlFault { none, domain, extension, too_short, malformed };

/// Names of pictures', films', shops', and meeting places' domains, and extensions of files without text: the defaults.
std::vector<std::string> default_url_domains();
std::vector<std::string> default_url_extensions();

class UrlRules {
 public:
  /// A domain without a dot is a registered name under any suffix: `amazon` is amazon.com, www.amazon.co.uk. One with a
  /// dot is a host with all hosts below it: `blog.example.com`. An extension is what the URL's path ends with, as
  /// ".jpg". All without regard to case.
  UrlRules(const std::vector<std::string>& domains, const std::vector<std::string>& extensions,
           std::uint64_t fewest_characters);

  UrlFault fault_of(std::string_view url);

 private:
  bool has_listed_domain();
  bool has_listed_extension() const;

  std::unordered_set<std::string> names_, hosts_;
  std::vector<std::string> extensions_;
  std::uint64_t fewest_characters_;
  std::string lower_, key_;
};

/// The part of a host that was registered, without what is below and above it: "example" of "www.example.co.uk". A
/// suffix is the last label, or the last two of the kind "co.uk", "com.au". Empty for addresses of numbers.
std::string_view registered_name(std::string_view host);
/// The host of an URL: behind "://" and any "user@", up to ':', '/', '?' or '#'.
std::string_view host_of(std::string_view url);
/// Whether the whole text is http(s)://HOST[:PORT][/ or ? with something that has no space]; HOST is a name with a dot,
/// or four numbers.
bool is_well_formed_url(std::string_view url);

}  // namespace megatron
