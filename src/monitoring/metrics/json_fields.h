// Fields of a JSON object that a run has written, of any version, possibly damaged: what is missing or of another type
// is none. And texts as JSON writes them.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace megatron {

/// With its quotes; bytes that are no UTF-8 are replaced.
inline std::string in_quotes(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

inline double number_or_nan(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : std::nan("");
}

inline double number_or(const nlohmann::json& object, const char* name, double otherwise) {
  const double value = number_or_nan(object, name);
  return std::isnan(value) ? otherwise : value;
}

inline std::string text_or(const nlohmann::json& object, const char* name, const char* otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

}  // namespace megatron
