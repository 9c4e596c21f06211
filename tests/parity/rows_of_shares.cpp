// Rows of optimizer.share = "gradients" and "weights". At one micro-batch they have the bits of "state": nothing is
// added in another order. At more each is added to the sums of those before it, to rounding; "weights" has the bits of
// "gradients" always.
#include <algorithm>

#include "parity/shared_options.h"
#include "parity/subjects.h"

namespace megatron::test {

namespace {

const std::vector<std::string> kState = {"optimizer.share=state"}, kGradients = {"optimizer.share=gradients"},
                               kWeights = {"optimizer.share=weights"};

const std::string kDivided = "gradients, ";

/// The same rows with "weights", where there is no pipeline.
std::vector<Row> with_weights(const std::vector<Row>& rows) {
  std::vector<Row> others;
  for (Row row : rows) {
    if (row.pipeline > 1 || !row.name.starts_with(kDivided)) continue;
    row.same_as = row.name;
    row.name = "weights, " + row.name.substr(kDivided.size());
    std::replace(row.how.begin(), row.how.end(), kGradients.front(), kWeights.front());
    others.push_back(row);
  }
  return others;
}

/// A row of each share, of steps that are one micro-batch on each data rank.
void add_pair(std::vector<Row>& rows, const std::string& name, int tensor, int data, int pipeline,
              const std::vector<std::string>& how, const std::vector<std::string>& trains) {
  const std::vector<std::string> one = with(trains, {"train.global_batch_size=" + std::to_string(data)});
  rows.push_back({"state, " + name, tensor, data, pipeline, with(how, kState), one, ""});
  rows.push_back({"gradients, " + name, tensor, data, pipeline, with(how, kGradients), one, "state, " + name});
}

}  // namespace

std::vector<Row> divided_gradients() {
  const std::vector<std::string> full = {"recompute.mode=full"}, two_contexts = {"parallel.context=2"};
  const std::vector<std::string> bert = {"model.family=bert"};
  const std::vector<std::string> t5 = {"model.family=t5", "model.layers=4", "model.decoder_sequence_length=8",
                                       "model.head_bias=true"};
  const std::vector<std::string> relative = {"model.family=t5",
                                             "model.layers=5",
                                             "model.decoder_layers=3",
                                             "model.bias=false",
                                             "model.activation=relu",
                                             "model.decoder_sequence_length=12",
                                             "model.relative_buckets=8",
                                             "model.attention_scale=none",
                                             "model.position_embedding=relative",
                                             "model.scale_head=true",
                                             "model.normalization=rmsnorm",
                                             "model.relative_max_distance=12"};
  const std::vector<std::string> experts = {"moe.experts=4", "moe.top_k=4", "moe.z_coefficient=0.001", "moe.every=2",
                                            "moe.ffn_hidden_size=48"};
  const std::vector<std::string> two_experts = {"parallel.expert=2"};
  const std::vector<std::string> groups = {"optimizer.groups=[{names=[\"*.bias\"], name=\"sgd\"}]"};
  std::vector<Row> rows = {
      {"gradients, data 2", 1, 2, 1, kGradients, {}, ""},
      {"gradients, one rank", 1, 1, 1, kGradients, {}, "one rank"},
      {"gradients, data 3, overlap", 1, 3, 1, with(kGradients, {"parallel.overlap_gradients=true"}), {}, ""},
      {"gradients, 2 x 2 x 2", 2, 2, 2, with(kGradients, kSequence), {}, ""},
      {"gradients, gpipe, data 2",
       1,
       2,
       2,
       with(kGradients, {"parallel.schedule=gpipe"}),
       {},
       "gradients, 1f1b, data 2"},
      {"gradients, 1f1b, data 2", 1, 2, 2, kGradients, {}, ""},
      {"gradients, interleaved", 1, 2, 2, with(kGradients, kTwoChunks), {}, ""},
      {"gradients, recompute", 1, 2, 1, with(kGradients, full), {}, "gradients, data 2"},
      {"gradients, norms again", 1, 2, 1, with(kGradients, kNormsAgain), {}, "gradients, data 2"},
      {"gradients, context 2", 1, 1, 1, with(kGradients, two_contexts), {}, ""},
      {"gradients, context 2, data 2, bf16", 1, 2, 1, with(with(kGradients, two_contexts), kBf16), {}, ""},
      {"gradients, llama, tensor 4", 4, 2, 1, with(kGradients, kSequence), kLlama, ""},
      {"gradients, BERT", 2, 2, 2, with(kGradients, kSequence), bert, ""},
      {"gradients, T5", 1, 2, 2, kGradients, t5, ""},
      {"gradients, experts, expert 2 of data 4", 1, 4, 1, with(kGradients, two_experts), experts, ""},
      {"gradients, experts, expert 4", 1, 4, 1, with(kGradients, {"parallel.expert=4"}), experts, ""},
      {"gradients, 3 head chunks", 1, 2, 1, with(kGradients, {"model.head_chunks=3"}), {}, ""},
      {"gradients, groups", 1, 2, 2, kGradients, groups, ""},
      {"weights, gpipe", 1, 2, 1, with(kWeights, {"parallel.schedule=gpipe"}), {}, "gradients, data 2"},
      {"weights, BERT", 2, 2, 1, with(kWeights, kSequence), bert, ""},
      {"weights, T5", 1, 2, 1, kWeights, t5, ""},
      {"weights, relative T5, context 2, data 2", 1, 2, 1, with(kWeights, two_contexts), relative, ""},
      {"weights, groups", 1, 2, 1, kWeights, groups, ""},
      {"gradients, bf16 moments", 1, 4, 1, kGradients, {"optimizer.moments_dtype=bf16"}, ""},
  };
  const std::vector<std::string> sets = {"optimizer.share_within=2"};
  const std::vector<Row> within = {
      {"state, sets, data 4", 1, 4, 1, with(kState, sets), {}, ""},
      {"state, sets, data 4, pipeline 2",
       1,
       4,
       2,
       with(with(kState, sets), {"parallel.overlap_gradients=true"}),
       {},
       ""},
      {"gradients, sets, data 4", 1, 4, 1, with(kGradients, sets), {}, ""},
      {"gradients, sets, tensor 2", 2, 4, 1, with(with(kGradients, sets), kSequence), kLlama, ""},
      {"gradients, sets, pipeline 2, bf16", 1, 4, 2, with(with(kGradients, sets), kBf16), {}, ""},
      {"gradients, sets, context 2", 1, 2, 1, with(with(kGradients, sets), two_contexts), {}, ""},
      {"gradients, sets, T5", 1, 4, 2, with(kGradients, sets), t5, ""},
      {"gradients, sets of 4, experts on context ranks", 1, 4, 1,
       with(with(kGradients, {"optimizer.share_within=4", "parallel.context=2"}), two_experts), experts, ""},
      {"gradients, sets, experts with one copy", 1, 4, 1, with(with(kGradients, sets), two_experts), experts, ""},
  };
  rows.insert(rows.end(), within.begin(), within.end());
  add_pair(rows, "sets, one micro-batch", 1, 4, 1, sets, {});
  add_pair(rows, "sets, bf16, one micro-batch", 2, 4, 1, with(sets, kBf16), {});
  add_pair(rows, "sets, experts, one micro-batch", 1, 4, 1, with(sets, two_experts), experts);
  add_pair(rows, "data 2, one micro-batch", 1, 2, 1, {}, {});
  add_pair(rows, "2 x 2 x 2, one micro-batch", 2, 2, 2, kSequence, {});
  add_pair(rows, "bf16, one micro-batch", 1, 4, 1, kBf16, {});
  add_pair(rows, "interleaved, one micro-batch", 1, 2, 2, kTwoChunks, {});
  add_pair(rows, "llama, one micro-batch", 2, 2, 1, {}, kLlama);
  add_pair(rows, "BERT, one micro-batch", 1, 2, 2, {}, bert);
  add_pair(rows, "relative T5, one micro-batch", 1, 2, 2, {}, relative);
  add_pair(rows, "experts, one micro-batch", 1, 4, 1, two_experts, experts);
  add_pair(rows, "context 2, one micro-batch", 1, 2, 1, two_contexts, {});
  const std::vector<Row> weights = with_weights(rows);
  rows.insert(rows.end(), weights.begin(), weights.end());
  return rows;
}

}  // namespace megatron::test
