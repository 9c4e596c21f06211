// Keys of a Hugging Face config.json, which may be absent or null, by type and within bounds.
//
// Borrows the JSON. Every accessor throws Error(checkpoint) naming the key that is malformed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "checkpoint/manifest.h"

namespace megatron {

inline constexpr std::int64_t kMostOfAnySize = 1 << 24;  ///< of any size, so that no product of two overflows

class HuggingFaceKeys {
 public:
  explicit HuggingFaceKeys(const nlohmann::json& config) : config_(config) {}

  bool given(const char* key) const { return config_.contains(key); }
  bool has(const char* key) const { return given(key) && !config_.at(key).is_null(); }
  std::int64_t size(const char* key) const { return integer_at(config_, key, 1, kMostOfAnySize); }
  std::int64_t size(const char* key, std::int64_t otherwise) const { return has(key) ? size(key) : otherwise; }
  std::int64_t count(const char* key, std::int64_t otherwise) const {  ///< may be 0
    return has(key) ? integer_at(config_, key, 0, kMostOfAnySize) : otherwise;
  }
  double number(const char* key, double otherwise) const { return has(key) ? number_at(config_, key) : otherwise; }
  std::string text(const char* key, const char* otherwise) const {
    return has(key) ? text_at(config_, key, 100) : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    verify(config_.at(key).is_boolean(), ErrorKind::checkpoint, "\"{}\" is not a truth value", key);
    return config_.at(key).get<bool>();
  }
  /// It must have this value, or be absent.
  void require(const char* key, bool value) const {
    verify(flag(key, value) == value, ErrorKind::checkpoint, "\"{}\": {} is no model that can be trained here", key,
           !value);
  }
  nlohmann::json object(const char* key) const { return has(key) ? object_at(config_, key) : nlohmann::json::object(); }
  nlohmann::json array(const char* key) const {  ///< empty where it is absent
    if (!has(key)) return nlohmann::json::array();
    verify(config_.at(key).is_array(), ErrorKind::checkpoint, "\"{}\" is not an array", key);
    return config_.at(key);
  }
  /// The only text in an array of texts; "" where the key is absent or the array empty. `what` says what an array of
  /// several different ones would be.
  std::string same_text(const char* key, const char* what) const {
    if (!has(key) || config_.at(key) == nlohmann::json::array()) return "";
    const nlohmann::json& array = config_.at(key);
    verify(array.is_array() && array.size() <= kMostOfAnySize && array.front().is_string(), ErrorKind::checkpoint,
           "\"{}\" is not an array of texts", key);
    for (const nlohmann::json& element : array) {
      verify(element == array.front(), ErrorKind::checkpoint, "\"{}\": {} cannot be trained here", key, what);
    }
    return array.front().get<std::string>();
  }

 private:
  const nlohmann::json& config_;
};

}  // namespace megatron
