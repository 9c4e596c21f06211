// OpsDecorator: operations that pass every verb on to other operations, and what can be done around each: timing,
// waiting, damage on purpose. Owns the operations it wraps; knows their names, nothing of what they compute.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "backend/ops/device.h"
#include "backend/ops/ops.h"

namespace megatron {

class OpsDecorator : public Ops {
 public:
  explicit OpsDecorator(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}

#define MEGATRON_VERB(name, parameters, arguments) \
  void name parameters override {                  \
    pass(#name, [&] { ops_->name arguments; });    \
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
    ops_->read(x, host);
  }
  Ranges* ranges() override {
    return ops_->ranges();
  }

 private:
  /// Calls `call`, which is the verb of this name.
  virtual void pass(const char* verb, const std::function<void()>& call) = 0;

  std::unique_ptr<Ops> ops_;
};

/// Puts operations that decorate others around the backend's, which owns them.
template <class Decorator>
Decorator* put_around(Backend& backend) {
  auto ops = std::make_unique<Decorator>(std::move(backend.ops));
  Decorator* const decorator = ops.get();
  backend.ops = std::move(ops);
  return decorator;
}

}  // namespace megatron
