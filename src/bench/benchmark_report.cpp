#include <nlohmann/json.hpp>

#include <algorithm>

#include "bench/benchmark.h"
#include "system/memory_usage.h"
#include "text/byte_text.h"

namespace megatron {

namespace {

double gigaflops(double flops, double seconds) {
  return 1e-9 * flops / seconds;
}

/// One line a part, the most expensive first; parts below half a thousandth of the step are left out.
std::string table(std::string_view title, std::vector<BenchmarkPart> parts, double step) {
  std::sort(parts.begin(), parts.end(),
            [](const BenchmarkPart& a, const BenchmarkPart& b) { return a.seconds.wall > b.seconds.wall; });
  std::string text =
      fmt::format("  {:<38}{:>10}{:>10}{:>10}{:>8}{:>10}\n", title, "ms", "CPU ms", "% of step", "calls", "GFLOP/s");
  for (const BenchmarkPart& part : parts) {
    if (part.seconds.wall < 5e-4 * step) continue;
    text += fmt::format("    {:<36}{:>10.2f}{:>10.2f}{:>10.1f}{:>8}", part.name, 1e3 * part.seconds.wall,
                        1e3 * part.seconds.cpu, 100 * part.seconds.wall / step, part.calls);
    text += part.flops > 0 ? fmt::format("{:>10.1f}\n", gigaflops(part.flops, part.seconds.wall)) : "\n";
  }
  return text;
}

std::string shares(const BenchmarkResult& result) {
  const Seconds sgemm = result.sgemm;
  return fmt::format("  share of sgemm {:8.1f} %   ({:.1f} % by CPU time)\n", 100 * result.share(&Seconds::wall),
                     100 * result.share(&Seconds::cpu)) +
         fmt::format("  sgemm          {:8.1f} GFLOP/s a rank at the model's shapes\n",
                     gigaflops(result.sgemm_flops, sgemm.wall));
}

}  // namespace

std::string describe(const BenchmarkCase& benchmark, const BenchmarkResult& result) {
  const Seconds step = result.step;
  std::string text = fmt::format("{}: {}", benchmark.name, benchmark.title);
  // A rank's CPU time is its calling thread's.
  text += result.threads == 1 ? "\n" : fmt::format(", {} threads per rank (CPU time: of the first)\n", result.threads);
  text += fmt::format("  device         {}\n", result.device);
  if (result.sgemm_flops > 0) text += shares(result);
  text +=
      fmt::format("  model          {:8.1f} GFLOP/s a rank\n", gigaflops(result.model_flops / result.ranks, step.wall));
  text += fmt::format("  tokens         {:8.0f} a second\n", result.tokens / step.wall);
  text += fmt::format("  memory         {:>8} at the peak\n", format_bytes(result.peak_resident_bytes));
  text += fmt::format("  step           {:8.1f} ms ({:.1f} ms of CPU, {:.0f} page faults):", 1e3 * step.wall,
                      1e3 * step.cpu, result.page_faults);
  for (const BenchmarkPart& section : result.sections) {
    text += fmt::format(" {} {:.1f}", section.name, 1e3 * section.seconds.wall);
  }
  text += fmt::format("\n  communication  {:8.1f} ms, the least of all ranks", 1e3 * result.communication);
  if (result.overlapped_step.wall > 0) {
    text += fmt::format("; with overlap_gradients: step {:.1f} ms ({:.1f} ms of CPU), communication {:.1f} ms",
                        1e3 * result.overlapped_step.wall, 1e3 * result.overlapped_step.cpu,
                        1e3 * result.overlapped_communication);
  }
  text += '\n';
  if (!result.verbs.empty()) text += table("a step by operations", result.verbs, step.wall);
  return result.products.empty() ? text : text + table("products alone", result.products, step.wall);
}

std::string to_json(const BenchmarkCase& benchmark, const BenchmarkResult& result) {
  nlohmann::json json = {{"case", benchmark.name},
                         {"device", result.device},
                         {"ranks", result.ranks},
                         {"threads_per_rank", result.threads},
                         {"tokens_per_step", result.tokens},
                         {"tokens_per_second", result.tokens / result.step.wall},
                         {"step_seconds", result.step.wall},
                         {"step_cpu_seconds", result.step.cpu},
                         {"communication_seconds", result.communication},
                         {"model_gflops_per_rank", gigaflops(result.model_flops / result.ranks, result.step.wall)},
                         {"peak_resident_bytes", result.peak_resident_bytes},
                         {"planned_bytes_per_rank", result.planned_bytes}};
  if (result.overlapped_step.wall > 0) {
    json["overlapped_step_seconds"] = result.overlapped_step.wall;
    json["overlapped_step_cpu_seconds"] = result.overlapped_step.cpu;
    json["overlapped_communication_seconds"] = result.overlapped_communication;
  }
  if (result.sgemm_flops > 0) {
    json["sgemm_gflops_per_rank"] = gigaflops(result.sgemm_flops, result.sgemm.wall);
    json["share_of_sgemm"] = result.share(&Seconds::wall);
    json["share_of_sgemm_by_cpu_time"] = result.share(&Seconds::cpu);
  }
  return json.dump() + '\n';
}

}  // namespace megatron
