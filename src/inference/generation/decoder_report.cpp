#include "inference/generation/decoder_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text/byte_text.h"
#include "base/text/text.h"

namespace megatron {

std::string decoder_report(const Config& config, const GridShape& shape, DType type, const DecoderSizes& sizes) {
  std::string text = fmt::format(
      "layout       {}: tensor {} × pipeline {} × data {}\n"
      "model        {} of {} tokens, weights in {}\n"
      "cache        {} of {}, {}{} each\n\n",
      counted(shape.ranks(), "rank"), shape.tensor, shape.pipeline, shape.data,
      counted(config.model.all_layers(), "layer"), config.model.predicted_length(), config.precision.compute,
      counted(sizes.groups, "group"), counted(sizes.samples, "text"), counted(sizes.capacity, "token"),
      sizes.encoder_rows > 0 ? fmt::format(" and {} that the encoder reads", sizes.encoder_rows) : "");
  text += fmt::format("{:>5} {:>7} {:>15} {:>15} {:>15} {:>15} {:>15} {:>15}\n", "stage", "tensor", "weights", "cache",
                      "activations", "workspace", "communication", "bytes in all");
  std::size_t most = 0, host = 0;
  for (int stage = 0; stage < shape.pipeline; ++stage) {
    for (int tensor = 0; tensor < shape.tensor; ++tensor) {
      const DecoderMemory memory = plan_decoder(config, shape, {.tensor = tensor, .pipeline = stage}, type, sizes);
      most = std::max(most, memory.total());
      host = std::max(host, memory.host);
      text += fmt::format("{:>5} {:>7} {:>15} {:>15} {:>15} {:>15} {:>15} {:>15}\n", stage, tensor, memory.weights,
                          memory.cache, memory.activations, memory.workspace, memory.communication, memory.total());
    }
  }
  text += fmt::format("\nThe largest rank takes {}.\n", format_bytes(static_cast<double>(most)));
  if (host > 0) {
    text += fmt::format("Communication takes at most {} bytes of a rank's host memory in addition, pinned.\n", host);
  }
  return text;
}

}  // namespace megatron
