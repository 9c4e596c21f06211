#include "train/verify_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "comm/agreement.h"
#include "train/compute.h"
#include "train/layout_verdict.h"
#include "train/node_memory.h"
#include "train/report.h"
#include "train/trainer.h"

namespace megatron {

namespace {

constexpr std::int64_t kSteps = 3;  // of which the first also proves the initial weights, the others updates
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What one rank trains. The gradients are on rank 0 alone.
struct Reference {
  StepNumbers steps;
  ReferenceGradients gradients;
};

Config in_fp32(Config config) {
  config.precision = PrecisionConfig{};
  return config;
}

Config one_rank(Config config) {
  config.parallel = ParallelConfig{};
  config.parallel.data = 1;
  config.train.micro_batch_size = 1;
  config.recompute = RecomputeConfig{};
  config.optimizer.distributed = false;
  return in_fp32(config);
}

std::string grid_text(const Config& config) {
  const ParallelConfig& p = config.parallel;
  return fmt::format("tensor {} x data {} x pipeline {}", p.tensor, p.data, p.pipeline);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

std::size_t gradient_bytes(const MemoryPlan& plan) {
  return static_cast<std::size_t>(plan.parameters) * sizeof(float);
}

std::string bytes_text(double bytes) {
  return format_bytes(bytes);
}

// What is kept of the reference where it is played: all of its gradients, in the host's memory.
std::size_t kept_bytes(const MemoryPlan& plan, const Device& device) {
  return device.is_host_memory() ? gradient_bytes(plan) : 0;
}

// The reference and what is kept of it, on rank 0's node or device.
void check_reference_fits(const MemoryPlan& plan, const std::string& host, const Device& device) {
  const auto needed = static_cast<double>(plan.total() + kept_bytes(plan, device));
  const std::optional<std::size_t> free = device.free_bytes();
  const double available = free ? static_cast<double>(*free) : kInfinity;
  verify(needed <= available, ErrorKind::configuration,
         "--verify compares with the whole model on one rank, in fp32, which needs {} on {} (weights {}, {} "
         "{}, optimizer {}, activations {}), and {} are free there; verify the same layout with a smaller model: --set "
         "model.layers=..., model.hidden_size=... or train.global_batch_size=...",
         bytes_text(needed), host, bytes_text(static_cast<double>(plan.weights)),
         device.is_host_memory() ? "gradients twice" : "gradients", bytes_text(static_cast<double>(plan.gradients)),
         bytes_text(static_cast<double>(plan.optimizer)),
         bytes_text(static_cast<double>(plan.activations + plan.scratch + plan.kernels + plan.batch)),
         bytes_text(available));
}

// The layout is played in fp32, and then in its own precision, whose masters may make it the larger one.
void check_memory(Communicator& world, const std::string& host, const Device& device, const Config& reference,
                  const Config& rounded, const Config& own) {
  std::size_t kept = 0;
  agree(world, [&] {
    if (world.rank() != 0) return;
    const MemoryPlan plan = plan_memory(reference, {}, {});
    kept = gradient_bytes(plan);
    check_reference_fits(plan, host, device);
  });
  const GridShape shape = grid_shape(own);
  const GridCoordinates at = coordinates_of(world.rank(), shape);
  const auto plan_of = [&](Config config) {
    config.checkpoint.async = false;  // nothing is saved
    return plan_memory(config, shape, at);
  };
  const MemoryPlan wide = plan_of(rounded), as_it_is = plan_of(own);
  require_memory(
      world, host, device,
      {.device = std::max(wide.total(), as_it_is.total()), .host = std::max(wide.host, as_it_is.host) + kept},
      "verify the same layout with a smaller model, or on more nodes");
}

// ---- Playing --------------------------------------------------------------------------------------------------------

/// While it lives, nobody takes this rank's waiting for a hang.
class Patience {
 public:
  explicit Patience(Communicator& world) : activity_(world.activity()) {
    if (activity_ == nullptr) return;
    activity_->set_phase("reference");
    activity_->set_patient(true);
  }
  ~Patience() {
    if (activity_ != nullptr) activity_->set_patient(false);
  }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  Activity* activity_;
};

Reference play_reference(const Config& config, Communicator& alone, Backend& backend, Datasets& datasets,
                         std::int64_t steps, Log& log) {
  const std::unique_ptr<Communicator> transport = staged_transport(alone, *backend.device);
  const ProcessGrid grid(alone, {}, transport.get());
  Trainer trainer(config, grid, backend, datasets);
  Reference reference;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const double start = Timers::steady_seconds();
    const StepResult result = trainer.train_step();
    reference.steps.losses.push_back(result.loss);
    reference.steps.norms.push_back(result.gradient_norm);
    if (step == 1) reference.gradients = ReferenceGradients::of(trainer.replica().summed_gradients(), *backend.device);
    log.info("reference step {} of {}: loss {:.6f}, {:.1f} s", step, steps, result.loss,
             Timers::steady_seconds() - start);
  }
  return reference;
}

// The reference on rank 0; its losses and norms come to all.
Reference share_reference(const Config& config, Communicator& world, Backend& backend, Datasets& datasets,
                          std::int64_t steps, Log& log) {
  const std::unique_ptr<Communicator> alone = world.split(world.rank() == 0 ? 0 : 1, world.rank(), "reference");
  Reference reference;
  if (world.rank() == 0) reference = play_reference(config, *alone, backend, datasets, steps, log);
  const std::optional<Patience> patience = world.rank() == 0 ? std::nullopt : std::make_optional<Patience>(world);
  for (std::vector<double>* values : {&reference.steps.losses, &reference.steps.norms}) {
    values->resize(static_cast<std::size_t>(steps));
    world.broadcast(Tensor(values->data(), {steps}, DType::f64), 0);
  }
  return reference;
}

/// Nothing if the loss scale is not the last to try and a step was skipped, which the reference has not.
std::optional<LayoutVerdict> play_layout_at(const Config& config, bool last, const ProcessGrid& grid, Backend& backend,
                                            Datasets& datasets, const Reference& reference) {
  Trainer trainer(config, grid, backend, datasets);
  StepNumbers steps;
  std::vector<GradientDifference> gradients;
  for (std::size_t step = 0; step < reference.steps.losses.size(); ++step) {
    const StepResult result = trainer.train_step();
    // Whether it was skipped all ranks know alike; what each has read of the loss need not be the same.
    if (!last && result.skipped && !grid.world().any(!std::isfinite(result.loss))) return std::nullopt;
    steps.losses.push_back(result.loss);
    steps.norms.push_back(result.gradient_norm);
    if (step > 0) continue;
    gradients = compare_gradients(grid.world(), grid.world().rank() == 0 ? &reference.gradients : nullptr,
                                  trainer.replica().summed_gradients(), 1 / result.loss_scale, *backend.device);
  }
  LayoutVerdict verdict(steps, reference.steps, gradients, config.precision.dtype() == DType::f32 ? kRounding : kBand);
  // A copy that was updated otherwise, or not gathered, shows in no gradient. After a failure it would only hide it.
  if (!grid.world().any(!verdict.failure().empty())) trainer.check_replicas();
  return verdict;
}

// A dynamic loss scale would skip the steps that are to be compared: here it is the largest that skips none.
LayoutVerdict play_layout(Config config, Communicator& world, Compute& compute, Datasets& datasets,
                          const Reference& reference) {
  const ProcessGrid grid(world, grid_shape(config), compute.transport.get());
  PrecisionConfig& precision = config.precision;
  const bool dynamic = precision.dtype() == DType::f16 && precision.loss_scale == 0;
  if (dynamic) precision.loss_scale = precision.initial_loss_scale;
  for (;; precision.loss_scale /= 2) {
    const bool last = !dynamic || precision.loss_scale / 2 < precision.minimum_loss_scale;
    const std::optional<LayoutVerdict> verdict =
        play_layout_at(config, last, grid, compute.backend, datasets, reference);
    if (verdict) return *verdict;
  }
}

void judge(Communicator& world, Log& log, const Config& config, const LayoutVerdict& verdict) {
  log.info("{} on {} ({}) against one rank in fp32:", config.precision.compute,
           world.size() == 1 ? "one rank" : fmt::format("{} ranks", world.size()), grid_text(config));
  log.info(std::string_view(verdict.tables()));
  const std::string failure = world.broadcast_text(verdict.failure(), 0);
  verify(failure.empty(), ErrorKind::numerics, "--verify: in {}, this layout does not train what one rank trains: {}",
         config.precision.compute, failure);
  log.info("verified: {}: {}", config.precision.compute, verdict.summary());
}

}  // namespace

int verify_layout(Config config, Communicator& world, const RunEnvironment& environment, Log& log) {
  std::vector<std::string> warnings;
  const std::unique_ptr<Datasets> datasets = agree_on_run(config, world, warnings);
  for (const std::string& warning : warnings) log.warning(std::string_view(warning));
  Compute compute = start_compute(config.run, world, environment.host, environment.local_rank);
  const Config reference = one_rank(config), rounded = in_fp32(config);
  const bool own_precision = config.precision != PrecisionConfig{};
  const std::int64_t steps = std::min(kSteps, config.train.steps);
  log.info("megatron_train {} --verify: {} steps from the initial weights; {} is left alone", environment.version,
           steps, config.run.directory);
  if (rounded == reference && !own_precision) {
    log.info(
        "nothing to compare: one rank, one sample a micro-batch and no lever is the reference itself; start it "
        "on more ranks");
    return 0;
  }
  check_memory(world, environment.host, *compute.backend.device, reference, rounded, config);
  const Reference expected = share_reference(reference, world, compute.backend, *datasets, steps, log);
  if (rounded != reference) {
    judge(world, log, rounded, play_layout(rounded, world, compute, *datasets, expected));
  }
  if (own_precision) judge(world, log, config, play_layout(config, world, compute, *datasets, expected));
  return 0;
}

}  // namespace megatron
