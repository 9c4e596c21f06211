#include "distributed/parallel/check_copies.h"

#include <algorithm>
#include <map>

#include "distributed/parallel/group_check.h"

namespace megatron {

class CheckCopies::OfGroup final : public CollectiveCheck {
 public:
  OfGroup(Communicator& group, Counts& counts) : group_(group), counts_(counts) { group_.set_check(this); }
  ~OfGroup() override { group_.set_check(nullptr); }
  OfGroup(const OfGroup&) = delete;
  OfGroup& operator=(const OfGroup&) = delete;

  Started starts(const CheckedCall& call) override {
    if (group_.size() == 1) return {0, call.output};
    counts_.most_read = std::max({counts_.most_read, call.input.bytes(), call.output.bytes()});
    const std::size_t bytes = kept_back_bytes(call, group_.rank());
    if (bytes == 0) return {0, call.output};
    counts_.kept += bytes;
    counts_.most_kept = std::max(counts_.most_kept, counts_.kept);
    kept_.emplace(++last_ticket_, bytes);
    return {last_ticket_, call.output};
  }
  void ends(std::uint64_t ticket) override { counts_.kept -= kept_.extract(ticket).mapped(); }
  void abandons(std::uint64_t ticket) noexcept override {
    if (const auto node = kept_.extract(ticket)) counts_.kept -= node.mapped();
  }
  std::size_t in_flight() const override { return kept_.size(); }
  void expects(ConstTensor values, const Statement&) override {
    counts_.most_read = std::max(counts_.most_read, values.bytes());
  }

 private:
  Communicator& group_;
  Counts& counts_;
  std::map<std::uint64_t, std::size_t> kept_;  // by ticket
  std::uint64_t last_ticket_ = 0;
};

CheckCopies::CheckCopies(const ProcessGrid& grid) {
  for (Communicator* group : grid.groups()) groups_.push_back(std::make_unique<OfGroup>(*group, counts_));
}

CheckCopies::~CheckCopies() = default;

}  // namespace megatron
