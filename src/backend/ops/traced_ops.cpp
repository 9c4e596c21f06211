#include "backend/ops/traced_ops.h"

#include <utility>

namespace megatron {

namespace {

// Not an OpsDecorator: its std::function may allocate.
class TracedOps final : public Ops {
 public:
  TracedOps(std::unique_ptr<Ops> ops, std::shared_ptr<TraceRecorder> recorder)
      : recorder_(std::move(recorder)), ops_(std::move(ops)) {
    recorder_->pass_on_to(ops_->ranges());
  }

#define MEGATRON_VERB(name, parameters, arguments)             \
  void name parameters override {                              \
    const TraceRecorder::Operation written(*recorder_, #name); \
    ops_->name arguments;                                      \
  }
  MEGATRON_VERBS(MEGATRON_VERB)
  MEGATRON_FUSED_VERBS(MEGATRON_VERB)
#undef MEGATRON_VERB

  std::size_t workspace_bytes() const override {
    return ops_->workspace_bytes();
  }
  void reserve(std::size_t bytes) override {
    ops_->reserve(bytes);
  }
  void read(ConstTensor x, void* host) override {
    const TraceRecorder::Operation written(*recorder_, "read");
    ops_->read(x, host);
  }
  Ranges* ranges() override {
    return recorder_.get();
  }

 private:
  std::shared_ptr<TraceRecorder> recorder_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace

std::unique_ptr<Ops> with_trace(std::unique_ptr<Ops> ops, std::shared_ptr<TraceRecorder> recorder) {
  return std::make_unique<TracedOps>(std::move(ops), std::move(recorder));
}

}  // namespace megatron
