// JSON of files that may be damaged or another program's: values by key, within bounds.
//
// Every function throws Error(checkpoint) naming the key where the value is absent, of another kind or out of bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace megatron {

inline constexpr int kJsonDepthLimit = 64;

/// At most kJsonDepthLimit levels, or Error(checkpoint) beginning with `what`.
nlohmann::json parse_json(const std::string& text, const std::string& what);

const nlohmann::json& member_at(const nlohmann::json& object, const char* key);
std::int64_t integer_at(const nlohmann::json& object, const char* key, std::int64_t lowest, std::int64_t highest);
double number_at(const nlohmann::json& object, const char* key);  ///< finite
nlohmann::json object_at(const nlohmann::json& object, const char* key);
/// 1 to `longest` bytes without control characters.
std::string text_at(const nlohmann::json& object, const char* key, std::size_t longest);
/// `value` itself; `key` is for the message.
std::int64_t integer_in(const nlohmann::json& value, const char* key, std::int64_t lowest, std::int64_t highest);

}  // namespace megatron
