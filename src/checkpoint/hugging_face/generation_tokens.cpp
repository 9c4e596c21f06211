#include "checkpoint/hugging_face/generation_tokens.h"

#include "checkpoint/hugging_face/hugging_face_keys.h"
#include "checkpoint/safetensors/safetensors.h"
#include "data/tokenizer/vocabulary_file.h"
#include "data/tokenizer_kinds/hugging_face_folder.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"

namespace megatron {

using nlohmann::json;

void set_token_ids(const ModelConfig& model, const Tokenizer* tokenizer, json& out) {
  if (!model.has_decoder()) {
    out["bos_token_id"] = out["eos_token_id"] = tokenizer == nullptr ? json() : json(tokenizer->eod_id());
    return;
  }
  const SpecialIds ids = tokenizer == nullptr ? SpecialIds{} : tokenizer->special_ids();
  const auto set = [&](const char* key, std::int32_t id) {
    if (id >= 0) out[key] = id;
  };
  set("pad_token_id", ids.pad);
  set("eos_token_id", ids.eos);
  set("decoder_start_token_id", ids.bos);
}

namespace {

/// A key of generation_config.json, or else of config.json; null if neither has it.
json generation_key(const std::string& folder, const json& config, const char* key) {
  const std::string path = folder + "/generation_config.json";
  const json generation = tokenizer_file_exists(path) ? read_json_file(path) : json();
  const auto of = [&](const json& from) { return from.is_object() ? from.value(key, json()) : json(); };
  return of(generation).is_null() ? of(config) : of(generation);
}

}  // namespace

std::vector<std::int32_t> end_tokens_in(const std::string& folder, const json& config) {
  const json ids = generation_key(folder, config, "eos_token_id");
  std::vector<std::int32_t> ends;
  for (const json& id : ids.is_array() ? ids : json::array({ids})) {
    if (id.is_null()) continue;
    verify(id.is_number_integer() && id >= -1 && id < kMostOfAnySize, ErrorKind::checkpoint,
           "{}: \"eos_token_id\" is {}; token ids, or null, are right", folder, ids.dump().substr(0, 60));
    if (id >= 0) ends.push_back(id.get<std::int32_t>());
  }
  return ends;
}

EncoderDecoderTokens encoder_decoder_tokens_in(const std::string& folder, const json& config,
                                               const std::string& tokenizer_file, const Tokenizer* tokenizer) {
  EncoderDecoderTokens tokens;
  const json start = generation_key(folder, config, "decoder_start_token_id");
  verify(start.is_null() || (start.is_number_integer() && start >= 0 && start < kMostOfAnySize), ErrorKind::checkpoint,
         "{}: \"decoder_start_token_id\" is {}; a token id is right", folder, start.dump().substr(0, 60));
  if (!start.is_null()) tokens.decoder_start = start.get<std::int32_t>();  // else T5's padding, 0
  if (tokenizer != nullptr) {
    tokens.encoder = surrounding_tokens(tokenizer_file, *tokenizer);
  } else if (const std::vector<std::int32_t> ends = end_tokens_in(folder, config); !ends.empty()) {
    tokens.encoder.end = ends.front();
  }
  return tokens;
}

}  // namespace megatron
