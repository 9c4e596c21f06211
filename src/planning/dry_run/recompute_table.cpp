#include "planning/dry_run/recompute_table.h"

#include <fmt/format.h>

#include "base/text/byte_text.h"
#include "training/step/grid.h"
#include "training/step/memory_plan.h"

namespace megatron {

namespace {

MemoryPlan plan_with(Config config, const RecomputeConfig& recompute) {
  config.recompute = recompute;
  return plan_memory(config, grid_shape(config), {});
}

double flops_of(const MemoryPlan& plan) {
  return plan.matmul_flops + plan.attention_flops;
}

std::string cost_of(const MemoryPlan& plan, const MemoryPlan& none) {
  std::string text = fmt::format("{} more read and written", format_bytes(plan.function_bytes - none.function_bytes));
  if (flops_of(plan) > flops_of(none)) {
    text += fmt::format(", {:.1f} % more operations", 100 * (flops_of(plan) / flops_of(none) - 1));
  }
  return text;
}

constexpr const char* kRow = "  {:<14} {:>5} {:>12} {:>7} {:>12}  {}\n";

std::string row(std::string_view name, bool used, const MemoryPlan& plan, const MemoryPlan& none) {
  const double saved = static_cast<double>(none.activations) - static_cast<double>(plan.activations),
               more = static_cast<double>(plan.scratch) - static_cast<double>(none.scratch);
  return fmt::format(fmt::runtime(kRow), name, used ? "yes" : "-", format_bytes(saved),
                     fmt::format("{:.1f} %", 100 * saved / static_cast<double>(none.activations)),
                     more > 0 ? format_bytes(more) : "-", cost_of(plan, none));
}

}  // namespace

std::string describe_recompute_parts(const Config& config) {
  if (config.recompute.kind() != RecomputeMode::selective) return "";
  const RecomputeParts made = config.recompute.parts_made();
  const MemoryPlan none = plan_with(config, {});
  std::string text = "recompute.parts on stage 0, each alone, and those of this run together\n";
  text += fmt::format(fmt::runtime(kRow), "part", "used", "saves", "", "scratch", "costs a step");
  for (const RecomputePartChoice& part : kRecomputeParts) {
    const MemoryPlan plan = plan_with(config, {.mode = "selective", .parts = {part.kind}});
    text += row(part.name, made.has(part.kind), plan, none);
  }
  text += row("together", true, plan_with(config, config.recompute), none);
  for (const RecomputePartChoice& part : kRecomputeParts) {
    text += fmt::format("  {}: {}; {}\n", part.name, part.not_saved, part.made_from);
  }
  return text;
}

}  // namespace megatron
