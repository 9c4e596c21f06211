#include "distributed/parallel/gradient_meanings.h"

#include "distributed/comm/meanings.h"

namespace megatron {

namespace {

/// Tells a group of the gradients of the selected parameters, in the order of the buffer.
template <class Selects>
void expect(Communicator& group, const Said& said, const ParameterStore& store, const std::vector<FlatRange>& owned,
            const Selects& selects) {
  for (const Parameter& parameter : store.all()) {
    if (!selects(parameter)) continue;
    for (const FlatRange& part : ParameterStore::parts_in(parameter, owned)) {
      group.expects(store.gradients_of(part), said);
    }
  }
}

auto placed(Placement placement) {
  return [placement](const Parameter& parameter) { return parameter.tensor == placement; };
}

auto tied(int tie) {
  return [tie](const Parameter& parameter) { return parameter.tie == tie; };
}

auto copied(CopyGroup copies) {
  return [copies](const Parameter& parameter) { return parameter.copies == copies; };
}

}  // namespace

// Group by group, in one order on all ranks: stages have other parameters.
void expect_shares_of_gradients(const ProcessGrid& grid, const ParameterStore& store,
                                const std::vector<FlatRange>& owned) {
  expect(grid.tensor(), kWholeGradients, store, owned, placed(Placement::replica));
  expect(grid.tensor(), kPartialGradients, store, owned, placed(Placement::partial));
  expect(grid.kv_replicas(), kSharedHeadGradients, store, owned, placed(Placement::kv_replicated));
  for (int i = 0; i < grid.ties(); ++i) expect(grid.tie(i), kTiedGradients, store, owned, tied(i));
}

void expect_whole_gradients(const ProcessGrid& grid, const ParameterStore& store, const std::vector<FlatRange>& owned) {
  expect(grid.tensor(), kWholeGradients, store, owned, placed(Placement::replica));
  expect(grid.tensor(), kWholeGradients, store, owned, placed(Placement::partial));
  expect(grid.kv_replicas(), kWholeHeadGradients, store, owned, placed(Placement::kv_replicated));
  for (int i = 0; i < grid.ties(); ++i) expect(grid.tie(i), kWholeTiedGradients, store, owned, tied(i));
  if (store.sharded()) return;  // each copy has its own part of the sums
  expect(grid.copies(CopyGroup::dense), kSummedGradients, store, owned, copied(CopyGroup::dense));
  expect(grid.copies(CopyGroup::experts), kSummedExpertGradients, store, owned, copied(CopyGroup::experts));
}

}  // namespace megatron
