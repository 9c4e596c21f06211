// Optimizer: the update of a parameter store by the rules of update_rules.h, and this rank's part of the norm. Owns the
// rules' states and the master copy. Whether a step is skipped, and how it is clipped, is decided for all ranks at once
// (update_step.h). Knows parameters; must not know models or losses.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "distributed/parallel/parameter.h"
#include "distributed/parallel/parameter_all_gather.h"
#include "training/optimizer/offloaded_memory.h"
#include "training/optimizer/parameter_groups.h"
#include "training/optimizer/whole_matrix.h"

namespace megatron {

/// Numbers that may change at every step.
struct UpdateSettings {
  double learning_rate = 0;   ///< multiplied by a parameter's factor
  double weight_decay = 0;    ///< for parameters that decay: decoupled (AdamW), or L2 as a part of the gradient (SGD).
                              ///< Groups with their own have it in the proportion of this one to the configuration's
  double gradient_scale = 1;  ///< the store's gradients are the real ones times this
};

/// Owns the states of each parameter's rule, in f32 or bf16, and an f32 master copy of the values where these are
/// 16-bit (where they are f32 they are the master themselves). Each is flat, over the ranges of the store that this
/// rank owns: all, or with a store that is cut into shards (distributed optimizer, Rajbhandari et al. 2020, stage 1)
/// its part of every bucket, with whole matrices where a rule needs them. Where parameters have several rules, a state
/// is over the parts of these ranges whose rule has it. After an update values = the master, rounded; with shards their
/// gathers are on their way. States in bf16 are rounded stochastically after each update: by draws for (seed, number of
/// the update, state, parameter, element), the same on every layout.
/// With optimizer.offload the states and masters of the last owned parameters, optimizer.offload_fraction of them at
/// least, are in another memory. Updates have the same bits; only the sum of the masters' squares is rounded otherwise.
class Optimizer {
 public:
  /// The store must be allocated; it and `gathers`, which a store with shards needs, must outlive the optimizer. A rule
  /// that needs whole matrices needs gathers and `scratch`, for the time of an update; offloaded states need
  /// `offloaded`, of offloaded_bytes(). `threads`: those of ops, on a CPU. All own state is 0:
  /// initialize(), or read it.
  Optimizer(const ParameterStore& store, ParameterGroups groups, Device& device, Ops& ops,
            ParameterAllGather* gathers = nullptr, Arena* scratch = nullptr,
            std::unique_ptr<OffloadedMemory> offloaded = nullptr, int threads = 1);

  /// Sets master and values to their initial numbers, functions of (seed, name, element): the same model in every
  /// precision, but for the rounding of 16-bit values. Gradients become 0. The seed is also that of the draws by which
  /// states are rounded.
  void initialize(std::uint64_t seed);
  /// Sets values to the master, rounded, after the master was read from somewhere. Collective over the copies where
  /// there are shards.
  void set_values_from_master();

  /// Adds sums of squares of this rank's gradients, with their scale: of a copy group's parameters that it counts in
  /// the model's norm, and of all that another tensor rank counts and this one has computed itself. Both f64 [1].
  void add_counted_squares(CopyGroup group, Tensor total);
  void add_squares_of_copies(Tensor total);
  /// Adds the sum of squares of this rank's part of the masters that it counts in the model's norm. f64 [1].
  void add_counted_squares_of_masters(CopyGroup group, Tensor total);
  /// Until values that are on their way have arrived. Collective over the copies where there are shards.
  void wait_for_values();
  /// At the start of a step: what its update needs first of an offloaded state may be read during the passes.
  void expect_update() {
    if (offloaded_ != nullptr) offloaded_->expect_update();
  }
  /// Gives the device an update from the store's gradients, which must be summed over all partial axes, and starts the
  /// values' gathers. The gradients are multiplied by `factor`; where `skip` is not 0 nothing changes. Both f32 [1],
  /// read when the device comes to it. An update that was not skipped must be told to count_update(). Gradients of the
  /// owned ranges stay as they are. With a rule that needs whole matrices collective over the tensor ranks.
  void start_update(const UpdateSettings& settings, ConstTensor factor, ConstTensor skip);
  void count_update() { ++updates_; }

  std::int64_t updates() const { return updates_; }  ///< successful ones: Adam's k
  void set_updates(std::int64_t updates) { updates_ = updates; }
  /// The ranges whose state this rank keeps, one of every bucket if sharded, in the buffers' order. Some may be empty.
  const std::vector<FlatRange>& owned() const { return owned_; }
  /// Master, f32, and states of a range that lies in one of these and has one rule. All [count].
  struct State {
    Tensor master;
    std::vector<NamedState> states;
  };
  State state(const FlatRange& range) const;
  /// The whole memory of each rule's states: all ranges of the rule one after the other. A name that two rules
  /// have occurs twice, and so does one of states that are offloaded in part.
  std::vector<NamedState> all_states() const;
  /// Whether there is a separate f32 master copy: where the values are 16-bit.
  bool has_master_copy() const { return store_.values().dtype() != DType::f32; }
  std::size_t state_bytes() const { return memory_.bytes(); }  ///< without those that are offloaded
  std::size_t offloaded_bytes() const { return offloaded_ != nullptr ? offloaded_->bytes() : 0; }
  double clip_norm() const { return groups_.optimizer().clip_grad_norm; }
  bool sharded() const { return store_.sharded(); }

  /// Bytes of optimizer state of a rank, for a store that is allocated (or planned).
  struct StateBytes {
    std::size_t kept = 0, offloaded = 0;  ///< on its device, and elsewhere
  };
  static StateBytes state_bytes(const ParameterStore& store, Shard shard, const ParameterGroups& groups);

 private:
  /// Memory of a rule's states: each has one number per element of the rule's sections. A rule that keeps other states
  /// with other settings has several, and one whose states are offloaded in part has two.
  struct RuleMemory {
    const UpdateRule* rule;
    Names names;
    bool offloaded = false;
    std::int64_t elements = 0;
    StateTensors states{};
  };
  /// A maximal part of an owned range with one rule and its states, with the gaps up to the next one.
  struct Section {
    FlatRange range;
    std::size_t memory;  ///< index of its states'
    std::int64_t first;  ///< its place in each of these states
  };
  /// The owned ranges, cut where the rule or its states change and where offloading begins, and the number of elements
  /// of each; nothing is allocated yet.
  struct Division {
    std::vector<Section> sections;
    std::vector<RuleMemory> rules;
    std::int64_t offloaded_from;  ///< element of the store, a parameter's or an owned range's first
  };
  /// The part of one parameter in a Part, and the random sites of its states.
  struct Piece {
    FlatRange range;
    const Parameter* parameter;
    decltype(StateDraws::keys) sites;
  };
  /// A maximal part of an owned range that is updated in one way; of one parameter alone, if its rule updates matrices.
  struct Part {
    FlatRange range;
    ParameterUpdate how;
    DirectedMatrix matrix;           ///< null if the rule is not such a one
    std::vector<Piece> pieces = {};  ///< its parameters, if states are rounded
  };
  /// This rank's boxes of matrices that become whole together: as many as the tensor ranks work on at a time.
  struct Matrices {
    std::vector<Part> parts;
    std::vector<DirectedMatrix> whole;  ///< the same matrices
  };

  std::vector<FlatRange>& in_norm(CopyGroup group) { return group == CopyGroup::experts ? experts_in_norm_ : in_norm_; }
  /// `parameters`: in the buffer's order.
  static std::int64_t find_offloaded_from(const std::vector<const Parameter*>& parameters,
                                          const std::vector<FlatRange>& owned, const OptimizerConfig& config);
  static Division divide(const ParameterStore& store, const std::vector<FlatRange>& owned,
                         const ParameterGroups& groups);
  static StateBytes bytes_of(const ParameterStore& store, const Division& division, DType states);
  void list_parts();
  void list_matrices();
  void allocate(Device& device);
  bool is_offloaded(const FlatRange& range) const { return range.first >= division_.offloaded_from; }
  /// Whether values are set right after a chunk's update: offloaded masters are in use only then, and a CPU still has
  /// the others in its caches. Otherwise one copy sets them after the update of an owned range.
  bool sets_values_at_once(const FlatRange& range) const { return is_offloaded(range) || cached_elements_ > 0; }
  /// A chunk of at most this many elements that is still in the caches afterwards, where that is of use.
  std::int64_t cached(std::int64_t most) const {
    return cached_elements_ > 0 ? std::min(most, cached_elements_) : most;
  }
  /// Elements of a range whose state lies in one memory that may be in use at a time.
  std::int64_t most_at_a_time(const FlatRange& range) const;
  /// Tells the memory of what is offloaded that these numbers of a range are used next. Absent ones are not.
  void use(const FlatRange& range, const Tensor& value, const StateTensors& states) const;
  void rest() const;  ///< none of them are
  /// Cuts an owned range, or a part of one, where offloading begins and into what may be in use at a time, and calls
  /// `work` for each part, whose masters lie together and, if offloaded, are in use.
  void by_masters(const FlatRange& range, OffloadedMemory::Access access,
                  const std::function<void(const FlatRange&)>& work) const;
  void set_values(const FlatRange& range);
  Tensor master(const FlatRange& range) const;
  Tensor gradients_of(const FlatRange& range) const { return store_.gradients_of(range); }
  const Section& section_of(const FlatRange& range) const;
  StateTensors states_in(const Section& section, const FlatRange& range) const;
  UpdateArgs update_of(const Part& part, const FlatRange& range, const StateDraws& draws,
                       const UpdateSettings& settings, ConstTensor factor, ConstTensor skip) const;
  bool rounds_states() const { return groups_.state_type() != DType::f32; }
  static Piece piece_of(const Parameter& parameter, const FlatRange& range, const Names& states);
  /// Calls `work` for the parts of a chunk that one update may change: all of it, or where states are rounded each
  /// parameter's. What lies between parameters is 0 and stays so.
  template <class Work>
  void by_pieces(const Part& part, const FlatRange& chunk, const Work& work) const {
    if (!rounds_states()) return work(chunk, StateDraws{});
    auto piece = std::partition_point(part.pieces.begin(), part.pieces.end(),
                                      [&](const Piece& one) { return one.range.end() <= chunk.first; });
    for (; piece != part.pieces.end() && piece->range.first < chunk.end(); ++piece) {
      const std::int64_t first = std::max(piece->range.first, chunk.first);
      work(FlatRange{first, std::min(piece->range.end(), chunk.end()) - first}, draws_of(*piece, first));
    }
  }
  StateDraws draws_of(const Piece& piece, std::int64_t first) const;
  void update_part(const Part& part, const UpdateSettings& settings, ConstTensor factor, ConstTensor skip);
  void direct(const Part& part, ConstTensor gradient, const UpdateSettings& settings, ConstTensor factor,
              ConstTensor skip);
  /// Counts as much scratch as any of the copies needs, whichever matrices it owns.
  void take_matrix_scratch();
  void update_matrices(const Matrices& matrices, const UpdateSettings& settings, ConstTensor factor, ConstTensor skip);
  void add_square_sum(const std::vector<FlatRange>& ranges, Tensor total);
  void publish(std::size_t index);

  const ParameterStore& store_;
  ParameterGroups groups_;
  Ops& ops_;
  ParameterAllGather* gathers_;
  Arena* scratch_;
  std::int64_t cached_elements_;  // size of a chunk whose values are set from caches; 0: they are not
  std::vector<FlatRange> owned_;
  std::vector<std::int64_t> positions_;          // where the owned ranges lie in the master copy
  std::vector<std::vector<Part>> parts_;         // parts of each owned range, but for matrices
  std::vector<std::vector<Matrices>> matrices_;  // the same of these
  std::size_t matrix_bytes_ = 0;                 // scratch for the largest matrix of all copies
  std::int64_t gradient_room_ = 0;               // elements of the largest boxes of theirs that are updated together
  Division division_;
  std::uint64_t seed_ = 0;
  std::vector<FlatRange> in_norm_;  // counted in the norm by this rank, gaps included, but for experts
  std::vector<FlatRange> experts_in_norm_;
  std::vector<FlatRange> copies_;  // counted by another tensor rank, in gradients that both computed
  Buffer memory_;
  std::unique_ptr<OffloadedMemory> offloaded_;  // null: nothing is
  Tensor kept_masters_, offloaded_masters_;     // the parts of the master copy
  std::int64_t updates_ = 0;
};

}  // namespace megatron
