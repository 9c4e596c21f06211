#include "base/text/foreign_json.h"
#include "checkpoint/hugging_face/hugging_face_families.h"

namespace megatron {

using nlohmann::json;

namespace {

/// The keys of a rotation, inside an object for it and next to that object. Of a number that is in both places,
/// transformers 4 takes the outer one, and 5 the inner one.
class RotationKeys {
 public:
  explicit RotationKeys(const HuggingFaceKeys& keys) : keys_(keys), inner_(keys.object("rope_scaling")) {
    older_ = !inner_.empty();
    if (!older_) inner_ = keys.object("rope_parameters");
    for (const auto& [key, value] : inner_.items()) {
      verify(!value.is_object(), ErrorKind::checkpoint,
             "its rotations differ from layer to layer (\"{}\"), which cannot be trained here", key);
    }
  }

  double number(const char* key) const { return number_at(inner_, key); }

  double number(const char* key, const char* outer) const {
    if (!inner_.contains(key)) return keys_.number(outer);
    // Version 4 reads nothing of the newer object, whose files give no outer key.
    if (older_ || keys_.given(outer)) require_same(key, number_at(inner_, key), keys_.number(outer));
    return number_at(inner_, key);
  }

  std::string type() const {
    if (!inner_.contains("rope_type") && !inner_.contains("type")) return "default";
    const std::string text = text_at(inner_, inner_.contains("rope_type") ? "rope_type" : "type", 100);
    verify(inner_.value("type", json(text)) == text, ErrorKind::checkpoint,
           "\"rope_type\" and \"type\" of its rotary scaling are not the same");
    verify(older_ || !keys_.given("rope_scaling") || text == "default", ErrorKind::checkpoint,
           "\"rope_scaling\" is none, and \"rope_parameters\" is a {} one: transformers 4 and 5 take another one each",
           text);
    return text;
  }

  /// Number of positions that the scaling starts from.
  std::int64_t length(std::int64_t otherwise) const {
    const char* key = "original_max_position_embeddings";
    const std::int64_t length = inner_.contains(key) ? integer_at(inner_, key, 1, kMostOfAnySize) : otherwise;
    if (keys_.given(key)) require_same(key, static_cast<double>(length), static_cast<double>(keys_.size(key)));
    return length;
  }

 private:
  static void require_same(const char* key, double inner, double outer) {
    verify(inner == outer, ErrorKind::checkpoint,
           "\"{}\" is {} in its rotary scaling and {} without: transformers 4 and 5 take another one each", key, inner,
           outer);
  }

  const HuggingFaceKeys& keys_;
  json inner_;
  bool older_ = false;
};

}  // namespace

void read_rotation(const HuggingFaceKeys& keys, ModelConfig& model, const char* base, const char* fraction) {
  const char* part = "partial_rotary_factor";
  const RotationKeys rotation(keys);
  model.rotary_base = rotation.number("rope_theta", base);
  const double rotated = rotation.number(part, fraction == nullptr ? part : fraction);
  if (fraction != nullptr) model.rotary_fraction = rotated;

  const std::string type = rotation.type();
  if (type == "default") return;
  verify(type == "linear" || type == "llama3", ErrorKind::checkpoint,
         "rotary scaling of type \"{}\" is not supported; linear and llama3 are", type);
  verify(fraction != nullptr || rotated == 1, ErrorKind::checkpoint,
         "\"{}\" = {} together with rotary scaling: transformers cannot compute that either", part, rotated);
  RotaryScalingConfig& scaling = model.rotary_scaling;
  scaling.type = type;
  scaling.factor = rotation.number("factor");
  if (type == "linear") return;
  scaling.low_frequency_factor = rotation.number("low_freq_factor");
  scaling.high_frequency_factor = rotation.number("high_freq_factor");
  scaling.original_length = rotation.length(model.max_position_embeddings);
}

json hugging_face_scaling(const ModelConfig& model) {
  const RotaryScalingConfig& scaling = model.rotary_scaling;
  if (scaling.type == "linear") return {{"rope_type", "linear"}, {"factor", scaling.factor}};
  if (scaling.type != "llama3") return nullptr;
  return {{"rope_type", "llama3"},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_frequency_factor},
          {"high_freq_factor", scaling.high_frequency_factor},
          {"original_max_position_embeddings", scaling.original_length}};
}

void write_rotation(const ModelConfig& model, nlohmann::json& config) {
  config["rope_theta"] = model.rotary_base;
  config["rope_scaling"] = hugging_face_scaling(model);
}

}  // namespace megatron
