#include "interop/hugging_face_families.h"

namespace megatron {

using nlohmann::json;

void read_rotation(const HuggingFaceKeys& keys, ModelConfig& model, double fraction_if_absent) {
  json both = keys.object("rope_scaling");
  if (both.empty()) both = keys.object("rope_parameters");
  for (const auto& [key, value] : both.items()) {
    verify(!value.is_object(), ErrorKind::checkpoint,
           "its rotations differ from layer to layer (\"{}\"), which cannot be trained here", key);
  }
  const HuggingFaceKeys rotation(both);
  const char* base = fraction_if_absent > 0 && keys.has("rotary_emb_base") ? "rotary_emb_base" : "rope_theta";
  model.rotary_base = rotation.number("rope_theta", keys.number(base, 10000));
  const double fraction =
      rotation.number("partial_rotary_factor",
                      keys.number(keys.has("rotary_pct") ? "rotary_pct" : "partial_rotary_factor", fraction_if_absent));
  if (fraction_if_absent > 0) model.rotary_fraction = fraction;

  const std::string type = rotation.text("rope_type", rotation.text("type", "default").c_str());
  if (type == "default") return;
  verify(type == "linear" || type == "llama3", ErrorKind::checkpoint,
         "rotary scaling of type \"{}\" is none of ours, which are linear and llama3", type);
  verify(fraction_if_absent > 0 || fraction == 0 || fraction == 1, ErrorKind::checkpoint,
         "\"partial_rotary_factor\" = {} together with rotary scaling: transformers cannot compute that either",
         fraction);
  RotaryScalingConfig& scaling = model.rotary_scaling;
  scaling.type = type;
  scaling.factor = number_at(both, "factor");
  if (type == "linear") return;
  scaling.low_frequency_factor = number_at(both, "low_freq_factor");
  scaling.high_frequency_factor = number_at(both, "high_freq_factor");
  const char* length = "original_max_position_embeddings";
  const std::int64_t otherwise = rotation.size(length, model.max_position_embeddings);
  scaling.original_length = keys.size(length, otherwise);
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
