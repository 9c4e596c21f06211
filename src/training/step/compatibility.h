// Facts of a run that its checkpoints carry, for the runs that read them: what may not be another's, and what may.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "checkpoint/store/checkpoint.h"
#include "config/schema/config.h"
#include "training/datasets/datasets.h"
#include "training/datasets/evaluation_tasks.h"

namespace megatron {

/// The checkpoint with the lowest validation loss, in a run's own loop state: {"step", "loss"}.
inline constexpr const char* kBestState = "best";

/// The tokens that end a text of an imported model, where its configuration names others than the vocabulary: a chat
/// model's often end a message, too.
inline constexpr const char* kEndTokensKey = "end_tokens";
/// How conversations with an imported model are written, for exports (chat_template.h).
inline constexpr const char* kChatTemplateKey = "chat_template";
/// Runs that start from an imported model carry these on.
inline constexpr std::array kCarriedKeys = {kEndTokensKey, kChatTemplateKey};

/// The model, in shape and meaning, and the vocabulary.
nlohmann::json model_signature(const Config& config, const Vocabulary& vocabulary);
/// The part of these facts (a checkpoint's, or a run's) that both must have in common for a run of `model` to resume
/// from the other.
nlohmann::json resume_signature(const ModelConfig& model, nlohmann::json facts);
/// The part that they must have in common for a new run of `model` to start with the weights.
nlohmann::json weights_signature(const ModelConfig& model, nlohmann::json facts);

/// Error(checkpoint), naming what differs, unless a run of `config`, whose model_signature() is `facts`, may resume
/// from a checkpoint of this state at `path`: it is of the same model, and of batches of the same sizes. `chosen_by`:
/// the key that names it.
void require_resumable(const TrainingState& saved, const Config& config, const nlohmann::json& facts,
                       const std::string& path, const std::string& chosen_by);
/// The same for a new run of `model` that starts with the weights. Returns the checkpoint's facts: an import that does
/// not know its vocabulary has the run's.
nlohmann::json require_weights_of(const TrainingState& saved, const ModelConfig& model, const nlohmann::json& facts,
                                  const std::string& path);
/// Whether a model of these facts has numbers that bias its routers' choices.
bool has_choice_bias(const nlohmann::json& facts);

/// Facts that say which samples, and how much of them, each step of a run takes.
nlohmann::json schedule_facts(const Config& config);
/// Facts that the order of samples depends on in addition to the data itself: the seed, the part of the data that is
/// for training (cut by documents unless it says otherwise), and for a blend the weights and contents of its sets.
nlohmann::json order_facts(const Config& config, const Datasets& datasets);
/// The real differences among those between a checkpoint's order_facts() and this run's: a fact that an older
/// checkpoint does not say is none. The sets of a blend and their order then show in the hash of all data, `same_data`.
std::vector<FactDifference> data_order_mismatches(std::vector<FactDifference> differences, bool same_data);

/// The samples that evaluations use: by split, its sets and their weights; by task, its file and options.
nlohmann::json evaluation_facts(const Datasets& datasets, std::span<const TrainingTask> tasks = {});
/// Differences between two results of evaluation_facts(), for the splits and tasks that both have.
std::vector<FactDifference> changed_evaluations(const nlohmann::json& saved, const nlohmann::json& current);

}  // namespace megatron
