// DuplicatesPass: the search for duplicates as the first pass of a step. Documents, or their parts, are numbered in the
// order of the input over all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/cleaning_steps/scratch_folder.h"
#include "data/cleaning_steps/step.h"
#include "data/cleaning_steps/text_parts.h"
#include "data/cleaning_steps/text_spill.h"
#include "data/duplicates/duplicate_search.h"

namespace megatron {

struct DuplicatesPlan {
  DuplicateOptions search;  ///< its scratch folder is the pass's
  ComparedPart by = ComparedPart::document;
  std::uint64_t least_part = 0;  ///< characters; shorter parts are left alone

  bool checks() const { return search.near && search.near->check; }
  /// Whether a part is compared with others, and has a number.
  bool compares(std::string_view part) const;
};

/// The outcome of the pass on one rank.
struct FoundDuplicates {
  Duplicates all;
  std::uint64_t numbered = 0;
  std::vector<std::uint64_t> blocks;  ///< the first number of each of this rank's blocks
};

/// Memory that a rank's rounds take besides the search's own: of the records, which a few ranks exchange.
inline constexpr std::uint64_t kRoundsBytes = std::uint64_t{64} << 20;

class DuplicatesPass final : public FirstPass {
 public:
  /// `found` is filled by the last call of the pass, and outlives it.
  DuplicatesPass(Communicator& world, const DuplicatesPlan& plan, const std::string& scratch, FoundDuplicates& found);

  void look(const Document& document) override;
  void end_round() override;
  void finish() override;

 private:
  Communicator& world_;
  const DuplicatesPlan& plan_;
  FoundDuplicates& found_;
  ScratchFolder folder_;
  std::optional<TextSpill> texts_;  // where candidates are checked
  DuplicateSearch search_;
  std::size_t round_documents_;
  std::string round_;  // its texts, one after the other
  std::vector<std::size_t> ends_;
};

}  // namespace megatron
