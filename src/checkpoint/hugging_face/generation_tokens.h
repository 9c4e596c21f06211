// The tokens that begin and end texts in Hugging Face's form: written into the config.json of an export, and read from
// a folder that is imported, from generation_config.json, config.json and the files of its tokenizer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/hugging_face/checkpoint_tokenizer.h"

namespace megatron {

/// Sets the ids in `out`, a config.json. Without a tokenizer, an encoder-decoder keeps those of its format.
void set_token_ids(const ModelConfig& model, const Tokenizer* tokenizer, nlohmann::json& out);

/// The tokens that end a text, of the folder whose config.json is `config`. Error(checkpoint) if they are no ids.
std::vector<std::int32_t> end_tokens_in(const std::string& folder, const nlohmann::json& config);

/// Special tokens of the encoder-decoder in that folder. `tokenizer_file` is read if it is a tokenizer.json. Without a
/// `tokenizer`, the token that ends the decoder's texts also ends the encoder's. Errors as end_tokens_in().
EncoderDecoderTokens encoder_decoder_tokens_in(const std::string& folder, const nlohmann::json& config,
                                               const std::string& tokenizer_file, const Tokenizer* tokenizer);

}  // namespace megatron
