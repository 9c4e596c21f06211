#include "train/verify_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/memory_usage.h"
#include "comm/agreement.h"
#include "train/gradient_comparison.h"
#include "train/report.h"
#include "train/trainer.h"

namespace megatron {

namespace {

constexpr std::int64_t kSteps = 3;  // of which the first also proves the initial weights, the others updates
constexpr std::size_t kRowsShown = 5;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What may differ, relative to the reference.
struct Promise {
  double loss, norm, gradient;
};
constexpr Promise kRounding{1e-5, 1e-5, 5e-5};  // fp32
constexpr Promise kBand{5e-3, 5e-2, 5e-2};      // 16 bits

/// Losses and gradient norms of some steps, and the gradients of the first.
struct Trace {
  std::vector<double> losses, norms;
  ReferenceGradients gradients;  // of the reference, on rank 0
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

// The reference and what is kept of it, on rank 0's node.
void check_reference_fits(const MemoryPlan& plan, const std::string& host) {
  const auto needed = static_cast<double>(plan.total() + gradient_bytes(plan));
  const auto available = static_cast<double>(free_memory_bytes());
  verify(
      available == 0 || needed <= available, ErrorKind::configuration,
      "--verify compares with the whole model on one rank, in fp32, which needs {} on {} (weights {}, gradients twice "
      "{}, optimizer {}, activations {}), and {} are free there; verify the same layout with a smaller model: --set "
      "model.layers=..., model.hidden_size=... or train.global_batch_size=...",
      bytes_text(needed), host, bytes_text(static_cast<double>(plan.weights)),
      bytes_text(static_cast<double>(plan.gradients)), bytes_text(static_cast<double>(plan.optimizer)),
      bytes_text(static_cast<double>(plan.activations() + plan.scratch + plan.batch)), bytes_text(available));
}

// All ranks of a node together, and the reference's gradients on rank 0's.
void check_layout_fits(Communicator& world, const std::string& host, const MemoryPlan& plan, std::size_t kept) {
  const nlohmann::json mine = {{"host", host}, {"needed", plan.total() + kept}, {"free", free_memory_bytes()}};
  const std::vector<std::string> ranks = world.gather_texts(mine.dump(), 0);
  agree(world, [&] {
    struct Node {
      double needed = 0, free = kInfinity;
    };
    std::map<std::string, Node> nodes;
    for (const std::string& text : ranks) {
      const auto rank = nlohmann::json::parse(text);
      Node& node = nodes[rank.at("host")];
      node.needed += rank.at("needed").get<double>();
      if (rank.at("free").get<double>() > 0) node.free = std::min(node.free, rank.at("free").get<double>());
    }
    for (const auto& [name, node] : nodes) {
      verify(node.needed <= node.free, ErrorKind::configuration,
             "--verify: the ranks on {} need {} for the layout in fp32, and {} are free there; verify the same layout "
             "with a smaller model, or on more nodes",
             name, bytes_text(node.needed), bytes_text(node.free));
    }
  });
}

void check_memory(Communicator& world, const std::string& host, const Config& reference, const Config& layout) {
  std::size_t kept = 0;
  agree(world, [&] {
    if (world.rank() != 0) return;
    const MemoryPlan plan = plan_memory(reference, {}, {});
    kept = gradient_bytes(plan);
    check_reference_fits(plan, host);
  });
  const GridShape shape = grid_shape(layout);
  check_layout_fits(world, host, plan_memory(layout, shape, coordinates_of(world.rank(), shape)), kept);
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

Trace play_reference(const Config& config, Communicator& alone, Backend& backend, Datasets& datasets,
                     std::int64_t steps, Log& log) {
  const ProcessGrid grid(alone, {});
  Trainer trainer(config, grid, backend, datasets);
  Trace trace;
  for (std::int64_t step = 1; step <= steps; ++step) {
    const double start = Timers::steady_seconds();
    const StepResult result = trainer.train_step();
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.gradient_norm);
    if (step == 1) trace.gradients = ReferenceGradients::of(trainer.replica().summed_gradients(), *backend.device);
    log.info("reference step {} of {}: loss {:.6f}, {:.1f} s", step, steps, result.loss,
             Timers::steady_seconds() - start);
  }
  return trace;
}

// The reference on rank 0; losses and norms come to all.
Trace reference_trace(const Config& config, Communicator& world, Backend& backend, Datasets& datasets,
                      std::int64_t steps, Log& log) {
  const std::unique_ptr<Communicator> alone = world.split(world.rank() == 0 ? 0 : 1, world.rank(), "reference");
  Trace trace;
  if (world.rank() == 0) trace = play_reference(config, *alone, backend, datasets, steps, log);
  trace.losses.resize(static_cast<std::size_t>(steps));
  trace.norms.resize(static_cast<std::size_t>(steps));
  const std::optional<Patience> patience = world.rank() == 0 ? std::nullopt : std::make_optional<Patience>(world);
  for (std::vector<double>* values : {&trace.losses, &trace.norms}) {
    world.broadcast(Tensor(values->data(), {steps}, DType::f64), 0);
  }
  return trace;
}

struct Comparison {
  Trace layout;
  std::vector<GradientDifference> gradients;  // in the order of the model
};

Comparison play_layout(const Config& config, Communicator& world, Backend& backend, Datasets& datasets,
                       const Trace& reference) {
  const ProcessGrid grid(world, grid_shape(config));
  Trainer trainer(config, grid, backend, datasets);
  Comparison comparison;
  for (std::size_t step = 0; step < reference.losses.size(); ++step) {
    const StepResult result = trainer.train_step();
    comparison.layout.losses.push_back(result.loss);
    comparison.layout.norms.push_back(result.gradient_norm);
    if (step > 0) continue;
    comparison.gradients = compare_gradients(world, world.rank() == 0 ? &reference.gradients : nullptr,
                                             trainer.replica().summed_gradients(), 1, *backend.device);
  }
  return comparison;
}

// ---- Judging --------------------------------------------------------------------------------------------------------

double relative(double value, double reference) {
  const double difference = std::abs(value - reference) / std::abs(reference);
  return std::isfinite(difference) ? difference : value == reference ? 0 : kInfinity;
}

/// The largest, and the first step (from 1) that is beyond what is allowed; 0: none.
struct Worst {
  double largest = 0;
  std::size_t first_step = 0;
};

Worst worst_of(const std::vector<double>& values, const std::vector<double>& reference, double allowed) {
  Worst worst;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = relative(values[i], reference[i]);
    worst.largest = std::max(worst.largest, difference);
    if (difference > allowed && worst.first_step == 0) worst.first_step = i + 1;
  }
  return worst;
}

void log_tables(Log& log, const Comparison& comparison, const Trace& reference) {
  log.info("  {:>4} {:>12} {:>12} {:>10}   {:>13} {:>12} {:>10}", "step", "loss", "one rank", "difference",
           "gradient norm", "one rank", "difference");
  for (std::size_t i = 0; i < reference.losses.size(); ++i) {
    const double loss = comparison.layout.losses[i], norm = comparison.layout.norms[i];
    log.info("  {:>4} {:>12.7f} {:>12.7f} {:>10.1e}   {:>13.6g} {:>12.6g} {:>10.1e}", i + 1, loss, reference.losses[i],
             relative(loss, reference.losses[i]), norm, reference.norms[i], relative(norm, reference.norms[i]));
  }
  std::vector<GradientDifference> worst = comparison.gradients;
  std::stable_sort(worst.begin(), worst.end(), [](const auto& a, const auto& b) { return a.relative > b.relative; });
  if (worst.size() > kRowsShown) worst.resize(kRowsShown);
  log.info("  gradients of step 1, the {} of {} that differ most:", worst.size(), comparison.gradients.size());
  log.info("  {:>10} {:>12} {:>5}   {}", "difference", "its norm", "rank", "parameter");
  for (const GradientDifference& row : worst) {
    log.info("  {:>10.1e} {:>12.6g} {:>5}   {}", row.relative, row.norm, row.rank, row.name);
  }
}

// What is beyond the promise and where to look for it; empty: nothing.
std::string describe_failure(const Comparison& comparison, const Trace& reference, const Promise& promise) {
  const Worst loss = worst_of(comparison.layout.losses, reference.losses, promise.loss);
  const Worst norm = worst_of(comparison.layout.norms, reference.norms, promise.norm);
  std::vector<std::string> parts;
  const auto add = [&](const char* what, const Worst& worst, const std::vector<double>& here,
                       const std::vector<double>& there, double allowed) {
    if (worst.first_step == 0) return;
    const std::size_t i = worst.first_step - 1;
    parts.push_back(fmt::format("the {} of step {} is {:.9g} instead of {:.9g} (off by {:.1e}; allowed {:.0e})", what,
                                worst.first_step, here[i], there[i], relative(here[i], there[i]), allowed));
  };
  add("loss", loss, comparison.layout.losses, reference.losses, promise.loss);
  add("gradient norm", norm, comparison.layout.norms, reference.norms, promise.norm);
  std::size_t beyond = 0;
  const GradientDifference* last = nullptr;  // the nearest to the loss
  for (const GradientDifference& difference : comparison.gradients) {
    if (difference.relative <= promise.gradient) continue;
    ++beyond;
    last = &difference;
  }
  if (beyond > 0) {
    parts.push_back(fmt::format("{} of {} gradients of step 1 are off by more than {:.0e}", beyond,
                                comparison.gradients.size(), promise.gradient));
  }
  if (parts.empty()) return "";
  std::string hint;
  if (loss.first_step == 1) {
    hint = "the forward pass of step 1 is another one already";
  } else if (beyond == 0) {
    hint = "the gradients of step 1 are right: look at what comes after them, the norm and the update";
  }
  if (beyond > 0) {
    hint += fmt::format("{}{} {}, by {:.1e}, most of it on rank {}{}", hint.empty() ? "" : "; ",
                        beyond == 1 ? "the only one is" : "backward from the loss, the first that is off is",
                        last->name, last->relative, last->rank,
                        beyond == 1 ? "" : ": errors travel from there to the layers before it");
  }
  return fmt::format("{}; {}", fmt::join(parts, ", "), hint);
}

void judge(Communicator& world, Log& log, const Config& config, const Comparison& comparison, const Trace& reference) {
  const bool half = config.precision.dtype() != DType::f32;
  const Promise promise = half ? kBand : kRounding;
  log.info("{} on {} ({}) against one rank in fp32:", config.precision.compute,
           world.size() == 1 ? "one rank" : fmt::format("{} ranks", world.size()), grid_text(config));
  log_tables(log, comparison, reference);
  const std::string failure = world.broadcast_text(describe_failure(comparison, reference, promise), 0);
  verify(failure.empty(), ErrorKind::numerics, "--verify: in {}, this layout does not train what one rank trains: {}",
         config.precision.compute, failure);
  double gradient = 0;
  for (const GradientDifference& difference : comparison.gradients) gradient = std::max(gradient, difference.relative);
  log.info(
      "verified: {}: loss within {:.1e} ({:.0e} allowed), gradient norm {:.1e} ({:.0e}), {} gradients {:.1e} "
      "({:.0e})",
      config.precision.compute, worst_of(comparison.layout.losses, reference.losses, promise.loss).largest,
      promise.loss, worst_of(comparison.layout.norms, reference.norms, promise.norm).largest, promise.norm,
      comparison.gradients.size(), gradient, promise.gradient);
}

}  // namespace

int verify_layout(Config config, Communicator& world, const RunEnvironment& environment, Log& log) {
  const std::unique_ptr<Datasets> datasets = agree_on_run(config, world);
  const Config reference = one_rank(config), rounded = in_fp32(config);
  const bool own_precision = config.precision.dtype() != DType::f32;
  const std::int64_t steps = std::min(kSteps, config.train.steps);
  log.info("megatron_train {} --verify: {} steps from the initial weights; {} is left alone", environment.version,
           steps, config.run.directory);
  if (rounded == reference && !own_precision) {
    log.info(
        "nothing to compare: one rank, one sample a micro-batch and no lever is the reference itself; start it "
        "on more ranks");
    return 0;
  }
  check_memory(world, environment.host, reference, rounded);
  Backend backend = make_backend(config.run, environment.local_rank);
  const Trace expected = reference_trace(reference, world, backend, *datasets, steps, log);
  if (rounded != reference) {
    judge(world, log, rounded, play_layout(rounded, world, backend, *datasets, expected), expected);
  }
  if (own_precision) judge(world, log, config, play_layout(config, world, backend, *datasets, expected), expected);
  return 0;
}

}  // namespace megatron
