#include "pipeline/executor.h"

#include <algorithm>

namespace megatron {

namespace {
// One channel per direction; the neighbour makes it unique.
constexpr int kForwardChannel = 0, kBackwardChannel = 1;

// The action after which the gradients are complete.
const Action* last_backward(const std::vector<Action>& actions) {
  const auto last = std::find_if(actions.rbegin(), actions.rend(),
                                 [](const Action& action) { return action.kind != Action::Kind::forward; });
  return last == actions.rend() ? nullptr : &*last;
}

}  // namespace

void PipelineExecutor::Slot::wait_for_sends() {
  for (Pending& sent : sent_out) sent.wait();
  for (Pending& sent : sent_din) sent.wait();
}

PipelineExecutor::PipelineExecutor(const Stage& stage, const ProcessGrid& grid, const TensorRegion& region, int slots)
    : stage_(stage), grid_(grid), region_(region) {
  for (int i = 0; i < slots; ++i) add_slot(Slot("slot"));
}

PipelineExecutor::PipelineExecutor(const Stage& stage, const ProcessGrid& grid, const TensorRegion& region, int slots,
                                   Allocator& allocator, std::size_t slot_bytes)
    : stage_(stage), grid_(grid), region_(region) {
  for (int i = 0; i < slots; ++i) {
    Slot slot("slot");
    slot.memory = Buffer(allocator, slot_bytes);
    slot.arena = Arena("slot", slot.memory);
    add_slot(std::move(slot));
  }
}

void PipelineExecutor::add_slot(Slot slot) {
  slot.saved = stage_.make_saved();
  const auto links = static_cast<std::size_t>(stage_.links());
  const std::size_t behind = stage_.first() ? 0 : links, ahead = stage_.last() ? 0 : links;
  slot.in.resize(behind);
  slot.din.resize(behind);
  slot.sent_din.resize(behind);
  slot.out.resize(ahead);
  slot.dout.resize(ahead);
  slot.sent_out.resize(ahead);
  slots_.push_back(std::move(slot));
}

std::size_t PipelineExecutor::slot_bytes() const {
  std::size_t bytes = 0;
  for (const Slot& slot : slots_) bytes = std::max(bytes, slot.arena.high_water());
  return bytes;
}

void PipelineExecutor::allocate_link(StageData& link, const char* what, Slot& slot, const Context& context) const {
  for (std::size_t i = 0; i < link.size(); ++i) {
    const Shape shape =
        stage_.link_shape(static_cast<int>(i), context.micro_batch.sequence, context.micro_batch.samples);
    link[i] = slot.arena.allocate(what, shape, context.activation_type);
  }
}

void PipelineExecutor::forward(Slot& slot, Context& context, Tensor loss_total) {
  Communicator& pipeline = grid_.pipeline();
  slot.wait_for_sends();
  slot.arena.reset();
  allocate_link(slot.in, "stage input", slot, context);
  for (Tensor& tensor : slot.in) pipeline.start_receive(tensor, pipeline.rank() - 1, kForwardChannel).wait();
  allocate_link(slot.out, "stage output", slot, context);
  stage_.forward(context, slot.in, slot.out, loss_total, *slot.saved);
  for (std::size_t i = 0; i < slot.out.size(); ++i) {
    slot.sent_out[i] = pipeline.start_send(slot.out[i], pipeline.rank() + 1, kForwardChannel);
  }
}

void PipelineExecutor::backward(Slot& slot, Context& context) {
  Communicator& pipeline = grid_.pipeline();
  allocate_link(slot.dout, "stage output gradient", slot, context);
  for (Tensor& tensor : slot.dout) pipeline.start_receive(tensor, pipeline.rank() + 1, kBackwardChannel).wait();
  allocate_link(slot.din, "stage input gradient", slot, context);
  stage_.backward(context, slot.dout, slot.din, *slot.saved);
  for (std::size_t i = 0; i < slot.din.size(); ++i) {
    slot.sent_din[i] = pipeline.start_send(slot.din[i], pipeline.rank() - 1, kBackwardChannel);
  }
}

void PipelineExecutor::run(const std::vector<Action>& actions, std::span<const MicroBatch> micro_batches,
                           const PassSettings& settings, Ops& ops, Arena& scratch, Tensor loss_total, Timers& timers) {
  const Action* last = last_backward(actions);
  for (const Action& action : actions) {
    Slot& slot = slots_[static_cast<std::size_t>(action.slot)];
    Context context{.ops = ops,
                    .region = region_,
                    .saved = slot.arena,
                    .scratch = scratch,
                    .micro_batch = micro_batches[static_cast<std::size_t>(action.micro_batch)],
                    .activation_type = settings.activation_type,
                    .training = settings.training,
                    .seed = settings.seed,
                    .step = settings.step,
                    .gradient_sums = &action == last ? settings.gradient_sums : nullptr};
    switch (action.kind) {
      case Action::Kind::forward: {
        const Timers::Scope scope(timers, settings.training ? Section::forward : Section::evaluation);
        forward(slot, context, loss_total);
        break;
      }
      case Action::Kind::backward: {
        const Timers::Scope scope(timers, Section::backward);
        backward(slot, context);
        break;
      }
      case Action::Kind::backward_input:
      case Action::Kind::backward_weight:
        fail(ErrorKind::internal, "the executor does not play backwards that are cut in two");
    }
  }
  for (Slot& slot : slots_) slot.wait_for_sends();
}

}  // namespace megatron
