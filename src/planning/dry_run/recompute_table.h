// Savings and costs of selective recomputation, part by part.
#pragma once

#include <string>

#include "config/schema/config.h"

namespace megatron {

/// For a resolved configuration with recompute.mode "selective": the parts of layers that a backward can make again,
/// each with the bytes that it saves on the first stage and with what it costs a step, by playing one after the other;
/// and the parts that are made again together. Other modes: "".
std::string describe_recompute_parts(const Config& config);

}  // namespace megatron
