// urls: removes documents, or entries of a list, by their URL.
#include <algorithm>

#include "data/cleaning/url_rules.h"
#include "data/cleaning_steps/step.h"

namespace megatron {

namespace {

constexpr KeyRow kUrlsKeys[] = {
    {"url_key", KeyKind::text, "url", "KEY", "documents: the member that holds the URL"},
    {"domains", KeyKind::file, "", "FILE",
     "names that are removed, one a line: amazon is any amazon.SUFFIX, blog.example.com a host and those below it; "
     "default: a list of pictures, films, shops, and meeting places"},
    {"extensions", KeyKind::file, "", "FILE",
     "endings of paths that are removed, one a line, as .jpg; default: a list of files without text"},
    {"min_characters", KeyKind::whole, "9", "N", "shorter URLs are removed"},
    {"duplicates", KeyKind::flag, "true", "true|false", "remove URLs that were there before"},
};

std::string_view stripped(std::string_view url) {
  constexpr std::string_view kSpaces = " \t\r\n\v\f";
  const std::size_t first = url.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return url.substr(first, url.find_last_not_of(kSpaces) - first + 1);
}

class UrlsStep final : public Step {
 public:
  explicit UrlsStep(const StepKeys& keys)
      : url_key_(keys.text("url_key")),
        rules_(keys.lines("domains", default_url_domains()), keys.lines("extensions", default_url_extensions()),
               keys.whole("min_characters")),
        removes_duplicates_(keys.flag("duplicates")) {}

  std::vector<MemberName> members() const override { return {{url_key_}}; }
  std::vector<Rule> rules() const override {
    return {{"domain"}, {"extension"}, {"too_short"}, {"malformed"}, {"duplicate"}};
  }
  bool apply(Document& document, RuleListener& listener) override {
    const UrlFault fault = rules_.fault_of(stripped(document.value(0)));
    if (fault == UrlFault::none) return true;
    listener.met(static_cast<std::size_t>(fault) - 1);
    return false;
  }
  std::optional<TextHash> identity(const Document& document) const override {
    if (!removes_duplicates_) return std::nullopt;
    return hash_text(stripped(document.value(0)));
  }

 private:
  std::string url_key_;
  UrlRules rules_;
  bool removes_duplicates_;
};

}  // namespace

StepRow urls_step() {
  return {"urls", "removes pages by their URL: listed domains and extensions, short, malformed, repeated", kUrlsKeys,
          InputKind::documents_and_lists, [](const StepKeys& keys, const StepSettings&) -> std::unique_ptr<Step> {
            return std::make_unique<UrlsStep>(keys);
          }};
}

}  // namespace megatron
