#include "training/loop/verify_layout.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "base/text/byte_text.h"
#include "distributed/comm/agreement.h"
#include "distributed/parallel/checked_collectives.h"
#include "distributed/parallel/record_check.h"
#include "distributed/process/node_memory.h"
#include "training/loop/compare_steps.h"
#include "training/loop/hang_watch_pause.h"
#include "training/step/check_plan.h"
#include "training/step/grid.h"

namespace megatron {

namespace {

constexpr std::int64_t kSteps = 3;
constexpr int kRoundingRuns = 12;  // per step: a kink that rounding decides may fall the same way in one or two
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Config in_fp32(Config config) {
  config.precision = PrecisionConfig{};
  return config;
}

Config one_rank(Config config) {
  config.parallel = ParallelConfig{};
  config.parallel.data = 1;
  config.train.micro_batch_size = 1;
  config.recompute = RecomputeConfig{};
  config.optimizer.share = "none";
  return config;
}

std::string grid_text(const Config& config) {
  const ParallelConfig& p = config.parallel;
  return fmt::format("tensor {}{} x data {} x pipeline {}{}", p.tensor,
                     p.context > 1 ? fmt::format(" x context {}", p.context) : "", p.data, p.pipeline,
                     p.expert > 1 ? fmt::format(" with expert {}", p.expert) : "");
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

// Bytes kept of the runs on one rank, in the host's memory: the gradients of all their steps, and the parameters.
std::size_t kept_bytes(const MemoryPlan& plan, std::int64_t steps, bool own_precision) {
  const std::int64_t copies = (steps + 1) * (own_precision ? 2 : 1);
  return static_cast<std::size_t>(plan.parameters * copies) * sizeof(float);
}

std::string bytes_text(double bytes) {
  return format_bytes(bytes);
}

// The reference and what is kept of it, on rank 0's node or device.
void check_reference_fits(const MemoryPlan& plan, std::size_t kept, const std::string& host, const Device& device) {
  const auto needed = static_cast<double>(plan.total() + (device.is_host_memory() ? kept : 0));
  const std::optional<std::size_t> free = device.free_bytes();
  const double available = free ? static_cast<double>(*free) : kInfinity;
  verify(needed <= available, ErrorKind::configuration,
         "--verify compares with the whole model on one rank, in fp32, which needs {} on {} (weights {}, "
         "gradients {}, optimizer {}, activations {}{}), and {} are free there; verify the same layout with a smaller "
         "model: --set model.layers=..., model.hidden_size=... or train.global_batch_size=...",
         bytes_text(needed), host, bytes_text(static_cast<double>(plan.weights)),
         bytes_text(static_cast<double>(plan.gradients)), bytes_text(static_cast<double>(plan.optimizer)),
         bytes_text(static_cast<double>(plan.activations + plan.scratch + plan.kernels + plan.batch)),
         device.is_host_memory() ? ", kept to compare " + bytes_text(static_cast<double>(kept)) : "",
         bytes_text(available));
}

// The layout is run in fp32, and then in its own precision, whose masters may make it the larger one.
void check_memory(Communicator& world, const std::string& host, const Compute& compute, const Config& own,
                  std::int64_t steps, bool check_collectives) {
  const Device& device = *compute.backend.device;
  const auto plan_of = [&](Config config, const GridShape& shape, const GridCoordinates& at) {
    config.checkpoint.async = false;  // nothing is saved
    config.run.trace_steps = {};      // nor traced
    return plan_memory(config, shape, at, compute.transport_kind);
  };
  const Config reference = in_fp32(one_rank(own)), rounded = in_fp32(own);
  std::size_t kept = 0;
  agree(world, [&] {
    if (world.rank() != 0) return;
    const MemoryPlan plan = plan_of(reference, {}, {});
    kept = kept_bytes(plan, steps, own != rounded);
    check_reference_fits(plan, kept, host, device);
  });
  const GridShape shape = grid_shape(own);
  const GridCoordinates at = coordinates_of(world.rank(), shape);
  const auto need_of = [&](const Config& config) {
    const MemoryPlan plan = plan_of(config, shape, at);
    const CheckPlan check = check_collectives ? plan_check(config, shape, at, compute.transport_kind) : CheckPlan{};
    return MemoryNeed{.device = plan.total() + check.kept, .host = plan.host + check.read};
  };
  const MemoryNeed wide = need_of(rounded), as_it_is = need_of(own);
  require_memory(world, host, device,
                 {.device = std::max(wide.device, as_it_is.device), .host = std::max(wide.host, as_it_is.host) + kept},
                 "verify the same layout with a smaller model, or on more nodes");
}

// ---- Running --------------------------------------------------------------------------------------------------------

/// State that all runs share.
struct Runs {
  Communicator& world;
  Compute& compute;
  Datasets& datasets;
  Log& log;
  std::int64_t steps;
  bool check_collectives;

  Device& device() const { return *compute.backend.device; }
  template <class Work>
  auto with_trainer(const Config& config, Communicator& ranks, Communicator* transport, const Work& work) const {
    const ProcessGrid grid(ranks, grid_shape(config), transport);
    std::optional<CheckedCollectives> checks;
    if (check_collectives) checks.emplace(grid, device());
    Trainer trainer(config, grid, compute.backend, datasets);
    if (check_collectives) {
      check_records(grid, trainer.replica().store());
      check_shares(ranks, trainer.replica().owned_slices());
    }
    if constexpr (std::is_void_v<decltype(work(trainer, grid))>) {
      work(trainer, grid);
      if (checks) checks->finish();
    } else {
      auto result = work(trainer, grid);
      if (checks) checks->finish();
      return result;
    }
  }
  template <class Work>
  auto with_trainer(const Config& config, const Work& work) const {
    return with_trainer(config, world, compute.transport.get(), work);
  }
};

/// Rank 0 works alone, with a trainer, while the others wait.
template <class Work>
void on_one_rank(const Runs& runs, const Work& work) {
  const std::unique_ptr<Communicator> alone =
      runs.world.split(runs.world.rank() == 0 ? 0 : 1, runs.world.rank(), "reference");
  if (runs.world.rank() == 0) {
    const std::unique_ptr<Communicator> transport = staged_transport(*alone, runs.device());
    work([&](const Config& config, const auto& with) {
      return runs.with_trainer(config, *alone, transport.get(), with);
    });
  }
  const std::optional<HangWatchPause> pause =
      runs.world.rank() == 0 ? std::nullopt : std::make_optional<HangWatchPause>(runs.world, "reference");
  runs.world.barrier();
}

void share(Communicator& world, std::vector<double>& numbers, std::int64_t count) {
  numbers.resize(static_cast<std::size_t>(count));
  world.broadcast(Tensor(numbers.data(), {count}, DType::f64), 0, kReport);
}

ReferenceSteps shared_reference(const Runs& runs, const Config& config) {
  ReferenceSteps reference;
  on_one_rank(runs, [&](const auto& with_trainer) {
    with_trainer(config, [&](Trainer& trainer, const ProcessGrid&) {
      reference = run_reference(trainer, runs.device(), runs.steps, runs.log);
    });
  });
  share(runs.world, reference.losses, runs.steps);
  share(runs.world, reference.norms, runs.steps);
  share(runs.world, reference.gaps, runs.steps);
  for (std::size_t step = 0; step < reference.losses.size(); ++step) {
    verify(std::isfinite(reference.losses[step]) && std::isfinite(reference.norms[step]), ErrorKind::numerics,
           "--verify: on one rank in fp32, step {} has loss {} and gradient norm {}: not the layout, but what it is to "
           "train fails; look at learning_rate.peak, model.init_std and the weights that it starts from",
           step + 1, reference.losses[step], reference.norms[step]);
  }
  return reference;
}

/// The layout's run; copies of parameters that differ after it are part of the comparison.
ComparedSteps run_layout(const Runs& runs, const Config& config, const ReferenceSteps& reference,
                         const ReferenceSteps& expected) {
  return runs.with_trainer(config, [&](Trainer& trainer, const ProcessGrid& grid) {
    ComparedSteps run = compare_steps(trainer, grid, runs.device(), reference, expected, runs.steps);
    if (run.overflow) return run;
    // A copy that was updated otherwise, or not gathered, shows in no gradient and in no master.
    try {
      trainer.check_replicas();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::numerics) throw;
      run.comparison.copies = error.what();
    }
    return run;
  });
}

// ---- Comparing ------------------------------------------------------------------------------------------------------

double unit_roundoff(DType type) {
  return type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-22;
}

/// Where rank 0's report finds differences: one rank trains the steps again, with other rounding errors, to show how
/// far these go.
void measure_rounding(const Runs& runs, const Config& one, const ReferenceSteps& reference,
                      const ReferenceSteps& expected, ParityReport& report) {
  if (!runs.world.any_rank(runs.world.rank() == 0 && report.steps_to_explain() > 0)) return;
  runs.log.info(
      "more than is usual: one rank trains these steps again, with other rounding errors, to see how far these go");
  on_one_rank(runs, [&](const auto& with_trainer) {
    std::size_t step = report.steps_to_explain();
    std::uint64_t seed = 0;
    for (int left = kRoundingRuns; step > 0 && left > 0; --left) {
      // Another loss scale rounds the whole backward otherwise, gradients that fp16 can hardly hold above all.
      Config other = one;
      other.precision.loss_scale = (one.precision.loss_scale > 0 ? one.precision.loss_scale : 1) * (1 - 0.07 * left);
      with_trainer(other, [&](Trainer& trainer, const ProcessGrid& grid) {
        const double times = left % 2 == 0 ? 1 : 4;
        perturb_weights(trainer, runs.device(), times * unit_roundoff(one.precision.dtype()), ++seed);
        const auto steps = static_cast<std::int64_t>(step);
        const RunComparison moved = compare_steps(trainer, grid, runs.device(), reference, expected, steps).comparison;
        report.allow_rounding(moved.steps, times);
        report.allow_update_rounding(moved.parameters);
      });
      const std::size_t next = report.steps_to_explain();
      if (next > step) left = kRoundingRuns + 1;  // a later step gets as many runs
      step = next;
    }
  });
}

std::string ranks_text(const Communicator& world, const Config& config) {
  return fmt::format("{} ({})", world.size() == 1 ? "one rank" : fmt::format("{} ranks", world.size()),
                     grid_text(config));
}

void require_parity(const Runs& runs, const Config& config, const ParityReport& report) {
  const std::string& precision = config.precision.compute;
  runs.log.info("{} on {} against one rank in {}:", precision, ranks_text(runs.world, config), precision);
  runs.log.info(std::string_view(report.tables()));
  const std::string failure = runs.world.broadcast_text(report.failure(), 0);
  verify(failure.empty(), ErrorKind::numerics, "--verify: in {}, this layout does not train what one rank trains: {}",
         precision, failure);
  runs.log.info("verified: {}: {}", precision, report.summary());
}

/// The precision by itself, on one rank against one rank in fp32. Only numbers that are not finite end the program.
void report_precision(const Runs& runs, const Config& config, const ComparedSteps& run) {
  const std::string& precision = config.precision.compute;
  const ParityReport report(run.comparison, kMixedPrecision);
  runs.log.info("{} on one rank against one rank in fp32:", precision);
  if (runs.world.rank() == 0) runs.log.info(std::string_view(report.tables()));
  const std::string failure = runs.world.broadcast_text(report.failure(), 0);
  verify(!runs.world.any_rank(!run.finite), ErrorKind::numerics,
         "--verify: one rank in {} does not train what it trains in fp32, so it is not the layout but the precision "
         "(precision.compute, precision.loss_scale): {}",
         precision, failure);
  if (failure.empty()) {
    runs.log.info("precision: {}: {}", precision, report.summary());
  } else {
    runs.log.warning("one rank in {} is further from fp32 than is usual. That is the precision, not the layout: {}",
                     precision, failure);
  }
}

/// The layout in 16 bits, against one rank in the same. A dynamic loss scale would skip the steps that are to be
/// compared: here it is the largest at which neither overflows.
void verify_precision(const Runs& runs, Config config, const ReferenceSteps& reference) {
  PrecisionConfig& precision = config.precision;
  const bool dynamic = precision.dtype() == DType::f16 && precision.loss_scale == 0;
  if (dynamic) precision.loss_scale = precision.initial_loss_scale;
  for (;; precision.loss_scale /= 2) {
    const bool last = !dynamic || precision.loss_scale / 2 < precision.minimum_loss_scale;
    const Config one = one_rank(config);
    ReferenceSteps expected;
    ComparedSteps alone;
    on_one_rank(runs, [&](const auto& with_trainer) {
      with_trainer(one, [&](Trainer& trainer, const ProcessGrid& grid) {
        alone = compare_steps(trainer, grid, runs.device(), reference, reference, runs.steps, &expected);
      });
    });
    const bool overflow = runs.world.any_rank(alone.overflow);
    if (overflow && !last) continue;
    if (overflow || config == one) return report_precision(runs, config, alone);
    share(runs.world, expected.losses, runs.steps);
    share(runs.world, expected.gaps, runs.steps);
    const ComparedSteps run = run_layout(runs, config, reference, expected);
    if (run.overflow && !last) continue;
    report_precision(runs, config, alone);
    ParityReport report(run.comparison, kMixedPrecision);
    report.allow_precision(alone.comparison.steps);
    measure_rounding(runs, one, reference, expected, report);
    return require_parity(runs, config, report);
  }
}

}  // namespace

int verify_layout(const Config& given, Communicator& world, const RunEnvironment& environment, Log& log,
                  bool check_collectives) {
  std::vector<std::string> warnings;
  const ResolvedRun run = agree_on_run(given, world, warnings);
  for (const std::string& warning : warnings) log.warning(std::string_view(warning));
  Compute compute =
      start_compute(run.config.run, run.config.precision.dtype(), world, environment.host, environment.local_rank);
  return verify_layout_on(run.config, world, compute, *run.datasets, environment, log, check_collectives);
}

int verify_layout_on(const Config& config, Communicator& world, Compute& compute, Datasets& datasets,
                     const RunEnvironment& environment, Log& log, bool check_collectives) {
  const Config rounded = in_fp32(config), one = in_fp32(one_rank(config));
  const Runs runs{world, compute, datasets, log, std::min(kSteps, config.train.steps), check_collectives};
  log.info("megatron_train {} --verify: {} steps from the initial weights; {} is left alone", environment.version,
           runs.steps, config.run.directory);
  if (config == one) {
    log.info(
        "nothing to compare: this configuration is the reference (one rank, one sample per micro-batch, no "
        "recomputation, nothing shared); start --verify on more ranks");
    return 0;
  }
  check_memory(world, environment.host, compute, config, runs.steps, check_collectives);
  const ReferenceSteps reference = shared_reference(runs, one);
  if (rounded != one) {
    ParityReport report(run_layout(runs, rounded, reference, reference).comparison, kRounding);
    measure_rounding(runs, one, reference, reference, report);
    require_parity(runs, rounded, report);
  }
  if (config != rounded) verify_precision(runs, config, reference);
  return 0;
}

}  // namespace megatron
