// The chat template of an imported model, which this program keeps for exports and does not read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/store/checkpoint.h"

namespace megatron {

/// Where transformers looks for a template first.
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";

/// The entries of a tokenizer_config.json that say how conversations are written: "chat_template", a text or a list of
/// {"name", "template"}, and the tokens that it names, "bos_token" and "eos_token". Out of a model's folder: by
/// kChatTemplateFile, else by tokenizer_config.json; null if neither has a template, or if it cannot be kept:
/// `unusable` says why, and is left alone otherwise.
nlohmann::json chat_template_in(const std::string& folder, std::string& unusable);

/// The same of a checkpoint, under kChatTemplateKey; null if it has none.
nlohmann::json kept_chat_template(const CheckpointReader& checkpoint);

/// The template for kChatTemplateFile: of a list the one named "default"; empty if there is none.
std::string one_chat_template(const nlohmann::json& entries);

}  // namespace megatron
