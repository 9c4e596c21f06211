#include "data/tokenizer/added_token_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/tokenizer/json_members.h"
#include "data/tokenizer/tokenizer_pipeline.h"

namespace megatron {

PlacedToken read_added_token(JsonReader& json, std::string_view text) {
  PlacedToken read;
  json.peek();
  read.at = json.position();
  std::string buffer;
  AddedToken& token = read.token;
  for_each_member(json, [&](const std::string& key, JsonReader& value) {
    if (key == "content") return void(token.content = value.string(buffer));
    if (key == "id") return void(read.id = value.integer());
    bool* const flag = key == "special"       ? &token.special
                       : key == "normalized"  ? &token.normalized
                       : key == "single_word" ? &token.single_word
                       : key == "lstrip"      ? &token.lstrip
                       : key == "rstrip"      ? &token.rstrip
                                              : nullptr;
    if (flag == nullptr) throw UnsupportedStep{fmt::format("\"{}\" of an added token", key)};
    *flag = raw_value(value, text) == "true";
  });
  return read;
}

std::string written_token(const AddedToken& token) {
  return nlohmann::ordered_json{
      {"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
      {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
      {"special", token.special}}
      .dump();
}

std::string_view member_text(std::string_view text, std::string_view key) {
  JsonReader json(text);
  std::string_view found;
  for_each_entry(json, [&](const std::string& name, JsonReader& value) {
    const std::string_view written = raw_value(value, text);
    if (name == key) found = written;
  });
  return found;
}

std::string with_member(std::string_view text, std::string_view key, std::string_view value) {
  std::string changed(text);
  if (const std::string_view old = member_text(text, key); !old.empty()) {
    return changed.replace(static_cast<std::size_t>(old.data() - text.data()), old.size(), value);
  }
  JsonReader json(text);
  json.expect('{', "an object");
  const std::size_t at = json.position();
  return changed.insert(at, fmt::format("\"{}\":{}{}", key, value, json.take('}') ? "" : ","));
}

std::string with_added_tokens(std::string_view text, std::span<const AddedToken> more) {
  const std::string_view old = member_text(text, "added_tokens");
  std::string list(old.empty() ? "[" : old.substr(0, old.size() - 1));
  JsonReader json(old);
  const bool is_first = old.empty() || (json.take('['), json.take(']'));
  for (const AddedToken& token : more) {
    list += is_first && &token == more.data() ? "" : ",";
    list += written_token(token);
  }
  return with_member(text, "added_tokens", list + "]");
}

NamedText without_tokens_beyond(NamedText file, std::int64_t rows) {
  if (rows == 0) return file;
  std::string kept;
  bool drops = false;
  try {
    const std::string_view all = member_text(file.text, "added_tokens");
    JsonReader json(all);
    for_each_element(json, [&](JsonReader& token) {
      const std::string_view written = raw_value(token, all);
      JsonReader id(member_text(written, "id"));
      if (id.integer() >= static_cast<std::uint64_t>(rows)) return void(drops = true);
      kept += kept.empty() ? "" : ",";
      kept += written;
    });
    if (drops) file.text = with_member(file.text, "added_tokens", "[" + kept + "]");
  } catch (const JsonError&) {  // the file's reader says what is wrong, or that there are none
  }
  return file;
}

}  // namespace megatron
