#include "data/tokenizer_kinds/sentence_piece_tokenizer.h"

#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>

#include "base/core/error.h"
#include "base/core/philox.h"
#include "data/tokenizer/added_token_json.h"
#include "data/tokenizer/special_names.h"

namespace megatron {

namespace {

bool is_text(PieceType type) {
  return type != PieceType::control && type != PieceType::unknown;
}

/// The token that ends documents is special even where a folder does not say so: no text may have it.
std::vector<AddedToken> added_tokens_of(const SentencePieceModel& model) {
  std::vector<AddedToken> tokens = model.added;
  std::vector<bool> is_added(model.pieces.size());
  for (AddedToken& token : tokens) {
    is_added[static_cast<std::size_t>(token.id)] = true;
    if (token.id == model.special.eos) token.special = true;
  }
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (is_text(model.pieces[id].type) || is_added[id]) continue;
    tokens.push_back({.content = model.pieces[id].text, .id = static_cast<std::int32_t>(id), .special = true});
  }
  return tokens;
}

std::uint64_t hash_of(const SentencePieceModel& model) {
  std::string all = fmt::format("tokenizer sentencepiece: {} bytes {} {}:", model.unigram ? "unigram" : "bpe",
                                model.byte_fallback, model.normalizer.size());
  all += model.normalizer;
  for (const auto& [text, score, type] : model.pieces) {
    all +=
        fmt::format("{}:{}{:08x}{},", text.size(), text, std::bit_cast<std::uint32_t>(score), static_cast<int>(type));
  }
  if (model.prefix_once) all += "prefix once,";
  for (const AddedToken& token : model.added) {
    if (!token.special && token.id != model.special.eos) all += written_token(token);
  }
  return hash_name(all + fmt::format("end of document {}", model.special.eos));
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceModel model)
    : model_(std::move(model)), added_(added_tokens_of(model_)), tables_(model_, added_), hash_(hash_of(model_)) {}

std::string SentencePieceTokenizer::decode_next(std::int32_t id) const {
  verify(id >= 0 && id < vocab_size(), ErrorKind::data, "token id {} is outside the {} tokenizer's 0 .. {}", id, name(),
         vocab_size() - 1);
  const auto& [text, score, type] = tables_.piece(id);
  if (id == eod_id()) return "";
  if (type == PieceType::byte) {
    if (const auto byte = byte_of_piece(text)) return std::string(1, *byte);
  }
  return is_text(type) ? spaces_written(text) : text;
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  return joined(ids, model_.add_dummy_prefix, *this);
}

/// transformers finds control pieces and added tokens where this names them alone, and adds <s> and </s> to a
/// vocabulary with other names for them. Its versions differ in what they take for "legacy" where it is absent.
std::string SentencePieceTokenizer::tokenizer_config() const {
  nlohmann::json config = {{"legacy", !model_.prefix_once}};
  if (!model_.add_dummy_prefix) config["add_prefix_space"] = false;
  const auto name = [&](const char* key, std::int32_t id) {
    config[key] = id < 0 ? nlohmann::json() : nlohmann::json(tables_.piece(id).text);
  };
  const SpecialIds& special = model_.special;
  const bool begins = special.bos >= 0 && special.bos != special.pad;
  name("eos_token", special.eos);
  name("unk_token", special.unk);
  name("bos_token", begins ? special.bos : -1);
  if (!begins) config["add_bos_token"] = false;
  if (special.pad >= 0) name("pad_token", special.pad);
  nlohmann::json& decoder = config["added_tokens_decoder"];
  for (const AddedToken& token : added_tokens_of(model_)) {
    nlohmann::json& written = decoder[std::to_string(token.id)] = nlohmann::json::parse(written_token(token));
    written.erase("id");
  }
  return config.dump();
}

std::vector<std::uint8_t> SentencePieceTokenizer::continues() const {
  std::vector<std::uint8_t> result;
  for (const auto& [text, score, type] : model_.pieces) {
    result.push_back(type != PieceType::control && !text.starts_with(kSpaceMark) ? 1 : 0);
  }
  clear_special(model_.special, result);
  return result;
}

}  // namespace megatron
