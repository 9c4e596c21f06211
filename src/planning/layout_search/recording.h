// Recording: what a rank's program does in a step, in the order in which it does it: operations with their sizes, what
// communication it starts and waits for, where actions begin and end. Made by playing the program's own step
// (training/step/counting_job.h) with a Recorder as its listener, so there is no second model of the program; clocks
// (clock.h) turn it into seconds, for any hardware and as often as needed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/ops/ops.h"
#include "base/core/timers.h"
#include "planning/layout_search/measured_rates.h"
#include "training/step/counting_job.h"

namespace megatron {

/// c[m, n] of products with inner dimension k.
struct ProductWork {
  double rows = 0, columns = 0, inner = 0, bytes = 0;
  DType type = DType::f32;
  ProductKind kind = ProductKind::forward;
};
/// Fused attention: the operations that the mask leaves and the bytes of its tensors; and what programs do that keep
/// the scores: the operations of the whole square, and the scores' elements. `length`: of queries and keys, their
/// geometric mean.
struct AttentionWork {
  double flops = 0, bytes = 0, square_flops = 0, scores = 0, length = 0, head_size = 0;
  bool backward = false, drawn = false;  ///< dropout is
  DType type = DType::f32;

  AttentionKind kind() const {
    if (drawn) return backward ? AttentionKind::backward_drawn : AttentionKind::forward_drawn;
    return backward ? AttentionKind::backward : AttentionKind::forward;
  }
};
/// Any other operation: bytes read and written. What it is called, and of what kind it is where kinds differ in speed.
struct MemoryWork {
  double bytes = 0;
  std::string_view operation = {}, kind = {};
  bool of_parameters = false;  ///< reads all of a rank's, or their gradients: more than caches hold

  /// The key of its measured seconds: "layer_norm_forward_rmsnorm".
  std::string key() const;
};
/// A collective was started, or a message within a group that is none of stages. `bytes`: of the whole tensor.
struct StartedCollective {
  Verb verb = Verb::all_reduce;
  int group = 0, ticket = 0;
  double bytes = 0;
};
struct Waited {
  int ticket = 0;
};
/// A message to another stage was started. Stages' transfers are the schedule's to time.
struct SentMessage {
  double bytes = 0;
};
struct EnteredSection {
  Section section = Section::other;
};
struct LeftSection {};
/// A step begins.
struct StepBegins {};

using Event = std::variant<ProductWork, AttentionWork, MemoryWork, StartedCollective, Waited, SentMessage,
                           EnteredSection, LeftSection, StepBegins>;

/// A group of ranks that has communicated.
struct GroupFacts {
  std::string name;
  int ranks = 1, nodes = 1;
  int ranks_on_node = 1;  ///< on the node that has most of them
};

struct Recording {
  std::vector<Event> events;
  std::vector<GroupFacts> groups;
  DType type = DType::f32;  ///< that the run computes in
};

/// Listens to a play. Must outlive the job. Records only while `recording` is set.
class Recorder final : public StepListener, public Ranges {
 public:
  /// `in_parts`: the device has no fused verbs, and makes those one part after the other.
  Recorder(int ranks_per_node, bool in_parts, DType type) : ranks_per_node_(ranks_per_node), in_parts_(in_parts) {
    result.type = type;
  }

  bool recording = false;
  Recording result;

  std::unique_ptr<Ops> around(std::unique_ptr<CountingOps> ops) override;
  std::unique_ptr<CountingCommunicator> tensors(int rank, int size, bool staged) override;

  /// Called by a Timers for its sections.
  void begin(const char* name, std::int64_t number) override;
  void end() override { add(LeftSection{}); }

  void add(const Event& event) {
    if (recording) result.events.push_back(event);
  }
  /// A group of these ranks of the world, by its number in result.groups.
  int add_group(const std::string& name, const std::vector<int>& members);
  int next_ticket() { return tickets_++; }
  bool in_parts() const { return in_parts_; }

 private:
  int ranks_per_node_, tickets_ = 0;
  bool in_parts_;
};

}  // namespace megatron
