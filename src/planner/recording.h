// Recording: what a rank's program does in a step, in the order in which it does it: operations with their sizes, what
// communication it starts and waits for, where actions begin and end. Made by playing the program's own step
// (train/counting_job.h) with a Recorder as its listener, so there is no second model of the program; clocks
// (clock.h) turn it into seconds, for any hardware and as often as needed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/timers.h"
#include "ops/ops.h"
#include "train/counting_job.h"

namespace megatron {

/// c[m, n] of products with inner dimension k.
struct ProductWork {
  double rows = 0, columns = 0, inner = 0, bytes = 0;
  DType type = DType::f32;
};
/// Fused attention: the operations that the mask leaves and the bytes of its tensors; and what programs do that keep
/// the scores: the operations of the whole square, and the scores' elements.
struct AttentionWork {
  double flops = 0, bytes = 0, square_flops = 0, scores = 0;
  bool backward = false;
  DType type = DType::f32;
};
/// Any other operation: bytes read and written.
struct MemoryWork {
  double bytes = 0;
};
/// A collective was started. `bytes`: of the whole tensor.
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
};

/// Listens to a play. Must outlive the job. Records only while `recording` is set.
class Recorder final : public StepListener, public Ranges {
 public:
  explicit Recorder(int ranks_per_node) : ranks_per_node_(ranks_per_node) {}

  bool recording = false;
  Recording result;

  std::unique_ptr<Ops> around(std::unique_ptr<CountingOps> ops) override;
  std::unique_ptr<CountingCommunicator> tensors(int rank, int size, bool staged) override;

  /// Of a Timers: sections.
  void begin(const char* name, std::int64_t number) override;
  void end() override { add(LeftSection{}); }

  void add(const Event& event) {
    if (recording) result.events.push_back(event);
  }
  /// A group of these ranks of the world, by its number in result.groups.
  int add_group(const std::string& name, const std::vector<int>& members);
  int next_ticket() { return tickets_++; }

 private:
  int ranks_per_node_, tickets_ = 0;
};

}  // namespace megatron
