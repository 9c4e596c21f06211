#include "monitoring/reports/schedule_drawing.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/core/error.h"
#include "base/text/text.h"
#include "monitoring/plots/svg.h"
#include "training/pipeline/simulate.h"

namespace megatron {

namespace {

constexpr double kUnit = 22, kRow = 24, kLabel = 64;  // width of a forward, height of a stage, width of its name
constexpr double kMostUnits = 60;
constexpr std::int64_t kMostStages = 16, kMostMicroBatches = 512, kMostActions = 20'000;

char letter(Action::Kind kind) {
  return kind == Action::Kind::forward ? 'f' : kind == Action::Kind::backward_weight ? 'w' : 'b';
}

std::string boxes(const std::vector<Action>& actions, const std::vector<Simulation::Span>& spans, double y,
                  double last) {
  std::string out;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto [start, finish] = spans[i];
    if (start >= last) continue;
    const double x = kLabel + kUnit * start, width = kUnit * (std::min(finish, last) - start);
    const std::string chunk = actions[i].chunk > 0 ? fmt::format(".{}", actions[i].chunk) : "";
    out += fmt::format("<rect class=\"k{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"/>",
                       letter(actions[i].kind), x + 0.5, y, std::max(0.5, width - 1), kRow - 3);
    const std::string number = fmt::format("{}{}", actions[i].micro_batch, chunk);
    if (7 * static_cast<double>(number.size()) > width) continue;
    out += fmt::format("<text class=\"t{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                       letter(actions[i].kind), x + width / 2, y + kRow - 8, number);
  }
  return out + '\n';
}

// Passes of all stages, by units of time, up to `last`; and what its colours mean, to which a sentence is to be added.
std::string picture(const std::vector<std::vector<Action>>& lists,
                    const std::vector<std::vector<Simulation::Span>>& spans, double last) {
  const double width = kLabel + kUnit * last + 2, height = kRow * static_cast<double>(lists.size()) + 4;
  std::string out = fmt::format(
      "<div class=\"wide\"><svg class=\"schedule\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" "
      "role=\"img\" aria-label=\"pipeline schedule\">\n",
      width, height);
  for (std::size_t stage = 0; stage < lists.size(); ++stage) {
    const double y = 2 + kRow * static_cast<double>(stage);
    out += fmt::format("<text x=\"0\" y=\"{:.1f}\">stage {}</text>", y + kRow - 8, stage);
    out += boxes(lists[stage], spans[stage], y, last);
  }
  out +=
      "</svg></div>\n<p class=\"soft\"><span class=\"key kf\"></span> forward <span class=\"key kb\"></span> backward ";
  if (std::any_of(lists[0].begin(), lists[0].end(), [](const Action& a) { return letter(a.kind) == 'w'; })) {
    out += "<span class=\"key kw\"></span> gradients of weights ";
  }
  return out;
}

}  // namespace

std::string schedule_drawing(const TracedStep& traced) {
  const auto stages = static_cast<std::int64_t>(traced.passes.size());
  const auto passes = static_cast<std::int64_t>(traced.passes.front().size());
  if (stages > kMostStages || passes > 3 * kMostMicroBatches) {
    return fmt::format("<p>Step {} of trace.json is not drawn: {} and {} are more than a picture shows.</p>\n",
                       traced.step, counted(stages, "stage"), counted(passes, "pass"));
  }
  std::vector<std::vector<Simulation::Span>> spans = traced.spans;
  double computing = 0;
  for (auto& stage : spans) {
    for (Simulation::Span& span : stage) {
      computing += span.finish - span.start;
      span = {kMostUnits / traced.seconds * span.start, kMostUnits / traced.seconds * span.finish};
    }
  }
  const auto& first = traced.passes.front();
  const bool has_chunks = std::any_of(first.begin(), first.end(), [](const Action& a) { return a.chunk > 0; });
  return picture(traced.passes, spans, kMostUnits) +
         fmt::format(
             "with the number of the micro-batch{}: step {} as it really was, from trace.json, on the first rank of "
             "each "
             "stage. It took {:.4g} s, of which passes are {:.1f} % on average; the rest is waiting for other stages, "
             "gradient sums and the update.</p>\n",
             has_chunks ? " and, after the point, of the chunk" : "", traced.step, traced.seconds,
             100 * computing / (traced.seconds * static_cast<double>(stages)));
}

std::string schedule_drawing(const Config& config) {
  const std::int64_t stages = config.parallel.pipeline,
                     chunks = std::max<std::int64_t>(1, config.parallel.virtual_stages);
  const std::int64_t per_micro_batch = config.train.micro_batch_size * config.parallel.data;
  if (per_micro_batch <= 0 || config.train.global_batch_size < per_micro_batch || stages <= 0) {
    return "<p>The configuration does not say how many micro-batches a step has.</p>\n";
  }
  const std::int64_t micro_batches = config.train.global_batch_size / per_micro_batch;
  const std::string sizes = counted(stages, "stage") + ", " + counted(micro_batches, "micro-batch");
  if (stages > kMostStages || 3 * micro_batches * chunks > kMostActions || micro_batches > kMostMicroBatches) {
    return fmt::format("<p>Not drawn: {}, which is more than a picture shows.</p>\n", sizes);
  }
  std::vector<std::vector<Action>> lists;
  Simulation played;
  try {
    lists = make_schedules(config.parallel.schedule, static_cast<int>(stages), static_cast<int>(micro_batches),
                           static_cast<int>(chunks));
    played = simulate(lists, {.sends = SendMode::buffered});
  } catch (const Error& error) {
    return fmt::format("<p>Not drawn: {}</p>\n", escaped(error.what()));
  }
  if (played.deadlock) return "<p>Not drawn: this schedule cannot be played.</p>\n";
  const double last = std::min(played.makespan, kMostUnits);
  std::string out = picture(lists, played.spans, last);
  out += fmt::format(
      "with the number of the micro-batch{}. Schedule {}, {}{}, simulated with equal stages and a "
      "backward that takes two forwards: bubble {:.1f} %.{}</p>\n",
      chunks > 1 ? " and, after the point, of the chunk" : "", escaped(config.parallel.schedule), sizes,
      chunks > 1 ? ", " + counted(chunks, "chunk") : "", 100 * played.bubble_fraction,
      last < played.makespan
          ? fmt::format(" The first {:.0f} of {:.0f} units of time are shown.", last, played.makespan)
          : "");
  return out;
}

const char* schedule_style() {
  // Light, dark and striped, so that they differ without colour.
  return R"(.schedule{font-size:11px}
.kf{fill:var(--back);background:var(--back);stroke:var(--text);border:1px solid var(--text)}
.kb{fill:var(--soft);background:var(--soft);stroke:var(--text);border:1px solid var(--text)}
.kw{fill:var(--line);background:var(--line);stroke:var(--text);stroke-dasharray:3 2;border:1px dashed var(--text)}
svg .tf,svg .tw{fill:var(--text)}
svg .tb{fill:var(--back)}
.key{display:inline-block;width:1.2em;height:.8em;vertical-align:-.05em;margin-left:.4em}
)";
}

}  // namespace megatron
