#include "checkpoint/hugging_face/checkpoint_tokenizer.h"

#include "base/system/durable_file.h"
#include "base/system/notes.h"
#include "base/text/foreign_json.h"
#include "checkpoint/hugging_face/chat_template.h"
#include "checkpoint/store/files.h"
#include "data/samples/chat_text.h"
#include "data/shards/kept_tokenizer.h"
#include "data/tokenizer/tokenizer_export.h"
#include "training/datasets/task_data.h"

namespace megatron {

namespace {

/// The special tokens that training here puts around a text.
TextFrame text_frame(const ModelConfig& model) {
  if (model.family == "bert") return TextFrame::cls_sep;
  return model.has_decoder() ? TextFrame::none : TextFrame::nothing_after;
}

}  // namespace

nlohmann::json begin_token_json(const BeginToken& token) {
  return {{"id", token.id}, {"by_default", token.by_default}};
}

std::optional<BeginToken> begin_token_of(const CheckpointReader& checkpoint) {
  std::optional<BeginToken> token;
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    if (!extra.contains(kBeginTokenKey)) return;
    const nlohmann::json& saved = extra.at(kBeginTokenKey);
    token = BeginToken{static_cast<std::int32_t>(integer_at(saved, "id", 0, INT32_MAX)),
                       saved.at("by_default").get<bool>()};
  });
  return token;
}

nlohmann::json encoder_decoder_tokens_json(const EncoderDecoderTokens& tokens) {
  nlohmann::json saved = {{"decoder_start", tokens.decoder_start}};
  if (tokens.encoder.begin) saved["encoder_begin"] = *tokens.encoder.begin;
  if (tokens.encoder.end) saved["encoder_end"] = *tokens.encoder.end;
  return saved;
}

std::optional<EncoderDecoderTokens> encoder_decoder_tokens_of(const CheckpointReader& checkpoint) {
  std::optional<EncoderDecoderTokens> tokens;
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    if (!extra.contains(kEncoderDecoderTokensKey)) return;
    const nlohmann::json& saved = extra.at(kEncoderDecoderTokensKey);
    const auto id = [&](const char* key) { return static_cast<std::int32_t>(integer_at(saved, key, 0, INT32_MAX)); };
    tokens = EncoderDecoderTokens{.decoder_start = id("decoder_start"), .encoder = {}};
    if (saved.contains("encoder_begin")) tokens->encoder.begin = id("encoder_begin");
    if (saved.contains("encoder_end")) tokens->encoder.end = id("encoder_end");
  });
  return tokens;
}

std::unique_ptr<Tokenizer> tokenizer_beside(const CheckpointReader& source) {
  const nlohmann::json& facts = source.state().facts;
  try {
    const auto name = facts.at("tokenizer").get<std::string>();
    return tokenizer_of_checkpoint(source.path(), name, facts.at("tokenizer_hash").get<std::uint64_t>(), "", "");
  } catch (const nlohmann::json::exception&) {  // a tool does not know it
    return nullptr;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::filesystem) throw;
    if (error.kind() == ErrorKind::checkpoint) print_warning(error.what());
    return nullptr;
  }
}

void write_tokenizer_files(const Tokenizer& tokenizer, const std::string& folder) {
  for (const TokenizerFile& file : tokenizer.files()) create_file_durably(folder + "/" + file.name, file.contents);
  sync_path(folder);
}

void carry_tokenizer(const CheckpointReader& source, const std::string& folder) {
  if (const std::unique_ptr<Tokenizer> tokenizer = tokenizer_beside(source)) write_tokenizer_files(*tokenizer, folder);
}

void export_tokenizer(const Tokenizer& tokenizer, const ModelConfig& model, const TaskConfig& task, bool trained,
                      const nlohmann::json& imported_chat, const std::string& folder) {
  const std::string json_form =
      trained ? trained_tokenizer_json(tokenizer, text_frame(model)) : tokenizer.tokenizer_json();
  for (const TokenizerFile& file : tokenizer.files()) {
    if (file.name != kTokenizerFile) create_file_durably(folder + "/" + file.name, file.contents);
  }
  const nlohmann::json chat = has_chat(task)
                                  ? nlohmann::json{{"chat_template", jinja_template(chat_template_of(task), tokenizer)}}
                                  : imported_chat;
  if (json_form.empty()) {
    const std::string text = one_chat_template(chat);
    if (!text.empty()) create_file_durably(folder + "/" + kChatTemplateFile, text);
    auto config = nlohmann::json::parse(tokenizer.tokenizer_config());
    config["model_max_length"] = model.sequence_length;
    if (model.has_decoder()) {  // its class adds 100 sentinels to those of the file, unless it is told
      config.update({{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 0}});
    }
    create_file_durably(folder + "/" + kTokenizerConfigFile, config.dump(2) + "\n");
    return;
  }
  // Versions of transformers differ in what they return unless this says it: without types BERT takes a pair's second
  // text for its first, and with them GPT-2 adds the embeddings of tokens 0 and 1.
  nlohmann::json more = {{"model_input_names", {"input_ids", "attention_mask"}}};
  if (model.family == "bert") more["model_input_names"] = {"input_ids", "token_type_ids", "attention_mask"};
  if (chat.is_object()) more.update(chat);
  create_file_durably(folder + "/" + kTokenizerFile, json_form);
  create_file_durably(folder + "/" + kTokenizerConfigFile,
                      write_tokenizer_config(tokenizer, model.sequence_length, more));
}

}  // namespace megatron
