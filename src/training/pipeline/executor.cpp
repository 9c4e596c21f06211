#include "training/pipeline/executor.h"

#include <algorithm>
#include <numeric>

#include "distributed/comm/meanings.h"

namespace megatron {

namespace {
// One channel per direction of the model; the neighbour makes it unique, even where one rank is both neighbours.
constexpr int kForwardChannel = 0, kBackwardChannel = 1;
}  // namespace

std::size_t ExecutorMemory::sum(const std::vector<std::size_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
}

void PipelineExecutor::SentMemory::wait_for_sends() {
  for (Pending& pending : sent) pending.wait();
}

void PipelineExecutor::SentMemory::start_again() {
  wait_for_sends();
  arena.reset();
}

PipelineExecutor::PipelineExecutor(Chunks chunks, const ProcessGrid& grid, const TensorRegion& region,
                                   const Lists& lists)
    : chunks_(std::move(chunks)),
      grid_(grid),
      region_(region),
      context_region_(grid),
      previous_((grid.pipeline().rank() + grid.pipeline().size() - 1) % grid.pipeline().size()),
      next_((grid.pipeline().rank() + 1) % grid.pipeline().size()),
      chunk_bytes_(chunks_.size()),
      last_backward_(chunks_.size()) {
  int slots = 0;
  for (const std::vector<Action>* list : lists) slots = std::max(slots, slot_count(*list));
  for (int slot = 0; slot < slots; ++slot) add_slot(SentMemory("slot"));
  gradient_buffers_.push_back({SentMemory("gradient buffer"), {}});
}

PipelineExecutor::PipelineExecutor(Chunks chunks, const ProcessGrid& grid, const TensorRegion& region,
                                   const ExecutorMemory& memory, Allocator& allocator)
    : chunks_(std::move(chunks)),
      grid_(grid),
      region_(region),
      context_region_(grid),
      previous_((grid.pipeline().rank() + grid.pipeline().size() - 1) % grid.pipeline().size()),
      next_((grid.pipeline().rank() + 1) % grid.pipeline().size()),
      chunk_bytes_(chunks_.size()),
      last_backward_(chunks_.size()) {
  for (const std::size_t bytes : memory.slots) add_slot(SentMemory("slot", allocator, bytes));
  for (const std::size_t bytes : memory.gradient_buffers) {
    gradient_buffers_.push_back({SentMemory("gradient buffer", allocator, bytes), {}});
  }
}

void PipelineExecutor::add_slot(SentMemory memory) {
  Slot slot{std::move(memory), {}, {}, {}, {}, {}};
  for (const Stage* chunk : chunks_) slot.saved.push_back(chunk->make_saved());
  slots_.push_back(std::move(slot));
}

ExecutorMemory PipelineExecutor::memory_for(const Lists& lists) const {
  ExecutorMemory memory;
  const auto chunks = static_cast<int>(chunks_.size());
  const std::size_t gradient = gradient_buffers_.empty() ? 0 : gradient_buffers_.front().memory.arena.high_water();
  for (const std::vector<Action>* list : lists) {
    int micro_batches = 0;
    const bool evaluates = std::all_of(list->begin(), list->end(),
                                       [](const Action& action) { return action.kind == Action::Kind::forward; });
    for (const Action& action : *list) {
      const auto slot = static_cast<std::size_t>(action.slot);
      if (slot >= memory.slots.size()) memory.slots.resize(slot + 1);
      const Bytes& bytes = chunk_bytes_[static_cast<std::size_t>(action.chunk)];
      // An evaluation that was not played takes no more than a training step's forward.
      const std::size_t forward = evaluates && bytes.evaluation > 0 ? bytes.evaluation : bytes.forward;
      memory.slots[slot] =
          std::max(memory.slots[slot], action.kind == Action::Kind::forward ? forward : bytes.backward);
      micro_batches = std::max(micro_batches, action.micro_batch + 1);
    }
    const auto buffers = static_cast<std::size_t>(gradient_buffers(grid_.pipeline().size(), micro_batches, chunks));
    if (gradient > 0 && buffers > memory.gradient_buffers.size()) memory.gradient_buffers.resize(buffers, gradient);
  }
  return memory;
}

ExecutorMemory PipelineExecutor::used() const {
  ExecutorMemory memory;
  for (const Slot& slot : slots_) memory.slots.push_back(slot.memory.arena.high_water());
  for (const GradientBuffer& buffer : gradient_buffers_) {
    memory.gradient_buffers.push_back(buffer.memory.arena.high_water());
  }
  return memory;
}

void PipelineExecutor::allocate_links(StageData& data, std::span<const Link> links, const char* what, Arena& arena,
                                      const Context& context) const {
  data.resize(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    const std::int64_t rows = region_.local_sequence_length(context.micro_batch.rows(links[i].stream).sequence);
    data[i] = arena.allocate(what, {rows, context.micro_batch.samples, links[i].width}, context.pass.activation_type);
  }
}

void PipelineExecutor::send(const StageData& link, std::vector<Pending>& sent, int to, int channel,
                            const Holding<Hold::own>& said) const {
  sent.resize(link.size());
  for (std::size_t i = 0; i < link.size(); ++i) sent[i] = grid_.pipeline().start_send(link[i], to, channel, said);
}

void PipelineExecutor::forward(const Stage& stage, Slot& slot, StageSaved& saved, Context& context) {
  slot.memory.start_again();
  allocate_links(slot.in, stage.receives(), "stage input", slot.memory.arena, context);
  for (Tensor& tensor : slot.in)
    grid_.pipeline().start_receive(tensor, previous_, kForwardChannel, kStageOutput).wait();
  allocate_links(slot.out, stage.sends(), "stage output", slot.memory.arena, context);
  stage.forward(context, slot.in, slot.out, saved);
  send(slot.out, slot.memory.sent, next_, kForwardChannel, kStageOutput);
}

void PipelineExecutor::backward(const Stage& stage, Slot& slot, StageSaved& saved, Context& context) {
  allocate_links(slot.dout, stage.sends(), "stage output gradient", slot.memory.arena, context);
  GradientBuffer* buffer = nullptr;
  if (!stage.first()) {
    buffer = &gradient_buffers_[gradients_sent_++ % gradient_buffers_.size()];
    buffer->memory.start_again();
    allocate_links(buffer->din, stage.receives(), "stage input gradient", buffer->memory.arena, context);
  }
  for (Tensor& tensor : slot.dout)
    grid_.pipeline().start_receive(tensor, next_, kBackwardChannel, kStageGradient).wait();
  const StageData& din = buffer == nullptr ? no_links_ : buffer->din;
  stage.backward(context, slot.dout, din, saved);
  if (buffer != nullptr) send(buffer->din, buffer->memory.sent, previous_, kBackwardChannel, kStageGradient);
}

// Notes which backward is each chunk's last.
void PipelineExecutor::prepare(const std::vector<Action>& actions) {
  const int slots = slot_count(actions);
  internal_check(slots <= static_cast<int>(slots_.size()), "a list with more slots than were planned", slots,
                 slots_.size());
  std::fill(last_backward_.begin(), last_backward_.end(), nullptr);
  for (const Action& action : actions) {
    if (action.kind != Action::Kind::forward) last_backward_[static_cast<std::size_t>(action.chunk)] = &action;
  }
}

void PipelineExecutor::run(const std::vector<Action>& actions, std::span<const MicroBatch> micro_batches,
                           const PassSettings& settings, Ops& ops, Arena& scratch, Timers& timers) {
  prepare(actions);
  for (const Action& action : actions) {
    const auto chunk = static_cast<std::size_t>(action.chunk);
    const Stage& stage = *chunks_[chunk];
    Slot& slot = slots_[static_cast<std::size_t>(action.slot)];
    ImmediateWeightGradients immediate(&action == last_backward_[chunk] ? settings.gradient_reducer : nullptr);
    Context context{.ops = ops,
                    .region = region_,
                    .saved = &slot.memory.arena,
                    .scratch = scratch,
                    .micro_batch = micro_batches[static_cast<std::size_t>(action.micro_batch)],
                    .pass = settings,
                    .weight_gradients = &immediate,
                    .counts = action.kind == Action::Kind::forward,
                    .context_region = &context_region_};
    if (action.kind == Action::Kind::backward_input) context.weight_gradients = &slot.deferred_gradients;
    if (!settings.results.empty()) context.results = &settings.results[static_cast<std::size_t>(action.micro_batch)];
    const Range of_chunks(chunks_.size() > 1 ? ops.ranges() : nullptr, "chunk", action.chunk);
    switch (action.kind) {
      case Action::Kind::forward: {
        const Timers::Scope scope(timers, settings.training ? Section::forward : Section::evaluation,
                                  action.micro_batch);
        forward(stage, slot, *slot.saved[chunk], context);
        break;
      }
      case Action::Kind::backward_input:
      case Action::Kind::backward: {
        const Timers::Scope scope(timers, Section::backward, action.micro_batch);
        backward(stage, slot, *slot.saved[chunk], context);
        break;
      }
      case Action::Kind::backward_weight: {
        const Timers::Scope scope(timers, Section::backward, action.micro_batch);
        const Range range(ops.ranges(), "weight gradients");
        stage.backward_weight(context, slot.deferred_gradients, *slot.saved[chunk]);
      }
    }
    // Layers give back nothing of a slot before it starts again, so that the end of an action is its most.
    const bool forward = action.kind == Action::Kind::forward;
    Bytes& of_chunk = chunk_bytes_[chunk];
    std::size_t& bytes = !forward ? of_chunk.backward : settings.training ? of_chunk.forward : of_chunk.evaluation;
    bytes = std::max(bytes, slot.memory.arena.used());
  }
  for (Slot& slot : slots_) slot.memory.wait_for_sends();
  for (GradientBuffer& buffer : gradient_buffers_) buffer.memory.wait_for_sends();
}

}  // namespace megatron
