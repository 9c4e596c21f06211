// WikiText: wiki text of MediaWiki to plain text. Templates, tables, references, files and categories go; links become
// their text; headings, list items and paragraphs become lines. Used by the step `wikipedia` of megatron_clean. Linear
// in the text, whatever is left open in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

class WikiText {
 public:
  /// Links into these namespaces stand for no text: WikipediaDump::hidden_namespaces().
  explicit WikiText(std::vector<std::string> hidden_namespaces = {"File", "Image", "Media", "Category"});

  /// Lines of text, with one empty line between paragraphs. Headings of sections without text are dropped.
  std::string plain(std::string_view wiki);
  /// Characters looked at so far, several times each.
  std::uint64_t work() const { return work_; }

 private:
  std::vector<std::string> hidden_;
  std::uint64_t work_ = 0;
};

}  // namespace megatron
