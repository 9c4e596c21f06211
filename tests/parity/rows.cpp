#include "parity/rows.h"

#include <fmt/format.h>

#include "config/parse/parse.h"
#include "config/rules/resolve.h"
#include "parity/subjects.h"

namespace megatron::test {

namespace {

// Small and awkward: 8 layers give uneven stages and up to 4 chunks on 2 stages; 12 samples give micro-batches that are
// no multiple of the stages; the vocabulary is padded; dropout is on.
constexpr char kInput[] = R"(
[model]
layers = 8
hidden_size = 32
attention_heads = 4
sequence_length = 16
vocab_size = 50
vocab_multiple = 64

[train]
steps = 5
micro_batch_size = 1
global_batch_size = 12

[optimizer]
weight_decay = 0.1

[learning_rate]
peak = 1e-3
decay = "constant"

[data]
train = "made up by tests/support/tiny_training.h"
)";

}  // namespace

Config config_of(const Row& row) {
  std::vector<std::string> settings = with(row.trains, row.how);
  settings.push_back(fmt::format("parallel.tensor={}", row.tensor));
  settings.push_back(fmt::format("parallel.data={}", row.data));
  settings.push_back(fmt::format("parallel.pipeline={}", row.pipeline));
  Config config = parse_config_text(kInput, "the input of the parity test", settings);
  resolve(config, row.tensor * static_cast<int>(config.parallel.context) * row.data * row.pipeline, nullptr);
  return config;
}

std::vector<Row> parity_rows() {
  std::vector<Row> rows;
  for (const auto& subject :
       {layouts, sequence_parallel, schedules,         zero_bubble, gradient_reducer, distributed,
        rules,   recomputation,     batches,           sequences,   documents,        instructions,
        losses,  precision,         variants,          encoders,    encoder_decoders, experts,
        context, head_chunks,       divided_gradients, offload}) {
    for (Row& row : subject()) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace megatron::test
