// BlockReader: one rank's reading of a corpus for a step: the documents of a block that the step keeps, as lines, and
// what it found about the others.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/cleaning_steps/step.h"
#include "data/preprocess/text_corpus.h"

namespace megatron {

/// A document that was kept so far.
struct KeptDocument {
  std::uint64_t begin = 0, bytes = 0;  ///< its line in the batch, with its end
  std::size_t file = 0;                ///< where it was read
  std::uint64_t offset = 0;
  std::optional<TextHash> identity;
  std::optional<std::uint64_t> place_by;
};

struct Batch {
  std::string lines;
  std::vector<KeptDocument> documents;  ///< in the order of the input
  Findings findings;
  std::uint64_t read = 0, bad = 0;
  std::string_view line(const KeptDocument& document) const {
    return std::string_view(lines).substr(document.begin, document.bytes);
  }
};

class BlockReader {
 public:
  /// `examples`: of each rule, that are kept. `has_pages`: the inputs are dumps of MediaWiki. All must outlive it.
  BlockReader(TextCorpus& corpus, Step& step, std::uint64_t examples, bool has_pages);

  using Progress = std::function<void(std::uint64_t bytes)>;  ///< so far in the block
  /// Reads the documents that begin in these segments. Errors: TextCorpus.
  Batch read(const std::vector<Segment>& block, const Progress& progress);
  /// Shows the documents that begin there to a first pass.
  void look(const std::vector<Segment>& block, FirstPass& pass, const Progress& progress);
  /// Counts the documents that begin there, without looking into them.
  std::uint64_t count(const std::vector<Segment>& block);

  /// Enters a document that was kept by apply() as removed by a rule.
  void remove(Batch& batch, std::size_t rule, const KeptDocument& document);

 private:
  void read_line(std::size_t file, std::string_view line);
  void read_input(std::size_t file, std::string_view input);

  TextCorpus& corpus_;
  Step& step_;
  std::uint64_t examples_;
  std::size_t rules_;
  bool has_pages_;
  Document document_;
};

}  // namespace megatron
