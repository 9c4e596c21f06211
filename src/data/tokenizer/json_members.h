// Reading the members and elements that come next in a JsonReader. Internal to src/data/tokenizer.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text/json_reader.h"

namespace megatron {

/// Calls visit(key, json) for each member of an object of any size, keys that are there twice too; it must read the
/// value.
template <class Visit>
void for_each_entry(JsonReader& json, const Visit& visit) {
  visit_object(json, "an object", [&](std::string_view key) { visit(std::string(key), json); });
}

/// The same for an object whose keys `visit` knows. Throws JsonError where one is there twice: readers disagree about
/// which of the two counts.
template <class Visit>
void for_each_member(JsonReader& json, const Visit& visit) {
  std::vector<std::string> seen;
  for_each_entry(json, [&](const std::string& key, JsonReader& value) {
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
      throw JsonError{fmt::format("\"{}\" is there twice", key), value.position()};
    }
    seen.push_back(key);
    visit(key, value);
  });
}

template <class Visit>
void for_each_element(JsonReader& json, const Visit& visit) {
  visit_array(json, "an array", [&] { visit(json); });
}

/// The value that comes next in a reader of `text`, as it is written.
inline std::string_view raw_value(JsonReader& json, std::string_view text) {
  json.peek();
  const std::size_t begin = json.position();
  json.skip_value();
  return text.substr(begin, json.position() - begin);
}

}  // namespace megatron
