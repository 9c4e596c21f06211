#include "planning/new_input/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/core/error.h"
#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "config/schema/print.h"
#include "config/schema/schema.h"
#include "planning/layout_search/search.h"

namespace megatron {

namespace {

constexpr std::int64_t kLargestMicroBatch = 4;      // in a proposal by rule: larger ones gain little on CPUs
constexpr std::int64_t kStandInVocabulary = 50304;  // for a search, where neither data nor a key says it

const Key& key_named(std::string_view name) {
  const auto dot = name.find('.');
  const Key* key = find_key(name.substr(0, dot), name.substr(dot + 1));
  internal_check(key != nullptr, "a question names a key of the schema");
  return *key;
}

std::vector<std::int64_t> divisors_of(std::int64_t number) {
  std::vector<std::int64_t> small, large;
  for (std::int64_t d = 1; d <= number / d; ++d) {
    if (number % d != 0) continue;
    small.push_back(d);
    if (d != number / d) large.push_back(number / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

std::vector<Violation> all_violations(const Draft& draft) {
  std::vector<Violation> violations = check_alone(draft.config);
  if (draft.ranks == 0) return violations;
  for (Violation& violation : check_with_ranks(draft.config, draft.ranks)) violations.push_back(std::move(violation));
  return violations;
}

std::vector<std::string> decided_violations(const Draft& draft, const Undecided& undecided) {
  std::vector<std::string> messages;
  for (const Violation& violation : all_violations(draft)) {
    const bool decided = std::none_of(violation.keys.begin(), violation.keys.end(),
                                      [&](const std::string& key) { return undecided.contains(key); });
    if (decided) messages.push_back(violation.whole());
  }
  return messages;
}

/// Layouts that agree with what is decided and that all rules about decided keys allow, fewest ranks per replica first.
class Allowed {
 public:
  Allowed(const Draft& draft, const Undecided& undecided) : draft_(draft), undecided_(undecided), others_(undecided) {
    for (const std::string_view key : kLayoutKeys) others_.erase(std::string(key));
  }

  const Config* first() {
    std::vector<std::pair<std::int64_t, std::int64_t>> extents;
    const ParallelConfig given = draft_.config.parallel;
    for (const std::int64_t tensor : choices("parallel.tensor", given.tensor, draft_.ranks)) {
      for (const std::int64_t pipeline : choices("parallel.pipeline", given.pipeline, draft_.ranks / tensor)) {
        extents.emplace_back(tensor, pipeline);
      }
    }
    std::stable_sort(extents.begin(), extents.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first * a.second, a.second) < std::pair(b.first * b.second, b.second);
    });
    for (const auto& [tensor, pipeline] : extents) {
      draft_.config.parallel.tensor = tensor;
      draft_.config.parallel.pipeline = pipeline;
      if (chunked()) return &draft_.config;
    }
    return nullptr;
  }

 private:
  bool open(const char* key) const { return undecided_.contains(key); }

  std::vector<std::int64_t> choices(const char* key, std::int64_t given, std::int64_t of) const {
    return open(key) ? divisors_of(std::max<std::int64_t>(1, of)) : std::vector{given};
  }

  bool chunked() {
    ParallelConfig& parallel = draft_.config.parallel;
    const std::int64_t stage_layers = draft_.config.model.all_layers() / parallel.pipeline;
    std::vector<std::int64_t> chunks = {parallel.virtual_stages};
    if (open("parallel.virtual_stages")) {
      const ScheduleFacts& schedule = row_named(kSchedules, parallel.schedule);
      chunks = schedule.chunks && stage_layers > 1 ? divisors_of(stage_layers) : std::vector<std::int64_t>{1};
      if (chunks.size() > 1) chunks.erase(chunks.begin());
    }
    for (const std::int64_t each : chunks) {
      parallel.virtual_stages = each;
      if (with_sequences()) return true;
    }
    return false;
  }

  bool with_sequences() {
    if (!open("parallel.sequence_parallel")) return with_batches();
    for (const bool sequence_parallel : {true, false}) {
      if (sequence_parallel && draft_.config.parallel.tensor == 1) continue;
      draft_.config.parallel.sequence_parallel = sequence_parallel;
      if (with_batches()) return true;
    }
    return false;
  }

  bool with_batches() {
    if (!open("train.micro_batch_size")) return decided_violations(draft_, others_).empty();
    const ParallelConfig& parallel = draft_.config.parallel;
    TrainConfig& train = draft_.config.train;
    const std::int64_t copies = std::max<std::int64_t>(1, draft_.ranks / (parallel.tensor * parallel.pipeline));
    for (std::int64_t size = kLargestMicroBatch; size >= 1; size /= 2) {
      // Each stage of a pipeline shall have work most of the time.
      const bool few = parallel.pipeline > 1 && train.global_batch_size / copies / size < 2 * parallel.pipeline;
      if (few && size > 1) continue;
      train.micro_batch_size = size;
      if (decided_violations(draft_, others_).empty()) return true;
    }
    return false;
  }

  Draft draft_;
  const Undecided& undecided_;
  Undecided others_;  ///< than layout keys
};

bool same_value(const Key& key, const Config& a, const Config& b) {
  return print_value(key, a) == print_value(key, b);
}

}  // namespace

std::vector<std::string> problems_of(const Draft& draft, const Undecided& undecided) {
  std::vector<std::string> problems = decided_violations(draft, undecided);
  if (!problems.empty() || draft.ranks == 0 || draft.config.train.global_batch_size == 0) return problems;
  if (Allowed(draft, undecided).first() != nullptr) return problems;
  Undecided others = undecided;
  for (const std::string_view key : kLayoutKeys) others.erase(std::string(key));
  return decided_violations(draft, others);
}

std::string plan_layouts(Draft& draft) {
  draft.layouts.clear();
  if (draft.hardware.empty() || draft.hardware == kOtherHardware) return "";
  const Hardware hardware = read_hardware(draft.hardware);
  Config config = draft.config;
  if (config.model.vocab_size == 0 && !draft.facts) config.model.vocab_size = kStandInVocabulary;
  try {
    const SearchResult found = search_layouts(config, hardware,
                                              {.ranks = draft.ranks,
                                               .data = draft.facts ? &*draft.facts : nullptr,
                                               .recompute_parts = false});  // no question asks for them
    for (const PlannedLayout& layout : found.best) draft.layouts.push_back(layout.config);
    const PlannedLayout& best = found.best.front();
    return fmt::format(
        "The defaults below are the fastest of {} on {} of {}, by megatron_plan: {:.3g} s per step and {} per rank.",
        counted(found.candidates, "layout"), counted(draft.ranks, "device"), hardware.name, best.time.seconds,
        format_bytes(static_cast<double>(best.recorded.most_bytes())));
  } catch (const Error& error) {
    return fmt::format("warning: megatron_plan finds no layout for {} of {}: {}", counted(draft.ranks, "device"),
                       hardware.name, error.what());
  }
}

void propose_layout_key(std::string_view name, Draft& draft) {
  const auto* const here = std::find(std::begin(kLayoutKeys), std::end(kLayoutKeys), name);
  const Key& key = key_named(name);
  for (const Config& layout : draft.layouts) {
    const bool agrees = std::all_of(std::begin(kLayoutKeys), here, [&](std::string_view before) {
      return same_value(key_named(before), layout, draft.config);
    });
    if (agrees) return copy_value(key, layout, draft.config);
  }
  Undecided undecided;
  for (const auto* later = here; later != std::end(kLayoutKeys); ++later) undecided.emplace(*later);
  Allowed allowed(draft, undecided);
  if (const Config* layout = allowed.first()) copy_value(key, *layout, draft.config);
}

}  // namespace megatron
