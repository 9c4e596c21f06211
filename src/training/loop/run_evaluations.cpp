#include "training/loop/run_evaluations.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/text/foreign_json.h"
#include "data/evaluation_tasks/result_text.h"
#include "training/step/compatibility.h"

namespace megatron {

namespace {

// In a checkpoint's loop state: what it has yet to be evaluated on, and of which samples evaluations are.
constexpr const char *kEvaluationsDue = "evaluations_due", *kEvaluatedOn = "evaluated_on";

std::optional<double> accuracy_of(const EvaluatedLoss& loss) {
  return loss.labels ? std::optional(loss.labels->accuracy()) : std::nullopt;
}

std::string measure_of(const EvaluatedLoss& loss) {
  if (!loss.labels) return fmt::format("perplexity {:.3f}", perplexity(loss.terms[0]));
  return fmt::format("accuracy {:.2f} % ({} of {})", 100 * loss.labels->accuracy(), loss.labels->all_right(),
                     loss.labels->all_examples());
}

}  // namespace

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool RunEvaluations::follows(std::int64_t step) const {
  const DataFacts data = datasets_.facts();
  return evaluations_within(config_, data, step) > evaluations_within(config_, data, step - 1);
}

void RunEvaluations::add_due() {
  const std::int64_t step = trainer_.step();
  const bool last = trainer_.finished();
  if (last || follows(step)) due_.emplace_back("validation");
  if (last) due_.emplace_back("test");
  for (const TrainingTask& task : tasks_) {
    const std::int64_t every = task.config.every;
    if (last || (every > 0 && step % every == 0)) due_.push_back(kTaskDue + task.config.name);
  }
}

void RunEvaluations::add_due_at_start() {
  due_.emplace_back("validation");
  for (const TrainingTask& task : tasks_) {
    if (task.config.every > 0) due_.push_back(kTaskDue + task.config.name);
  }
}

const TrainingTask* RunEvaluations::find_task(const std::string& due) const {
  const auto found =
      std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& task) { return kTaskDue + task.config.name == due; });
  return found == tasks_.end() ? nullptr : &*found;
}

bool RunEvaluations::perform(const std::function<bool()>& stop) {
  while (!due_.empty()) {
    const std::string& due = due_.front();
    const TrainingTask* const task = find_task(due);
    if (!(task != nullptr ? evaluate_task(*task, stop) : evaluate_split(due, stop))) return false;
    due_.erase(due_.begin());
  }
  return true;
}

bool RunEvaluations::evaluate_split(const std::string& split, const std::function<bool()>& stop) {
  const bool test = split == "test";
  const std::optional<SampleSet>& samples = test ? datasets_.test() : datasets_.validation();
  const std::vector<NamedSet>& sets = test ? datasets_.test_sets() : datasets_.validation_sets();
  if (!samples && sets.empty()) return true;
  watch_.begin("evaluating on " + split);
  const std::int64_t first = test ? 0 : datasets_.first_validation_sample(trainer_.step());
  std::vector<EvaluatedLoss> of_sets;
  const std::optional<EvaluatedLoss> loss =
      samples ? trainer_.evaluate(*samples, first, stop) : evaluate_sets(sets, first, stop, of_sets);
  if (!loss) return false;
  if (!test) validated_ = {trainer_.step(), loss->total};
  report(split, *loss);  // before its sets: where there is room for a few curves, this is one of them
  for (std::size_t i = 0; i < of_sets.size(); ++i) report(split + "/" + sets[i].name, of_sets[i]);
  return true;
}

// All before any is reported, so that a stop loses none of them.
std::optional<EvaluatedLoss> RunEvaluations::evaluate_sets(const std::vector<NamedSet>& sets, std::int64_t first_sample,
                                                           const std::function<bool()>& stop,
                                                           std::vector<EvaluatedLoss>& each) {
  EvaluatedLoss mean;
  mean.terms.resize(trainer_.loss_terms().size());
  for (const NamedSet& set : sets) {
    std::optional<EvaluatedLoss> loss = trainer_.evaluate(set.samples, first_sample, stop);
    if (!loss) return std::nullopt;
    mean.total += set.share * loss->total;
    for (std::size_t term = 0; term < mean.terms.size(); ++term) mean.terms[term] += set.share * loss->terms[term];
    each.push_back(*std::move(loss));
  }
  return mean;
}

void RunEvaluations::report(const std::string& split, const EvaluatedLoss& loss) {
  if (!outputs_.log.enabled()) return;
  const auto losses = named_losses(trainer_.loss_terms(), loss.terms);
  outputs_.metrics.write(EvaluationMetrics{.split = split,
                                           .step = trainer_.step(),
                                           .loss = loss.total,
                                           .losses = losses,
                                           .samples = trainer_.samples(),
                                           .tokens = trainer_.tokens(),
                                           .time = wall_seconds(),
                                           .accuracy = accuracy_of(loss),
                                           .examples = loss.labels ? loss.labels->all_examples() : 0});
  tell("the " + split + " loss", loss.total,
       fmt::format("{} loss {:.4f}, {} after step {}{}", split, loss.total, measure_of(loss), trainer_.step(),
                   losses_by_name(losses)));
}

bool RunEvaluations::evaluate_task(const TrainingTask& task, const std::function<bool()>& stop) {
  const std::string& name = task.config.name;
  watch_.begin("evaluating on " + name);
  const std::optional<std::vector<TargetScore>> scores = trainer_.score(task.task->sequences(), stop);
  if (!scores) return false;
  if (!outputs_.log.enabled()) return true;
  const EvaluationResult result = task.task->result(*scores);
  outputs_.metrics.write(TaskMetrics{.name = name,
                                     .task = result.task,
                                     .step = trainer_.step(),
                                     .examples = result.examples,
                                     .targets = result.tokens,
                                     .measures = result_measures(result),
                                     .samples = trainer_.samples(),
                                     .tokens = trainer_.tokens(),
                                     .time = wall_seconds()});
  tell("the loss on " + name, result.loss,
       fmt::format("{} after step {}: {}", name, trainer_.step(), result_line(result)));
  return true;
}

void RunEvaluations::tell(const std::string& name, double loss, const std::string& line) {
  if (std::isfinite(loss)) {
    outputs_.log.info(std::string_view(line));
  } else {
    outputs_.log.warning(
        "{} after step {} is not finite: the model has diverged, or activations exceed what precision.compute holds; "
        "training continues",
        name, trainer_.step());
  }
  outputs_.progress.repeat_header();
  outputs_.plot.redraw();
}

void RunEvaluations::write_state(nlohmann::json& loop) const {
  loop[kEvaluationsDue] = due_;
  loop[kEvaluatedOn] = evaluation_facts(datasets_, tasks_);
}

std::vector<FactDifference> RunEvaluations::take_state(const nlohmann::json& loop) {
  due_ = loop.value(kEvaluationsDue, std::vector<std::string>());
  for (const std::string& name : due_) {
    verify(name == "validation" || name == "test" || name.starts_with(kTaskDue), ErrorKind::checkpoint,
           "an evaluation on \"{}\" is due", name);
  }
  std::erase_if(due_,
                [&](const std::string& name) { return name.starts_with(kTaskDue) && find_task(name) == nullptr; });
  if (!loop.contains(kEvaluatedOn)) return {};
  return changed_evaluations(object_at(loop, kEvaluatedOn), evaluation_facts(datasets_, tasks_));
}

bool evaluations_due(const CheckpointReader& checkpoint) {
  bool due = false;
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    due = !extra.at("loop").value(kEvaluationsDue, std::vector<std::string>()).empty();
  });
  return due;
}

}  // namespace megatron
