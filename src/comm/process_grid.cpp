#include "comm/process_grid.h"

#include <vector>

#include "base/text.h"

namespace megatron {

GridCoordinates coordinates_of(int rank, const GridShape& shape) {
  internal_check(rank >= 0 && rank < shape.ranks(), "rank outside the process grid");
  GridCoordinates at;
  at.tensor = rank % shape.tensor;
  rank /= shape.tensor;
  at.context = rank % shape.context;
  rank /= shape.context;
  at.data = rank % shape.data;
  at.pipeline = rank / shape.data;
  return at;
}

int rank_of(const GridCoordinates& at, const GridShape& shape) {
  return ((at.pipeline * shape.data + at.data) * shape.context + at.context) * shape.tensor + at.tensor;
}

ProcessGrid::ProcessGrid(Communicator& world, const GridShape& shape, Communicator* transport)
    : world_(world), shape_(shape) {
  verify(shape.tensor > 0 && shape.context > 0 && shape.data > 0 && shape.pipeline > 0, ErrorKind::configuration,
         "process grid tensor {} × context {} × data {} × pipeline {}: every extent must be at least 1", shape.tensor,
         shape.context, shape.data, shape.pipeline);
  verify(world.size() == shape.ranks(), ErrorKind::configuration,
         "process grid tensor {} × context {} × data {} × pipeline {} needs {}, but this job has {}; "
         "start that many or change [parallel]",
         shape.tensor, shape.context, shape.data, shape.pipeline, counted(shape.ranks(), "rank"), world.size());
  internal_check(shape.kv_replicas > 0 && shape.tensor % shape.kv_replicas == 0,
                 "tensor ranks that share parts are equally many of each");
  at_ = coordinates_of(world.rank(), shape);

  // A group's colour is the rank of its first member: `first` moves coordinates there. Ranks within a group keep the
  // world's order, which is ascending along every axis.
  Communicator& tensors = transport != nullptr ? *transport : world;
  const auto group = [&](const char* name, auto first, Communicator& from) {
    std::vector<int> colours;
    colours.reserve(static_cast<std::size_t>(world.size()));
    for (int rank = 0; rank < world.size(); ++rank) {
      GridCoordinates at = coordinates_of(rank, shape_);
      first(at);
      colours.push_back(rank_of(at, shape_));
    }
    return from.split_known(colours, name);
  };
  tensor_ = group(
      "tensor", [](GridCoordinates& at) { at.tensor = 0; }, tensors);
  data_ = group(
      "data", [](GridCoordinates& at) { at.data = 0; }, tensors);
  control_ = group(
      "control", [](GridCoordinates& at) { at.data = 0; }, world);
  pipeline_ = group(
      "pipeline", [](GridCoordinates& at) { at.pipeline = 0; }, tensors);
  model_ = group(
      "model", [](GridCoordinates& at) { at.tensor = at.pipeline = 0; }, tensors);
  embedding_ = group(
      "embedding",
      [last = shape.pipeline - 1](GridCoordinates& at) {
        if (at.pipeline == last) at.pipeline = 0;  // joins the first stage; the stages between stay alone
      },
      tensors);
  kv_replicas_ = group(
      "kv_replicas", [kv_replicas = shape.kv_replicas](GridCoordinates& at) { at.tensor -= at.tensor % kv_replicas; },
      tensors);
}

}  // namespace megatron
