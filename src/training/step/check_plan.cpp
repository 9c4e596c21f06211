#include "training/step/check_plan.h"

#include <algorithm>

#include "distributed/parallel/check_copies.h"
#include "training/step/counting_job.h"

namespace megatron {

CheckPlan plan_check(const Config& config, const GridShape& shape, const GridCoordinates& at, TransportKind transport) {
  const ModelFamily& family = family_of(config.model);
  CountingJob job(config, shape, at, transport);
  const CheckCopies copies(job.grid);
  Replica replica(config, job.grid, job.backend, family, Replica::Unlimited{});
  const std::vector<double> counts(family.loss_terms(config).size(), 1);
  const StepSums sums = play_step({config, job, replica, family}, counts);
  Timers timers;
  replica.update(sums, {}, timers);
  replica.wait_for_values();
  CheckPlan plan{.kept = copies.most_kept()};
  // Slices of gradients are read that only a check names.
  if (transport != TransportKind::host) plan.read = std::max(copies.most_read(), replica.used().gradients);
  return plan;
}

}  // namespace megatron
