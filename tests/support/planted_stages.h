// A model family whose records are changed after they are declared, and whose passes are played in another way: errors
// of layers, planted from outside.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "models/families/family.h"

namespace megatron::test {

/// Plays a pass through a stage by play(), with the context it is given or another.
using AroundPass = std::function<void(Context& context, const std::function<void(Context&)>& play)>;

/// Hands everything on to another stage, forwards and backwards by way of `around`.
class PlantedStage final : public Stage {
 public:
  PlantedStage(std::unique_ptr<Stage> inner, AroundPass around)
      : inner_(std::move(inner)), around_(std::move(around)) {}

  std::span<const Link> receives() const override { return inner_->receives(); }
  std::span<const Link> sends() const override { return inner_->sends(); }
  bool reads(const BatchField& field) const override { return inner_->reads(field); }
  std::unique_ptr<StageSaved> make_saved() const override { return inner_->make_saved(); }
  void forward(Context& context, const StageData& in, const StageData& out, StageSaved& saved) const override {
    around_(context, [&](Context& other) { inner_->forward(other, in, out, saved); });
  }
  void backward(Context& context, const StageData& dout, const StageData& din, StageSaved& saved) const override {
    around_(context, [&](Context& other) { inner_->backward(other, dout, din, saved); });
  }
  void backward_weight(Context& context, DeferredWeightGradients& work, StageSaved& saved) const override {
    inner_->backward_weight(context, work, saved);
  }

 private:
  std::unique_ptr<Stage> inner_;
  AroundPass around_;
};

/// A thread's: one at a time, and longer than the replica of its family.
class PlantedStages {
 public:
  /// `record` may change each parameter; `around` is for passes on `grid`, and not for those that a plan plays.
  PlantedStages(const Config& config, const ProcessGrid& grid, std::function<void(Parameter&)> record,
                AroundPass around)
      : family_(family_of(config.model)), grid_(grid), record_(std::move(record)), around_(std::move(around)) {
    here() = this;
  }
  ~PlantedStages() { here() = nullptr; }
  PlantedStages(const PlantedStages&) = delete;
  PlantedStages& operator=(const PlantedStages&) = delete;

  ModelFamily family() const {
    ModelFamily planted = family_;
    planted.make_stages = &make;
    return planted;
  }

 private:
  static PlantedStages*& here() {
    static thread_local PlantedStages* planted = nullptr;
    return planted;
  }
  static Stages make(const Config& config, const ProcessGrid& grid, const TensorRegion& region, ParameterStore& store) {
    const PlantedStages& planted = *here();
    Stages stages = planted.family_.make_stages(config, grid, region, store);
    if (planted.record_) {
      for (const Parameter& parameter : store.all()) planted.record_(const_cast<Parameter&>(parameter));
    }
    if (planted.around_ && &grid == &planted.grid_) {
      for (auto& stage : stages) stage = std::make_unique<PlantedStage>(std::move(stage), planted.around_);
    }
    return stages;
  }

  const ModelFamily& family_;
  const ProcessGrid& grid_;
  std::function<void(Parameter&)> record_;
  AroundPass around_;
};

}  // namespace megatron::test
