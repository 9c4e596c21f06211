// Keys of a Hugging Face config.json, by type and within bounds. A key that the file lacks has the default of the
// family's class in transformers (HuggingFaceFamily::defaults).
//
// Borrows both. Every accessor throws Error(checkpoint) naming the key that is missing, null or malformed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/core/error.h"
#include "base/text/foreign_json.h"

namespace megatron {

inline constexpr std::int64_t kMostOfAnySize = 1 << 24;  ///< limit of any size, so that no product of two overflows

class HuggingFaceKeys {
 public:
  HuggingFaceKeys(const nlohmann::json& config, const nlohmann::json& defaults)
      : config_(config), defaults_(defaults) {}

  bool given(const char* key) const { return config_.contains(key); }  ///< by the file itself
  bool has(const char* key) const { return from(key).contains(key) && !from(key).at(key).is_null(); }
  const nlohmann::json& value(const char* key) const { return from(key).at(key); }
  std::int64_t size(const char* key) const { return integer_at(from(key), key, 1, kMostOfAnySize); }
  std::int64_t size(const char* key, std::int64_t if_null) const { return has(key) ? size(key) : if_null; }
  std::int64_t count(const char* key) const { return integer_at(from(key), key, 0, kMostOfAnySize); }  ///< may be 0
  double number(const char* key) const { return number_at(from(key), key); }
  std::string text(const char* key) const { return text_at(from(key), key, 100); }
  bool flag(const char* key) const {
    verify(has(key) && from(key).at(key).is_boolean(), ErrorKind::checkpoint, "\"{}\" is not a truth value", key);
    return from(key).at(key).get<bool>();
  }
  /// It must have this value.
  void require(const char* key, bool value) const {
    verify(flag(key) == value, ErrorKind::checkpoint, "\"{}\": {} is no model that can be trained here", key, !value);
  }
  nlohmann::json object(const char* key) const {
    return has(key) ? object_at(from(key), key) : nlohmann::json::object();
  }
  nlohmann::json array(const char* key) const {  ///< empty where it is absent
    if (!has(key)) return nlohmann::json::array();
    verify(from(key).at(key).is_array(), ErrorKind::checkpoint, "\"{}\" is not an array", key);
    return from(key).at(key);
  }
  /// The only text in an array of `size` texts; "" where there is no array. `what` says what an array of several
  /// different ones would be.
  std::string same_text(const char* key, std::int64_t size, const char* what) const {
    const nlohmann::json texts = array(key);
    if (!has(key)) return "";
    verify(static_cast<std::int64_t>(texts.size()) == size && texts.front().is_string(), ErrorKind::checkpoint,
           "\"{}\" is not an array of {} texts", key, size);
    for (const nlohmann::json& element : texts) {
      verify(element == texts.front(), ErrorKind::checkpoint, "\"{}\": {} cannot be trained here", key, what);
    }
    return texts.front().get<std::string>();
  }

 private:
  const nlohmann::json& from(const char* key) const { return given(key) ? config_ : defaults_; }

  const nlohmann::json &config_, &defaults_;
};

}  // namespace megatron
