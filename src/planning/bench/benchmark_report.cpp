#include <algorithm>

#include "planning/bench/benchmark.h"

namespace megatron {

namespace {

double gigaflops(double flops, double seconds) {
  return 1e-9 * flops / seconds;
}

nlohmann::json only_if(bool measured, double value) {
  return measured ? nlohmann::json(value) : nlohmann::json();
}

/// One line a part, the most expensive first; parts below half a thousandth of the step are left out.
std::string text_of(const std::string& title, std::vector<BenchmarkPart> parts, double step) {
  if (parts.empty()) return "";
  std::sort(parts.begin(), parts.end(),
            [](const BenchmarkPart& a, const BenchmarkPart& b) { return a.seconds.wall > b.seconds.wall; });
  std::vector<Row> rows;
  for (const auto& [name, seconds, calls, flops] : parts) {
    if (seconds.wall < 5e-4 * step) continue;
    rows.push_back({name, seconds.wall, only_if(calls > 0, seconds.cpu), seconds.wall / step, only_if(calls > 0, calls),
                    only_if(flops > 0, gigaflops(flops, seconds.wall))});
  }
  return table("", "",
               {{title},
                {"ms", "", 2, 1e3},
                {"CPU ms", "", 2, 1e3},
                {"% of step", "", 1, 100},
                {"calls"},
                {"GFLOP/s", "", 1}},
               rows)
      .text;
}

}  // namespace

Report report(const Case& benchmark, const BenchmarkResult& result) {
  const Seconds step = result.step, overlapped = result.overlapped_step.value_or(Seconds());
  const bool sgemm = result.sgemm_flops > 0, overlaps = result.overlapped_step.has_value();
  // A rank's CPU time is its calling thread's.
  const std::string threads =
      result.threads == 1 ? "" : fmt::format(", {} threads per rank (CPU time: of the first)", result.threads);
  const double model = gigaflops(result.model_flops / result.ranks, step.wall);
  const double products = gigaflops(result.sgemm_flops, result.sgemm.wall);
  Report report = list(
      benchmark.name, benchmark.title + threads,
      {{{"device", "device"}, result.device},
       {{"share of sgemm", "share_of_sgemm", 1, 100, " %"}, only_if(sgemm, result.share(&Seconds::wall))},
       {{"by CPU time", "share_of_sgemm_by_cpu_time", 1, 100, " %"}, only_if(sgemm, result.share(&Seconds::cpu))},
       {{"sgemm", "sgemm_gflops_per_rank", 1, 1, " GFLOP/s a rank at the model's shapes"}, only_if(sgemm, products)},
       {{"model", "model_gflops_per_rank", 1, 1, " GFLOP/s a rank"}, model},
       {{"tokens", "tokens_per_second", 0, 1, " a second"}, result.tokens / step.wall},
       {{"memory", "peak_resident_bytes", 2, 1.0 / (1 << 30), " GiB at the peak"}, result.peak_resident_bytes},
       {{"step", "step_seconds", 1, 1e3, " ms"}, step.wall},
       {{"by CPU time", "step_cpu_seconds", 1, 1e3, " ms"}, step.cpu},
       {{"page faults", "", 0, 1, " a step"}, result.page_faults},
       {{"communication", "communication_seconds", 1, 1e3, " ms, the least of all ranks"}, result.communication},
       {{"with overlap_gradients", "overlapped_step_seconds", 1, 1e3, " ms a step"},
        only_if(overlaps, overlapped.wall)},
       {{"by CPU time", "overlapped_step_cpu_seconds", 1, 1e3, " ms"}, only_if(overlaps, overlapped.cpu)},
       {{"communication", "overlapped_communication_seconds", 1, 1e3, " ms"},
        only_if(overlaps, result.overlapped_communication)},
       {{"", "precision"}, benchmark.config.precision.compute},
       {{"", "ranks"}, result.ranks},
       {{"", "threads_per_rank"}, result.threads},
       {{"", "tokens_per_step"}, result.tokens},
       {{"", "planned_bytes_per_rank"}, result.planned_bytes}});
  report.text += text_of("a step by sections", result.sections, step.wall);
  report.text += text_of("a step by operations", result.verbs, step.wall);
  report.text += text_of("products alone", result.products, step.wall);
  return report;
}

}  // namespace megatron
