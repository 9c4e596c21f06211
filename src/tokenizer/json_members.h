// Reading the members and elements that come next in a JsonReader. Internal to src/tokenizer.
#pragma once

#include <string>

#include "text/json_reader.h"

namespace megatron {

/// Calls visit(key, json) for each member; it must read the value.
template <class Visit>
void for_each_member(JsonReader& json, const Visit& visit) {
  json.expect('{', "an object");
  if (json.take('}')) return;
  do {
    std::string buffer;
    const std::string key(json.string(buffer));
    json.expect(':', "':' after a key");
    json.peek();
    visit(key, json);
  } while (json.take(','));
  json.expect('}', "',' or '}'");
}

template <class Visit>
void for_each_element(JsonReader& json, const Visit& visit) {
  json.expect('[', "an array");
  if (json.take(']')) return;
  do {
    json.peek();
    visit(json);
  } while (json.take(','));
  json.expect(']', "',' or ']'");
}

/// The value that comes next in a reader of `text`, as it is written.
inline std::string_view raw_value(JsonReader& json, std::string_view text) {
  json.peek();
  const std::size_t begin = json.position();
  json.skip_value();
  return text.substr(begin, json.position() - begin);
}

}  // namespace megatron
