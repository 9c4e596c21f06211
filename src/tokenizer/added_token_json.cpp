#include "tokenizer/added_token_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/json_members.h"
#include "tokenizer/tokenizer_pipeline.h"

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

nlohmann::ordered_json written_token(const AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

nlohmann::ordered_json parse_to_change(std::string_view text, const NamedText& file) {
  auto json = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) file.fail_at(0, "tokens cannot be added to a file with a number that is too large");
  return json;
}

}  // namespace megatron
