#include "planning/dry_run/split_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text/byte_text.h"
#include "base/text/text.h"
#include "config/schema/split.h"
#include "training/datasets/family_samples.h"

namespace megatron {

namespace {

/// One of validation and test.
struct Evaluated {
  const char* name;
  const std::optional<SampleSet>& samples;
  const std::vector<NamedSet>& sets;
  const std::vector<SplitPart>& parts;
  bool own_data;  ///< data.validation or data.test, not a share of data.train
  double asked;   ///< share of data.train by data.split
};

std::uint64_t tokens_of(const std::vector<SplitPart>& parts) {
  std::uint64_t tokens = 0;
  for (const SplitPart& part : parts) tokens += part.tokens;
  return tokens;
}

std::uint64_t samples_of_a_pass(const std::vector<SplitPart>& parts) {
  std::uint64_t samples = 0;
  for (const SplitPart& part : parts) samples += part.samples;
  return samples;
}

std::string samples(std::uint64_t count) {
  return counted(static_cast<std::int64_t>(count), "sample");
}

class Report {
 public:
  Report(const Config& config, const Datasets& datasets) : config_(config), datasets_(datasets) {
    for (const SplitPart& part : datasets.train_parts()) total_ += part.source->tokens();
  }

  SplitReport run() {
    const std::uint64_t tokens = tokens_of(datasets_.train_parts());
    result_.lines.push_back(fmt::format("training  {}: {} per pass", describe(tokens),
                                        samples(samples_of_a_pass(datasets_.train_parts()))));
    const auto shares = parse_split(config_.data.split).value_or(std::array<double, 3>{1, 0, 0});
    const double sum =
        shares[0] + (config_.data.validation.empty() ? shares[1] : 0) + (config_.data.test.empty() ? shares[2] : 0);
    add({"validation", datasets_.validation(), datasets_.validation_sets(), datasets_.validation_parts(),
         !config_.data.validation.empty(), shares[1] / sum});
    add({"test", datasets_.test(), datasets_.test_sets(), datasets_.test_parts(), !config_.data.test.empty(),
         shares[2] / sum});
    return std::move(result_);
  }

 private:
  std::string describe(std::uint64_t tokens) const {
    return fmt::format("{}, {:.3g} % of data.train", counted(static_cast<std::int64_t>(tokens), "token"),
                       percent(tokens));
  }
  double percent(std::uint64_t tokens) const { return 100 * static_cast<double>(tokens) / static_cast<double>(total_); }

  void add(const Evaluated& split) {
    if (!split.own_data && split.asked == 0) {
      result_.lines.push_back(fmt::format("{:<9} none, by data.split = \"{}\"", split.name, config_.data.split));
      return;
    }
    const std::uint64_t tokens = tokens_of(split.parts);
    const std::string what =
        split.own_data ? fmt::format("{} of data.{}", counted(static_cast<std::int64_t>(tokens), "token"), split.name)
                       : describe(tokens);
    result_.lines.push_back(fmt::format("{:<9} {}: {}", split.name, what, evaluations(split)));
    if (split.own_data) return;
    if (!split.samples && split.sets.empty()) return warn_about_nothing(split);
    if (percent(tokens) < 100 * split.asked / 2) warn_about_share(split, tokens);
  }

  // Names, shares and samples of sets that are evaluated one by one.
  std::string evaluations_by_name(const std::vector<NamedSet>& sets) const {
    std::vector<std::string> each;
    for (const NamedSet& set : sets) {
      each.push_back(
          fmt::format("{} {:.3g} ({} samples)", set.name, set.share, evaluation_samples(config_, set.samples)));
    }
    return fmt::format("by name, with its share of the loss and the samples of an evaluation: {}",
                       fmt::join(each, ", "));
  }

  // How many samples there are, and which of them an evaluation takes.
  std::string evaluations(const Evaluated& split) {
    if (!split.sets.empty()) return evaluations_by_name(split.sets);
    if (!split.samples && of_sentences_) return "not one sample of a document's sentences";
    if (!split.samples) return fmt::format("not one sample of {} tokens", config_.model.sequence_length + 1);
    const std::uint64_t there = samples_of_a_pass(split.parts);
    const auto taken = static_cast<std::uint64_t>(evaluation_samples(config_, *split.samples));
    if (config_.data.megatrons_order()) {
      const std::uint64_t made = split.samples->samples->samples();
      return fmt::format("{} per pass, {} in Megatron's order; each evaluation takes the next {}{}", samples(there),
                         made, taken, taken > there ? ", so that samples repeat within it" : "");
    }
    if (split.parts.size() > 1) {
      return fmt::format("{}; each evaluation takes the blend's first {}", samples(there), taken);
    }
    if (taken == there) return fmt::format("{}; each evaluation takes all of them", samples(there));
    return fmt::format("{}; each evaluation takes the first {}", samples(there), taken);
  }

  // A run without a test is no surprise: its line says so.
  void warn_about_nothing(const Evaluated& split) {
    std::string remedy = of_sentences_ ? "more text" : "more text or a shorter model.sequence_length";
    if (config_.data.split != remedy_for(split)) {
      remedy = fmt::format("data.split = \"{}\"{} {}", remedy_for(split), of_sentences_ ? " or" : ",", remedy);
    }
    remedy += " gives it some";
    if (&split.samples == &datasets_.test()) {
      result_.lines.back() += "; " + remedy;
    } else {
      result_.warnings.push_back(fmt::format("{}; {}", result_.lines.back(), remedy));
    }
  }

  void warn_about_share(const Evaluated& split, std::uint64_t tokens) {
    result_.warnings.push_back(fmt::format(
        "{}: has {:.3g} % of the tokens where data.split = \"{}\" asks for {:.3g} %, because documents are "
        "kept whole; {}data.split = \"{}\" gives it more",
        split.name, percent(tokens), config_.data.split, 100 * split.asked,
        config_.data.megatrons_order() || of_sentences_ ? "" : "data.split_by = \"tokens\" divides exactly, ",
        remedy_for(split)));
  }

  const char* remedy_for(const Evaluated& split) const {
    return &split.samples == &datasets_.test() ? "90,5,5" : "90,10";
  }

  const Config& config_;
  const Datasets& datasets_;
  const bool of_sentences_ = samples_of_family(config_.model).of_sentences != nullptr;
  std::uint64_t total_ = 0;
  SplitReport result_;
};

}  // namespace

namespace {

SplitReport report_examples(const TaskData& task) {
  SplitReport report;
  const auto add = [&](const char* split, const std::string& what) {
    report.lines.push_back(fmt::format("{:<10} {}", split, what));
  };
  const auto described = [](const TaskSet& set) {
    return fmt::format("{}, {} per rank", set.summary, format_bytes(static_cast<double>(set.bytes)));
  };
  const auto evaluated = [&](const std::optional<TaskSet>& set, const char* key) {
    return set ? described(*set) + "; each evaluation takes all of them" : fmt::format("none, without data.{}", key);
  };
  add("training", described(task.train()));
  add("validation", evaluated(task.validation(), "validation"));
  add("test", evaluated(task.test(), "test"));
  return report;
}

}  // namespace

SplitReport report_splits(const Config& config, const Datasets& datasets) {
  if (datasets.task() != nullptr) return report_examples(*datasets.task());
  return Report(config, datasets).run();
}

}  // namespace megatron
