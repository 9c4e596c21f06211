#include "planning/dry_run/state_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/core/shares.h"
#include "base/text/byte_text.h"
#include "training/pipeline/schedule.h"
#include "training/step/grid.h"
#include "training/step/offload.h"
#include "training/step/replica.h"

namespace megatron {

std::string describe_share(const Config& config) {
  const ShareRow& share = config.optimizer.shares();
  const GridShape shape = grid_shape(config);
  const auto m = static_cast<double>(micro_batches_per_step(config)), copies = static_cast<double>(shape.shards());
  std::string sets;
  if (shape.replicas > 1) {
    sets = fmt::format(
        "share     {} sets of {} ranks; to other sets a rank sends {:.3g} numbers for each parameter that all copies "
        "have, once a step\n",
        shape.replicas, shape.shards(), 2.0 * (shape.replicas - 1) / shape.replicas / copies);
  }
  if (!share.gradients || copies == 1) return sets;
  const double others = (copies - 1) / copies;  // copies that a part is sent to
  const ShareTraffic step{
      .micro_batches = m,
      .layers = static_cast<double>(config.model.all_layers()) / static_cast<double>(config.parallel.pipeline),
      .forwards_in_a_row = schedule_named(config.parallel.schedule).in_flight(1, m, 1)};
  return sets +
         fmt::format(
             "share     {} of at most {} layers at a time are whole; in a step of {:g} micro-batches a rank sends "
             "{:.3g} numbers for each parameter of a layer that all copies have, where optimizer.share = \"state\" "
             "sends {:.3g}\n",
             share.weights ? "weights and gradients" : "gradients", ParameterStore::kRingBuffers, m,
             others * share.traffic(step), others * row_named(kShares, "state").traffic(step));
}

std::string describe_offload(const Config& config, const std::vector<MemoryPlan>& stages) {
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.offload == "none") return "";
  std::size_t most = 0;
  for (const MemoryPlan& plan : stages) most = std::max(most, plan.offloaded());
  const std::string bytes = format_bytes(static_cast<double>(most));
  if (optimizer.offload == "host") {
    return fmt::format(
        "offload   at most {} of the optimizer's state per rank in the host's memory, which each update "
        "reads and writes there\n",
        bytes);
  }
  return fmt::format(
      "offload   at most {} of the optimizer's state per rank in a file in {}, of which each update reads "
      "and writes all\n",
      bytes, offload_folder(config));
}

}  // namespace megatron
