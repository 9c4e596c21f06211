#include "training/loop/finished_run.h"

#include <cmath>
#include <fstream>
#include <iterator>

#include "base/system/crash_report.h"
#include "base/text/foreign_json.h"
#include "checkpoint/store/files.h"
#include "config/schema/print.h"
#include "distributed/comm/agreement.h"
#include "monitoring/metrics/metrics.h"
#include "training/loop/recovery_advice.h"
#include "training/loop/run_evaluations.h"

namespace megatron {

namespace {

std::string config_file(const std::string& directory) {
  std::ifstream file(directory + "/config.toml", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The step that a run which keeps no checkpoints has reached, by its metrics: its own record that it was finished. 0 of
// a run that keeps some: it was killed before it saved any, and starts again.
std::int64_t last_step_kept_nowhere(Communicator& world, const std::string& directory) {
  double step = 0;
  if (world.rank() == 0 && config_file(directory).find("\nevery_steps = \"never\"\n") != std::string::npos) {
    visit_metrics(directory + "/metrics.jsonl", [&](const nlohmann::json& line, std::string_view) {
      const auto kind = line.find("kind"), at = line.find("step");
      if (kind != line.end() && *kind == "train" && at != line.end() && at->is_number()) step = at->get<double>();
    });
  }
  return std::lround(world.all_reduce_value(step, kDecision));
}

// The configuration that a finished run was trained with, as far as that can be read. On rank 0.
std::string saved_config(const Config& config, const std::optional<CheckpointReader>& own) {
  if (own) {
    std::string text;
    read_state(*own, [&](const nlohmann::json& extra) { text = extra.at("config").get<std::string>(); });
    return text;
  }
  return config_file(config.run.directory);
}

std::string differences(const Config& config, const std::string& saved) {
  std::string text;
  for (const std::string& change : changed_keys(saved, config)) {
    if (!change.starts_with("run.directory = ")) text += "\n  " + change;
  }
  return text;
}

}  // namespace

std::string already_complete(Communicator& world, const Config& config, const std::optional<CheckpointReader>& own) {
  std::string text;
  if (own) {
    if (own->state().step < config.train.steps || evaluations_due(*own)) return "";
    std::int64_t skipped = 0;
    read_state(*own, [&](const nlohmann::json& extra) {
      const nlohmann::json& loop = extra.at("loop");
      if (loop.contains("skipped_in_a_row")) {
        skipped = integer_at(loop, "skipped_in_a_row", 0, own->state().step);
      }
    });
    require_learned(world, config.run.directory, own->state().step, skipped);
    text = fmt::format("already complete: {} is at step {} of {}", own->path(), own->state().step, config.train.steps);
  } else {
    if (!config.checkpoint.resume) return "";
    if (last_step_kept_nowhere(world, config.run.directory) < config.train.steps) return "";
    text = fmt::format("already complete: {} has {} steps, and no checkpoint (checkpoint.every_steps = \"never\")",
                       config.run.directory, config.train.steps);
  }
  if (world.rank() != 0) return text;
  const std::string changes = differences(config, saved_config(config, own));
  if (!changes.empty()) text += "\nThese keys differ from that run's and have no effect on it:" + changes;
  return text + fmt::format(
                    "\nTo train {}, name another run.directory, or give --fresh, which starts over in {}_2 or the "
                    "next name that is free. To train this run further, raise train.steps.",
                    changes.empty() ? "it again" : "with them", config.run.directory);
}

std::string choose_fresh_directory(Communicator& world, const std::string& directory, Log& log) {
  std::string chosen;
  const auto choose = [&] { chosen = make_fresh_run_directory(directory); };
  on_rank_0(world, choose, ErrorKind::filesystem);
  chosen = world.broadcast_text(chosen, 0);
  if (chosen != directory) log.info("run.directory = {} (--fresh: {} has a run already)", chosen, directory);
  CrashReport::write_to(CrashReport::file_in(chosen, world.rank()));
  return chosen;
}

}  // namespace megatron
