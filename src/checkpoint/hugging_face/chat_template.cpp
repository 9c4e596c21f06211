#include "checkpoint/hugging_face/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/foreign_json.h"
#include "data/tokenizer/folder_settings.h"
#include "data/tokenizer/vocabulary_file.h"
#include "training/step/compatibility.h"

namespace megatron {

using nlohmann::json;

namespace {

constexpr std::size_t kLargestChatTemplate = 1 << 20;  // every save writes it again

/// null for what is no JSON object, which the tokenizer's readers tell.
json tokenizer_config_in(const std::string& folder) {
  try {
    return read_folder_json(folder + "/" + kTokenizerConfigFile);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    return nullptr;
  }
}

bool is_named_template(const json& entry) {
  return entry.is_object() && entry.contains("name") && entry.at("name").is_string() && entry.contains("template") &&
         entry.at("template").is_string();
}

}  // namespace

json chat_template_in(const std::string& folder, std::string& unusable) {
  const json config = tokenizer_config_in(folder);
  const auto entry = [&](const char* key) { return config.is_object() ? config.value(key, json()) : json(); };
  json chat = entry("chat_template");
  if (const std::string file = folder + "/" + kChatTemplateFile; tokenizer_file_exists(file)) {
    try {
      chat = read_vocabulary_file(file, "save it again with save_pretrained").text;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      unusable = error.what();
      return nullptr;
    }
  }
  if (chat.is_null()) return nullptr;
  if (!chat.is_string() && !(chat.is_array() && std::all_of(chat.begin(), chat.end(), is_named_template))) {
    unusable = fmt::format("{}/{}: \"chat_template\" is neither a text nor a list of {{\"name\", \"template\"}}",
                           folder, kTokenizerConfigFile);
  } else if (chat.dump().size() > kLargestChatTemplate) {
    unusable = fmt::format("{}: its chat template is larger than {} MiB", folder, kLargestChatTemplate >> 20);
  }
  if (!unusable.empty()) return nullptr;
  json entries = {{"chat_template", chat}};
  for (const char* key : {"bos_token", "eos_token"}) {
    const json token = entry(key);
    const json name = token.is_object() ? token.value("content", json()) : token;
    if (name.is_string()) entries[key] = name;
  }
  return entries;
}

json kept_chat_template(const CheckpointReader& checkpoint) {
  json entries;
  read_state(checkpoint, [&](const json& extra) {
    if (extra.contains(kChatTemplateKey)) entries = object_at(extra, kChatTemplateKey);
  });
  return entries;
}

std::string one_chat_template(const json& entries) {
  const json chat = entries.is_object() ? entries.value("chat_template", json()) : json();
  if (chat.is_string()) return chat.get<std::string>();
  for (const json& named : chat) {
    if (is_named_template(named) && named.at("name") == "default") return named.at("template").get<std::string>();
  }
  return "";
}

}  // namespace megatron
