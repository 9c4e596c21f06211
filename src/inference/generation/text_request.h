// A request of --serve-stdio: one line of JSON. docs/generation.md describes the protocol.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "inference/generation/text_options.h"

namespace megatron {

struct TextRequest {
  nlohmann::json id;  ///< repeated by the answers; null: none
  std::string prompt;
  TextOptions options;
  bool stream = false;
};

/// Parses the request on a line, with `defaults` for what it does not say. Error(data) if it is no JSON object, or has
/// an unknown or repeated key or a value of a wrong type; Error(configuration) for a value that is not possible. `id`
/// is set as soon as it is known, also where an error follows. With `beams`, keys that beams have no use for are
/// refused. Memory is that of the prompt, whatever the line holds. A pure function: all ranks find the same.
TextRequest parse_request(std::string_view line, const TextOptions& defaults, bool beams, nlohmann::json& id);

}  // namespace megatron
