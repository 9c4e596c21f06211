// wikipedia: articles of a MediaWiki dump to documents of plain text, with the members that WikiExtractor's have.
#include <optional>

#include "base/core/error.h"
#include "data/cleaning/wiki_text.h"
#include "data/cleaning/wikipedia.h"
#include "data/cleaning_steps/step.h"
#include "data/preprocess/json_text.h"
#include "data/preprocess/text_corpus.h"

namespace megatron {

namespace {

/// A text that a dump is read from as a whole.
XmlReader::More whole(std::string text) {
  return [text = std::move(text)](std::string& window) mutable {
    window += text;
    return !std::exchange(text, {}).empty();
  };
}

class WikipediaStep final : public Step {
 public:
  explicit WikipediaStep(const StepSettings& settings) : text_key_(settings.text_key) {}

  std::vector<MemberName> members() const override { return {{text_key_}}; }
  std::vector<Rule> rules() const override { return {{"other_namespace"}, {"redirect"}, {"no_text"}}; }

  /// Reads each dump's names of namespaces and its address.
  void see_inputs(TextCorpus& corpus) override {
    constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
    constexpr std::string_view kEnd = "</siteinfo>";
    for (std::size_t file = 0; file < corpus.files(); ++file) {
      std::string head = corpus.beginning(file, kMostBytes);
      const std::size_t end = head.find(kEnd);
      verify(end != head.npos, ErrorKind::data, "{}: no <siteinfo> at its beginning: no dump of MediaWiki",
             corpus.path(file));
      head.resize(end + kEnd.size());
      WikipediaDump dump(corpus.path(file), whole(head + "</mediawiki>"));
      dump.next(page_);
      sites_.push_back({WikiText(dump.hidden_namespaces()), dump.base().substr(0, dump.base().rfind('/'))});
    }
  }

  std::string_view json_of_page(std::size_t file, std::string_view page) override {
    if (!page.ends_with("</page>")) throw BadDocument{"the file ends within this page; it is incomplete"};
    Site& site = sites_[file];
    std::string text;
    try {
      WikipediaDump dump("the page", whole("<mediawiki>" + std::string(page) + "</mediawiki>"));
      fault_.reset();
      if (dump.next(page_)) {
        text = site.text.plain(page_.text);
        if (text.empty()) fault_ = Fault::no_text;
      } else {
        fault_ = dump.others() > 0 ? Fault::other_namespace : Fault::redirect;
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      throw BadDocument{error.what()};
    }
    line_.clear();
    const auto add = [&](std::string_view name, std::string_view value) {
      line_ += line_.empty() ? "{" : ", ";
      append_json_string(line_, name);
      line_ += ": ";
      append_json_string(line_, value);
    };
    add("id", page_.id);
    add("url", site.base.empty() ? "" : site.base + "?curid=" + page_.id);
    add("title", page_.title);
    add(text_key_, text);
    line_ += '}';
    return line_;
  }

  bool apply(Document& /*document*/, RuleListener& listener) override {
    if (fault_) listener.met(static_cast<std::size_t>(*fault_), page_.title);
    return !fault_;
  }

 private:
  enum class Fault : std::uint8_t { other_namespace, redirect, no_text };  // places in rules()
  struct Site {
    WikiText text;
    std::string base;
  };

  std::string text_key_;
  std::vector<Site> sites_;  // by file
  WikipediaPage page_;       // the last one
  std::optional<Fault> fault_;
  std::string line_;
};

}  // namespace

StepRow wikipedia_step() {
  return {"wikipedia",
          "makes documents of plain text from the articles of a MediaWiki dump",
          {},
          InputKind::wiki_dumps,
          [](const StepKeys&, const StepSettings& settings) -> std::unique_ptr<Step> {
            verify(settings.text_key != "id" && settings.text_key != "url" && settings.text_key != "title",
                   ErrorKind::configuration, "text key '{}': articles have another member of this name",
                   settings.text_key);
            return std::make_unique<WikipediaStep>(settings);
          },
          [](const StepKeys&, std::uint64_t longest) { return 48 * longest; }};  // lines and brackets
}

}  // namespace megatron
