// WikipediaDump: the articles of a MediaWiki XML dump (pages-articles), one after another, in the memory of one page.
// Used by the step `wikipedia` of megatron_clean. The text comes in pieces from the caller, who unpacks it. Redirects
// and pages of other namespaces are left out. Broken or hostile XML is an error with byte and line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/cleaning/xml_reader.h"

namespace megatron {

struct WikipediaPage {
  std::string title, id;
  std::string text;  ///< wiki text
};

class WikipediaDump {
 public:
  /// `more` appends the next part of the dump; false at its end. `name` is that of errors. Pages of more than
  /// `most_page_bytes` are an error.
  WikipediaDump(std::string name, XmlReader::More more, std::size_t most_page_bytes = std::size_t{64} << 20);

  /// The next article; false at the end of the dump. ErrorKind::data if it is no dump of MediaWiki or breaks off.
  bool next(WikipediaPage& page);

  /// Names of namespaces whose links stand for no text: files, media, categories. English ones and the dump's own.
  const std::vector<std::string>& hidden_namespaces() const { return hidden_; }
  /// Address of the dump's main page, as it says at its beginning; empty before that is read, or if it does not.
  const std::string& base() const { return base_; }
  std::uint64_t pages() const { return pages_; }          ///< read so far, also those that are left out
  std::uint64_t redirects() const { return redirects_; }  ///< among them
  std::uint64_t others() const { return others_; }        ///< among them, of other namespaces
  std::uint64_t position() const { return xml_.position(); }

 private:
  bool read_page(WikipediaPage& page);
  void read_namespace();

  XmlReader xml_;
  std::size_t most_page_bytes_;
  std::vector<std::string> hidden_;
  std::string base_;
  std::uint64_t pages_ = 0, redirects_ = 0, others_ = 0;
  bool begun_ = false;
};

}  // namespace megatron
