// ProcessGrid: who is who. Maps the world's ranks to coordinates and owns one communicator per axis.
//
// Rank order (the design's and Megatron-LM's): tensor fastest, then context, data, pipeline:
//   rank = ((pipeline · data_size + data) · context_size + context) · tensor_size + tensor
// There are no globals: the grid is passed by reference and must outlive everything that communicates through it.
// It must die before the MPI session.
#pragma once

#include <array>
#include <memory>

#include "comm/communicator.h"

namespace megatron {

/// Extents of the grid; their product is the number of ranks.
struct GridShape {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  int kv_replicas = 1;  ///< so many neighbouring tensor ranks hold the same part of what has fewer parts than they are
  int ranks() const { return tensor * context * data * pipeline; }
};

struct GridCoordinates {
  int tensor = 0, context = 0, data = 0, pipeline = 0;
};

GridCoordinates coordinates_of(int rank, const GridShape& shape);
int rank_of(const GridCoordinates& at, const GridShape& shape);

class ProcessGrid {
 public:
  /// Collective over `world`, whose size must be shape.ranks(). The grid keeps a reference to `world`. Its groups (but
  /// for the control group) move host tensors, or those that `transport` moves: the same ranks' communicator for a
  /// device's.
  ProcessGrid(Communicator& world, const GridShape& shape, Communicator* transport = nullptr);

  const GridShape& shape() const { return shape_; }
  const GridCoordinates& at() const { return at_; }

  Communicator& world() const { return world_; }               ///< of host tensors
  Communicator& tensor() const { return *tensor_; }            ///< ranks that share a layer's matrices
  Communicator& data() const { return *data_; }                ///< ranks with the same parameters, other samples
  Communicator& control() const { return *control_; }          ///< the same, for decisions: behind nothing of data()
  Communicator& pipeline() const { return *pipeline_; }        ///< all stages of one model replica; rank = stage
  Communicator& model() const { return *model_; }              ///< tensor × pipeline: one whole model replica
  Communicator& embedding() const { return *embedding_; }      ///< {first, last} stage; alone (size 1) on others
  Communicator& kv_replicas() const { return *kv_replicas_; }  ///< tensor ranks that share parts; alone where none do

  /// All of these but the world, always in the same order.
  static constexpr std::size_t kGroups = 7;
  std::array<Communicator*, kGroups> groups() const {
    return {tensor_.get(), data_.get(),      control_.get(),    pipeline_.get(),
            model_.get(),  embedding_.get(), kv_replicas_.get()};
  }

  bool first_stage() const { return at_.pipeline == 0; }
  bool last_stage() const { return at_.pipeline == shape_.pipeline - 1; }

 private:
  Communicator& world_;
  GridShape shape_;
  GridCoordinates at_;
  std::unique_ptr<Communicator> tensor_, data_, control_, pipeline_, model_, embedding_, kv_replicas_;
};

}  // namespace megatron
