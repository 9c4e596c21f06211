#include "training/step/compatibility.h"

#include <tuple>

#include "config/schema/print.h"
#include "data/samples/blend.h"
#include "data/shards/kept_tokenizer.h"
#include "models/families/family.h"
#include "training/datasets/family_samples.h"

namespace megatron {

namespace {

constexpr const char* kBiasFact = "choice_bias";  // the routers', in a model's signature

nlohmann::json without_choice_bias(nlohmann::json facts) {
  if (has_choice_bias(facts)) facts["moe"].erase(kBiasFact);
  return facts;
}

// Lengths were turned into samples, and samples are counted, with this schedule: another one would end elsewhere.
void require_same_schedule(const TrainingState& state, const Config& config, const std::string& path) {
  const nlohmann::json current = schedule_facts(config);
  nlohmann::json saved = nlohmann::json::object();
  for (const auto& fact : current.items()) saved[fact.key()] = state.extra.value(fact.key(), nlohmann::json(""));
  std::string changes;
  for (const FactDifference& difference : compare_facts(saved, current)) {
    changes += fmt::format("\n  train.{}: {} in the checkpoint, {} in this run", difference.key, difference.saved,
                           difference.current);
  }
  verify(changes.empty(), ErrorKind::checkpoint,
         "{} was trained in other batches than this run's; resume with the same, or start a new run with "
         "checkpoint.initialize_from:{}",
         path, changes);
}

constexpr const char *kSeed = "seed", *kTrainingShare = "training_share", *kBlendSets = "blend_sets",
                     *kSplitBy = "split_by";

}  // namespace

nlohmann::json model_signature(const Config& config, const Vocabulary& vocabulary) {
  nlohmann::json facts = family_of(config.model).signature(config);
  facts["family"] = config.model.family;
  facts["tokenizer"] = vocabulary.tokenizer;
  facts["tokenizer_hash"] = vocabulary.hash;
  return facts;
}

nlohmann::json resume_signature(const ModelConfig& model, nlohmann::json facts) {
  return family_of(model).resume_signature(std::move(facts));
}

nlohmann::json weights_signature(const ModelConfig& model, nlohmann::json facts) {
  return family_of(model).weights_signature(std::move(facts));
}

void require_resumable(const TrainingState& saved, const Config& config, const nlohmann::json& facts,
                       const std::string& path, const std::string& chosen_by) {
  require_same_schedule(saved, config, path);
  require_same_facts(resume_signature(config.model, saved.facts), resume_signature(config.model, facts), path,
                     chosen_by);
}

nlohmann::json require_weights_of(const TrainingState& saved, const ModelConfig& model, const nlohmann::json& facts,
                                  const std::string& path) {
  nlohmann::json theirs = saved.facts;
  if (theirs.value("tokenizer", "") == kUnknownTokenizer) {  // it is the one of the data
    for (const char* key : {"tokenizer", "tokenizer_hash"}) theirs[key] = facts.at(key);
  }
  // A model without choice biases has chosen as with zeros, which they are in a new run.
  const nlohmann::json ours = has_choice_bias(theirs) ? facts : without_choice_bias(facts);
  require_same_facts(weights_signature(model, theirs), weights_signature(model, ours), path,
                     "checkpoint.initialize_from");
  return theirs;
}

bool has_choice_bias(const nlohmann::json& facts) {
  const auto moe = facts.find("moe");
  return moe != facts.end() && moe->is_object() && moe->contains(kBiasFact);
}

nlohmann::json schedule_facts(const Config& config) {
  return {{"global_batch_size", config.train.global_batch_size},
          {"batch_ramp_up", print_value(*find_key("train", "batch_ramp_up"), config)},
          {"curriculum", print_value(*find_key("train", "curriculum"), config)}};
}

nlohmann::json order_facts(const Config& config, const Datasets& datasets) {
  nlohmann::json facts = {{kSeed, config.train.seed}, {kTrainingShare, datasets.training_share()}};
  if (datasets.cut_by_tokens()) {
    for (const SplitPart& part : datasets.train_parts()) {
      facts[kSplitBy].push_back(part.cut_by_tokens ? "tokens" : "documents");
    }
  }
  if (const std::vector<double> weights = datasets.blend_weights(); !weights.empty()) {
    facts["blend_weights"] = weights;
    for (const std::uint64_t set : datasets.train_sets()) facts[kBlendSets].push_back(fmt::format("{:016x}", set));
  }
  if (config.task.given()) {
    const TaskConfig& task = config.task;
    facts["task"] = fmt::format("{}, {}", task.name, task.format);
    if (task.name == "instructions") {  // its texts are among the tokens, and samples are packed by their number
      facts["texts_of_examples"] =
          "encoded whole";  // earlier versions encoded each part alone, which made other tokens
      facts["chat_template"] = {task.system_prefix, task.system_suffix,    task.user_prefix,
                                task.user_suffix,   task.assistant_prefix, task.assistant_suffix};
    }
  } else if (samples_of_family(config.model).of_sentences != nullptr) {
    facts["mask_probability"] = config.data.mask_probability;
    facts["short_probability"] = config.data.short_probability;
  }
  if (!config.data.megatrons_order()) return facts;
  facts.update({{"order", config.data.order},
                {"order_samples", datasets.order_samples()},
                {"train_documents", datasets.train_documents()},
                {"document_lengths", datasets.document_lengths()}});
  return facts;
}

std::vector<FactDifference> data_order_mismatches(std::vector<FactDifference> differences, bool same_data) {
  std::vector<FactDifference> changes;
  for (FactDifference& difference : differences) {
    if (difference.saved == kAbsentFact && (difference.key == kSeed || difference.key == kTrainingShare)) continue;
    if (difference.key == kSplitBy && difference.saved == kAbsentFact) {
      difference.saved = R"("documents", which data.split_by = "documents" keeps,)";
    }
    if (difference.key == kSplitBy && difference.current == kAbsentFact) difference.current = R"("documents")";
    if (difference.saved == kAbsentFact && difference.key == kBlendSets) {
      if (same_data) continue;
      difference.saved = "others, or these in another order,";
    }
    changes.push_back(std::move(difference));
  }
  return changes;
}

namespace {

constexpr const char* kTaskFact = "task ";  // in front of its name

nlohmann::json evaluated(const std::vector<SplitPart>& parts) {
  nlohmann::json sets = nlohmann::json::array();
  std::vector<double> weights;
  for (const SplitPart& part : parts) {
    const auto [unit, first, end] = part.cut_by_tokens
                                        ? std::tuple("tokens", part.first_token, part.first_token + part.tokens)
                                        : std::tuple("documents", part.first_document, part.end_document);
    sets.push_back(fmt::format("{:016x}, {} {} to {}", part.source->set_hash(), unit, first, end));
    weights.push_back(part.weight);
  }
  nlohmann::json facts = {{"sets", std::move(sets)}, {"weights", normalised_weights(std::move(weights))}};
  for (const SplitPart& part : parts) {
    if (!part.name.empty()) facts["names"].push_back(part.name);
  }
  return facts;
}

}  // namespace

nlohmann::json evaluation_facts(const Datasets& datasets, std::span<const TrainingTask> tasks) {
  nlohmann::json facts = nlohmann::json::object();
  if (const TaskData* const task = datasets.task()) {
    if (task->validation()) facts["validation"] = fmt::format("{:016x}", task->validation()->hash);
    if (task->test()) facts["test"] = fmt::format("{:016x}", task->test()->hash);
  } else {
    if (datasets.validation() || !datasets.validation_sets().empty()) {
      facts["validation"] = evaluated(datasets.validation_parts());
    }
    if (datasets.test() || !datasets.test_sets().empty()) facts["test"] = evaluated(datasets.test_parts());
  }
  for (const TrainingTask& task : tasks) {
    facts[kTaskFact + task.config.name] = fmt::format("{} of {:016x}, stride {}{}", task.config.task, task.hash,
                                                      task.config.stride, task.config.strict ? ", strict" : "");
  }
  return facts;
}

std::vector<FactDifference> changed_evaluations(const nlohmann::json& saved, const nlohmann::json& current) {
  std::vector<FactDifference> changes = compare_facts(saved, current);
  std::erase_if(changes, [](const FactDifference& change) {  // data that begins or ceases to be evaluated on
    return (change.key == "validation" || change.key == "test" || change.key.starts_with(kTaskFact)) &&
           (change.saved == kAbsentFact || change.current == kAbsentFact);
  });
  return changes;
}

}  // namespace megatron
