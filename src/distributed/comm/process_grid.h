// ProcessGrid: who is who. Maps the world's ranks to coordinates and owns a communicator for each group of them.
//
// Rank order (the design's and Megatron-LM's): tensor fastest, then context, data, pipeline:
//   rank = ((pipeline · data_size + data) · context_size + context) · tensor_size + tensor
// Passed by reference: it must outlive everything that communicates through it, and die before the MPI session. Knows
// ranks, neither parameters nor models.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "distributed/comm/communicator.h"
#include "distributed/comm/group.h"

namespace megatron {

/// Ranks that hold the same part of a parameter, as far as this follows from the axes that divide samples and rows.
enum class CopyGroup {
  dense,    ///< all of context × data
  experts,  ///< the dense ones with the same experts: every context rank of every `expert`-th data rank
};

/// Extents of the grid; their product is the number of ranks.
struct GridShape {
  int tensor = 1, context = 1, data = 1, pipeline = 1;
  int kv_replicas = 1;  ///< neighbouring tensor ranks that hold the same part of what has fewer parts than ranks
  int expert = 1;       ///< consecutive data ranks that share each layer's experts out; divides `data`
  /// Sets of consecutive copies that each have all of the optimizer's state, where copies divide it: 1, or more where
  /// sets are smaller than all (hybrid sharding). Divides data / expert.
  int replicas = 1;
  /// Sets of stages, each ascending, that hold copies of the same parameters: the model says which.
  std::vector<std::vector<int>> ties = {};

  int ranks() const { return tensor * context * data * pipeline; }
  /// Ranks of ProcessGrid::copies(group).
  int copies(CopyGroup group = CopyGroup::dense) const {
    return context * data / (group == CopyGroup::experts ? expert : 1);
  }
  /// Ranks of ProcessGrid::shards(group).
  int shards(CopyGroup group = CopyGroup::dense) const { return copies(group) / replicas; }
  int data_of_replica() const { return data / replicas; }  ///< data ranks of a set
};

struct GridCoordinates {
  int tensor = 0, context = 0, data = 0, pipeline = 0;
};

GridCoordinates coordinates_of(int rank, const GridShape& shape);
int rank_of(const GridCoordinates& at, const GridShape& shape);
/// The rank within ProcessGrid::copies(group).
int copy_rank(CopyGroup group, const GridCoordinates& at, const GridShape& shape);
/// The rank within ProcessGrid::shards(group), and within replicas().
int shard_rank(CopyGroup group, const GridCoordinates& at, const GridShape& shape);
int replica_rank(const GridCoordinates& at, const GridShape& shape);

/// The name of a group's communicators; of a tie, without its index. A group that has another's members may be that
/// one, and have its name.
std::string_view name_of(Group group);
inline constexpr std::string_view kTieName = "tie ";  ///< the start of a tie's name, before its index

class ProcessGrid {
 public:
  /// Collective over `world`, whose size must be shape.ranks(). The grid keeps a reference to `world`. Its groups (but
  /// for the control group) move host tensors, or those that `transport` moves: the same ranks' communicator for a
  /// device's.
  ProcessGrid(Communicator& world, const GridShape& shape, Communicator* transport = nullptr);

  const GridShape& shape() const { return shape_; }
  const GridCoordinates& at() const { return at_; }

  Communicator& world() const { return world_; }                        ///< for host tensors
  Communicator& tensor() const { return of(Group::tensor); }            ///< ranks that share a layer's matrices
  Communicator& context() const { return of(Group::context); }          ///< ranks with other rows of the same samples
  Communicator& data() const { return of(Group::data); }                ///< ranks with other samples
  Communicator& control() const { return of(Group::control); }          ///< as data(), but waits for none of its sums
  Communicator& pipeline() const { return of(Group::pipeline); }        ///< all stages of a model; rank = stage
  Communicator& model() const { return of(Group::model); }              ///< tensor × pipeline: one whole model
  Communicator& kv_replicas() const { return of(Group::kv_replicas); }  ///< tensor ranks that share parts, or alone
  Communicator& expert() const { return of(Group::expert); }            ///< data ranks that share the experts out
  /// Ranks that hold the same part of a parameter, each with a part of its gradient. They share the writing of
  /// checkpoints out. Of dense parameters context × data; while context is 1 this is data() itself.
  /// Of experts those of them with the same experts; while expert is 1 the same communicator.
  Communicator& copies(CopyGroup group = CopyGroup::dense) const {
    return of(group == CopyGroup::experts ? Group::expert_copies : Group::copies);
  }
  /// The copies that divide the optimizer's state among them: all, or a set of consecutive ones.
  Communicator& shards(CopyGroup group = CopyGroup::dense) const {
    return of(group == CopyGroup::experts ? Group::expert_shards : Group::shards);
  }
  /// The copies that have the same part of it, one of each set.
  Communicator& replicas() const { return of(Group::replicas); }
  /// The stages of shape().ties[index], ascending; this rank alone where its stage is none of them.
  Communicator& tie(int index) const;
  int ties() const { return static_cast<int>(ties_.size()); }

  /// All of these but the world, each once, always in the same order.
  std::span<Communicator* const> groups() const { return groups_; }

  /// Decides together: each value becomes its maximum over all ranks. What ranks do because of a number that only some
  /// of them know goes through here (or through the world, where there is no grid). Collective over the world; no rank
  /// sends more than log2(ranks) + 1 messages, or 7.
  void agree(std::span<double> values) const { world_.all_reduce_values(values, kDecision); }
  /// Whether the flag is set on some rank.
  bool agree(bool flag) const { return world_.any_rank(flag); }

  bool first_stage() const { return at_.pipeline == 0; }
  bool last_stage() const { return at_.pipeline == shape_.pipeline - 1; }

 private:
  Communicator& of(Group group) const { return *by_group_[static_cast<std::size_t>(group)]; }
  Communicator& add(std::unique_ptr<Communicator> group);

  Communicator& world_;
  GridShape shape_;
  GridCoordinates at_;
  std::vector<std::unique_ptr<Communicator>> owned_;
  std::vector<Communicator*> groups_, ties_;
  std::array<Communicator*, kGroupCount> by_group_{};
};

}  // namespace megatron
