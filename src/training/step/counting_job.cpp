#include "training/step/counting_job.h"

#include "backend/ops/counting_device.h"

namespace megatron {

namespace {

std::unique_ptr<CountingCommunicator> make_tensors(int rank, int size, bool staged, StepListener* listener) {
  if (listener != nullptr) return listener->tensors(rank, size, staged);
  return std::make_unique<CountingCommunicator>(rank, size, "world", staged);
}

}  // namespace

CountingJob::CountingJob(const Config& config, const GridShape& shape, const GridCoordinates& at,
                         TransportKind transport_kind, StepListener* listener)
    : transport(transport_kind),
      world(rank_of(at, shape), shape.ranks()),
      tensors(make_tensors(rank_of(at, shape), shape.ranks(), transport == TransportKind::staged, listener)),
      grid(world, shape, tensors.get()) {
  std::unique_ptr<CountingOps> counting = make_counting_ops(config.run);
  ops = counting.get();
  auto device = std::make_unique<CountingDevice>(transport == TransportKind::host);
  backend = listener == nullptr ? Backend(std::move(device), std::move(counting))
                                : Backend(std::move(device), listener->around(std::move(counting)));
  for (Communicator* group : {&grid.tensor(), &grid.context(), &grid.expert(), &grid.pipeline()})
    group->set_meter(&passes);
  for (Communicator* group : {&grid.copies(), &grid.copies(CopyGroup::experts), &grid.shards(),
                              &grid.shards(CopyGroup::experts), &grid.replicas(), &grid.kv_replicas()}) {
    group->set_meter(&sums);
  }
  for (int tie = 0; tie < grid.ties(); ++tie) grid.tie(tie).set_meter(&sums);
}

std::vector<MicroBatch> sizing_micro_batches(const Config& config, const ModelFamily& family, std::int64_t count,
                                             Arena& arena) {
  const BatchLayout layout = batch_layout_of_rank(family, config);
  const MicroBatch one = view_batch(layout, layout.sizes, [&](const BatchField& field) {
    return arena.allocate(field.name, shape_of(field, layout.sizes), field.type).data();
  });
  return std::vector<MicroBatch>(static_cast<std::size_t>(count), one);
}

}  // namespace megatron
