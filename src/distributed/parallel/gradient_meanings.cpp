#include "distributed/parallel/gradient_meanings.h"

#include "distributed/comm/meanings.h"

namespace megatron {

namespace {

template <class Tell>
void for_each_part(const ParameterStore& store, const std::vector<FlatRange>& owned, const Tell& tell) {
  for (const Parameter& parameter : store.all()) {
    for (const FlatRange& part : ParameterStore::parts_in(parameter, owned)) {
      tell(parameter, store.gradients().slice(0, part.first, part.count));
    }
  }
}

}  // namespace

void expect_shares_of_gradients(const ProcessGrid& grid, const ParameterStore& store,
                                const std::vector<FlatRange>& owned) {
  for_each_part(store, owned, [&](const Parameter& parameter, ConstTensor gradient) {
    switch (parameter.tensor) {
      case Placement::split: break;
      case Placement::replica: grid.tensor().expects(gradient, kWholeGradients); break;
      case Placement::partial: grid.tensor().expects(gradient, kPartialGradients); break;
      case Placement::kv_replicated: grid.kv_replicas().expects(gradient, kSharedHeadGradients); break;
    }
    if (parameter.tie != kNone) grid.tie(parameter.tie).expects(gradient, kTiedGradients);
  });
}

void expect_whole_gradients(const ProcessGrid& grid, const ParameterStore& store, const std::vector<FlatRange>& owned) {
  for_each_part(store, owned, [&](const Parameter& parameter, ConstTensor gradient) {
    switch (parameter.tensor) {
      case Placement::split: break;
      case Placement::replica:
      case Placement::partial: grid.tensor().expects(gradient, kWholeGradients); break;
      case Placement::kv_replicated: grid.kv_replicas().expects(gradient, kWholeHeadGradients); break;
    }
    if (parameter.tie != kNone) grid.tie(parameter.tie).expects(gradient, kWholeTiedGradients);
    if (store.sharded()) return;  // each copy has its own part of the sums
    const bool expert = parameter.copies == CopyGroup::experts;
    grid.copies(parameter.copies).expects(gradient, expert ? Said(kSummedExpertGradients) : Said(kSummedGradients));
  });
}

}  // namespace megatron
