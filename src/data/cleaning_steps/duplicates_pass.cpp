#include "data/cleaning_steps/duplicates_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text/utf8.h"
#include "data/cleaning_steps/rank_messages.h"
#include "distributed/comm/agreement.h"

namespace megatron {

namespace {

/// Records that a rank sends at once, in bytes.
constexpr std::uint64_t kSentBytes = std::uint64_t{1} << 20;

std::string folder_name(std::size_t rank) {
  return fmt::format("duplicates-{}", rank);
}

DuplicateOptions with_scratch(DuplicateOptions options, const std::string& folder) {
  options.scratch = folder;
  return options;
}

}  // namespace

bool DuplicatesPlan::compares(std::string_view part) const {
  if (by == ComparedPart::document) return true;
  const std::size_t first = part.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return false;
  part = part.substr(first, part.find_last_not_of(" \t\r\n") + 1 - first);
  return characters_of(part) >= least_part;
}

DuplicatesPass::DuplicatesPass(Communicator& world, const DuplicatesPlan& plan, const std::string& scratch,
                               FoundDuplicates& found)
    : world_(world),
      plan_(plan),
      found_(found),
      folder_(scratch, folder_name(static_cast<std::size_t>(world.rank()))),
      search_(world, with_scratch(plan.search, folder_.path())),
      round_documents_(kSentBytes / scratch_bytes(plan.search, 1)) {
  if (!plan.checks()) return;
  std::vector<std::string> folders;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(world.size()); ++rank) {
    folders.push_back(scratch + "/" + folder_name(rank));
  }
  texts_.emplace(std::move(folders), static_cast<std::size_t>(world.rank()));
}

void DuplicatesPass::look(const Document& document) {
  for (const std::string_view part : parts_of_text(document.value(0), plan_.by)) {
    if (!plan_.compares(part)) continue;
    round_ += part;
    ends_.push_back(round_.size());
  }
}

void DuplicatesPass::end_round() {
  const std::vector<double> counts = numbers_of_all(world_, static_cast<double>(ends_.size()));
  const auto sum = [&](std::ptrdiff_t ranks) {
    return static_cast<std::uint64_t>(std::accumulate(counts.begin(), counts.begin() + ranks, 0.0));
  };
  const std::uint64_t first = found_.numbered + sum(world_.rank());
  found_.numbered += sum(world_.size());
  found_.blocks.push_back(first);
  if (texts_) {
    agree(world_, [&] { texts_->add_round(round_, ends_); });
    texts_->count_round(counts);
  }
  std::size_t added = 0, begin = 0;
  do {
    for (const std::size_t stop = std::min(added + round_documents_, ends_.size()); added < stop; ++added) {
      search_.add(first + added, std::string_view(round_).substr(begin, ends_[added] - begin));
      begin = ends_[added];
    }
  } while (search_.exchange(added < ends_.size()));
  round_.clear();
  ends_.clear();
}

void DuplicatesPass::finish() {
  found_.all = search_.finish(
      found_.numbered, [this](std::uint64_t document) { return texts_->fetch(document); }, 0);
}

}  // namespace megatron
