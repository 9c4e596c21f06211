// The tokenizer that belongs to a checkpoint, on its way into what is made of that.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/store/checkpoint.h"
#include "config/schema/config.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer_kinds/hugging_face_folder.h"

namespace megatron {

/// If its files were kept, in the checkpoint's folder or its run's. nullptr if not; where they are damaged or another
/// one's, with a warning on standard error. ErrorKind::filesystem if they cannot be read.
std::unique_ptr<Tokenizer> tokenizer_beside(const CheckpointReader& source);

/// Into a folder that has none yet, durably.
void write_tokenizer_files(const Tokenizer& tokenizer, const std::string& folder);

/// For transformers: the tokenizer's own files, and what AutoTokenizer needs, if it has such a form. Of a model that
/// was trained here, it frames a text as training did; an imported one keeps its file. A model that has learned answers
/// also has the template of its conversations, others `imported_chat`, as kept_chat_template() has it.
void export_tokenizer(const Tokenizer& tokenizer, const ModelConfig& model, const TaskConfig& task, bool trained,
                      const nlohmann::json& imported_chat, const std::string& folder);

/// The token that begins texts of an imported model, by the files of its tokenizer.
inline constexpr const char* kBeginTokenKey = "begin_token";
nlohmann::json begin_token_json(const BeginToken& token);
/// The reverse, of what a checkpoint's state has under the key; none if it does not say. Error(checkpoint) if it is no
/// token.
std::optional<BeginToken> begin_token_of(const CheckpointReader& checkpoint);

/// Special tokens of an imported encoder-decoder, from its configuration and the files of its tokenizer.
struct EncoderDecoderTokens {
  std::int32_t decoder_start = 0;  ///< the decoder's first token
  SurroundingTokens encoder;       ///< around what the encoder reads
};
inline constexpr const char* kEncoderDecoderTokensKey = "encoder_decoder_tokens";
nlohmann::json encoder_decoder_tokens_json(const EncoderDecoderTokens& tokens);
/// As begin_token_of(). Absent for a model that was trained here: its samples have the vocabulary's beginning, and no
/// end on the encoder's side.
std::optional<EncoderDecoderTokens> encoder_decoder_tokens_of(const CheckpointReader& checkpoint);

/// From next to the source, if there is one.
void carry_tokenizer(const CheckpointReader& source, const std::string& folder);

}  // namespace megatron
