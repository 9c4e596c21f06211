// Keys of the model and of how ranks divide it.
#include "base/core/attention_exchanges.h"
#include "config/schema/schema_keys.h"

namespace megatron {

using namespace constraints;

std::vector<Key> model_keys() {
  const Constraint extent = from_to(1, kMaxExtent);
  const std::string_view family = "model.family", positions = "model.position_embedding";
  return {
      {MEGATRON_KEY(model, preset), any(), "", "none",
       "Sizes of a published model. Keys of the file override a preset of the file. A preset on the command line "
       "replaces the file's sizes, which the start of the run lists.",
       ""},
      {MEGATRON_KEY(model, family), one_of({"gpt", "bert", "t5"}), "", "",
       "Kind of transformer. gpt: a decoder of next tokens. bert: an encoder of masked tokens and of the order of two "
       "texts. t5: an encoder, and a decoder that writes the spans which the encoder's text lacks.",
       ""},
      {MEGATRON_KEY(model, layers),
       noted(from_to(1, kMaxLayers),
             "a multiple of parallel.pipeline × parallel.virtual_stages, unless "
             "parallel.layers_per_stage says otherwise"),
       "", "required", "Transformer layers; of a T5 its encoder's.", "", Fact::always},
      {MEGATRON_KEY(model, decoder_layers), from_to(1, kMaxLayers).with(family, {"t5"}), "", "= layers",
       "Layers of the decoder. For parallel.pipeline they follow the encoder's.", "", Fact::unless_default},
      {MEGATRON_KEY(model, hidden_size), noted(extent, "a multiple of attention_heads, unless head_size is given"), "",
       "required", "Width of the hidden state.", "", Fact::always},
      {MEGATRON_KEY(model, base_hidden_size), extent.with("optimizer.scaling", {"mup"}), "", "none",
       "Width of the model that [learning_rate], optimizer.weight_decay and init_std are for. This one is m = "
       "hidden_size / base_hidden_size times as wide: its logits are multiplied by 1 / m, the initial weights of its "
       "hidden matrices by 1 / √m, and learning rates by what the rule needs (docs/training.md). Other sizes do not "
       "matter.",
       "", Fact::unless_default},
      {MEGATRON_KEY(model, attention_heads), noted(extent, "a multiple of parallel.tensor"), "", "required",
       "Attention heads per layer.", "", Fact::always},
      {MEGATRON_KEY_IN(model, head_size, model.given_head_size), extent, "channels", "= hidden_size / attention_heads",
       "Size of a query, key or value of one head.", ""},
      {MEGATRON_KEY(model, base_head_size),
       noted(extent, "head_size, if base_hidden_size is hidden_size").with("optimizer.scaling", {"mup"}), "channels",
       "= head_size",
       "Head size of the model of base_hidden_size, where heads become larger with the width and not more. Attention "
       "scores are divided by head_size / √base_head_size, which is √head_size where the size stays the same.",
       "", Fact::unless_default},
      {MEGATRON_KEY(model, query_groups),
       noted(extent, "divides attention_heads; it and parallel.tensor divide evenly"), "", "= attention_heads",
       "Key/value heads: grouped-query attention; 1 is multi-query.", "", Fact::always},
      {MEGATRON_KEY(model, attention_window), extent.with(family, {"gpt"}), "tokens", "none",
       "Sliding window: a token attends to this many positions, itself included. Without it, to all earlier "
       "positions.",
       "", Fact::unless_default},
      {MEGATRON_KEY(model, ffn_hidden_size), noted(extent, "a multiple of parallel.tensor"), "",
       "= 4 · hidden_size; with a gate 8/3 · hidden_size, down to a multiple of 64",
       "Inner width of the feed-forward part.", "", Fact::always},
      {MEGATRON_KEY(model, sequence_length), extent, "tokens", "required",
       "Tokens per sample; of a T5 those of its encoder.", "", Fact::always},
      {MEGATRON_KEY(model, decoder_sequence_length), extent.with(family, {"t5"}), "tokens",
       "= sequence_length / 4, at least 3", "Tokens per sample of a T5's decoder.", "", Fact::unless_default},
      {MEGATRON_KEY(model, max_position_embeddings),
       noted(extent, "at least sequence_length and decoder_sequence_length"), "tokens", "= the longer of both",
       "Rows of the learned position table, which a T5's encoder and decoder share.", "", Fact::always},
      {MEGATRON_KEY(model, vocab_size), noted(from_to(1, kMaxVocabulary), "at least the data's"), "tokens",
       "the data's", "Size of the vocabulary. A plan without data needs it.", "", Fact::always},
      {MEGATRON_KEY(model, vocab_multiple),
       noted(from_to(1, kMaxVocabulary), "padded size a multiple of parallel.tensor"), "tokens", "",
       "The vocabulary is padded to a multiple of this, independent of parallel.tensor. Padding logits are "
       "masked.",
       ""},
      {MEGATRON_KEY(model, position_embedding),
       one_of(names_of(kPositionEmbeddings))
           .with(family, {"gpt", "bert"}, "rope")
           .with(family, {"gpt"}, "alibi")
           .with(family, {"t5"}, "relative")
           .with(family, {"gpt", "bert"}, "none"),
       "", "",
       "How the model learns of positions: a learned table, rotary embedding, ALiBi, a learned bias of attention "
       "scores "
       "by distance (T5), or not at all.",
       "", Fact::always},
      {MEGATRON_KEY(model, relative_buckets),
       noted(from_to(4, kMaxBuckets), "a multiple of 4").with(positions, {"relative"}), "", "",
       "Buckets of distances, each with a learned bias per head. Half of them are for single distances.", ""},
      {MEGATRON_KEY(model, relative_max_distance),
       noted(from_to(1, kMaxDistance), "above relative_buckets / 2").with(positions, {"relative"}), "tokens", "",
       "Distances from this on share the last bucket.", ""},
      {MEGATRON_KEY(model, rotary_fraction), above_to(0, 1).with(positions, {"rope"}), "", "",
       "Fraction of each head that is rotated, starting with its first channel.", ""},
      {MEGATRON_KEY(model, rotary_base), in_fp32(above(1)).with(positions, {"rope"}), "", "",
       "Base of the rotation angles. The slowest rotation has a wavelength of about 2π times this many "
       "positions.",
       ""},
      {MEGATRON_KEY(model, rotary_scaling), above_to(0, kMaxExtent).with(positions, {"rope"}), "", "none",
       "Stretches rotations to longer sequences. {type = \"linear\", factor} divides all positions; {type = "
       "\"llama3\", factor, low_frequency_factor = 1.0, high_frequency_factor = 4.0, original_length = 8192} "
       "divides those of slow rotations.",
       ""},
      {MEGATRON_KEY(model, activation), one_of(names_of(kActivations)), "", "",
       "Activation of the feed-forward part. gelu is the tanh form; swiglu and geglu are gated, with three "
       "matrices.",
       "", Fact::always},
      {MEGATRON_KEY(model, normalization), one_of(names_of(kNormalizations)), "", "", "Kind of normalization.", "",
       Fact::always},
      {MEGATRON_KEY(model, norm_epsilon), in_fp32(above(0)), "", "", "Added to the variance in a normalization.", "",
       Fact::always},
      {MEGATRON_KEY(model, query_key_norm), any().with(family, {"gpt", "bert"}), "", "",
       "Normalize queries and keys per head (RMSNorm with a weight), before the rotation.", "", Fact::unless_default},
      {MEGATRON_KEY(model, attention_scale), one_of(names_of(kAttentionScales)).with(family, {"t5"}, "none"), "", "",
       "What attention scores are divided by: √head_size, or nothing (the original T5).", "", Fact::unless_default},
      {MEGATRON_KEY(model, attention_softcap), in_fp32(from_to(0, 1e6)), "", "",
       "Attention scores become attention_softcap · tanh(score / attention_softcap), before a bias of positions is "
       "added and keys are masked (Gemma 2 has 50). 0: no cap.",
       "", Fact::unless_default},
      {MEGATRON_KEY(model, residual), one_of(names_of(kResiduals)).with(family, {"gpt", "bert"}), "", "",
       "Inputs of the parts of a layer. sequential: the feed-forward part reads the sum of the layer's input and "
       "attention. parallel: both parts read the layer's input, each through its own norm (GPT-NeoX). "
       "parallel_one_norm: both through the same norm (Phi).",
       "", Fact::unless_default},
      {MEGATRON_KEY(model, norm_position), one_of(names_of(kNormPositions)).with(family, {"bert"}, "post"), "", "",
       "Normalization in front of each part of a layer, with a final one after all layers (Megatron's BERT); or after "
       "each part's sum with the residual (the original BERT).",
       "", Fact::unless_default},
      {MEGATRON_KEY(model, tie_embeddings), any(), "", "", "Use the token embedding as the output projection.", "",
       Fact::always},
      {MEGATRON_KEY(model, scale_embeddings), any().with(family, {"gpt", "bert"}), "", "",
       "Multiply word embeddings by √hidden_size, with base_hidden_size by its root, before positions are added "
       "(Gemma).",
       "", Fact::unless_default},
      {MEGATRON_KEY(model, embedding_norm), any().with(family, {"gpt", "bert"}), "", "",
       "Normalize embeddings before the first layer (BLOOM).", "", Fact::unless_default},
      {MEGATRON_KEY(model, bias), any(), "", "",
       "Which linear layers of a block have a bias: all, none, or only those of attention, of query, key and "
       "value, or of the feed-forward part. LayerNorm always has one, RMSNorm never.",
       "", Fact::always},
      {MEGATRON_KEY(model, head_bias), any(), "", "", "Add a bias to the logits (Phi). BERT's always have one.", "",
       Fact::unless_default},
      {MEGATRON_KEY(model, scale_head), noted(any(), "with tie_embeddings only").with(family, {"t5"}), "", "",
       "Divide what the logits are made of by √hidden_size, with base_hidden_size by its root (the original T5).", "",
       Fact::unless_default},
      {MEGATRON_KEY(model, head_chunks), noted(extent, "1 with a task that has its own head"), "chunks", "",
       "Compute logits and loss in this many chunks of rows, all in the memory of one, and each chunk's gradients at "
       "once in the forward pass. Saves the logits of all other chunks, and those of micro-batches in flight. Costs "
       "about 1 % in chunks of 256 rows and 2 to 3 % in chunks of 128, and with parallel.tensor two small sums for "
       "each chunk. In a zero_bubble schedule the head's weight gradient then fills no bubble. Losses have the same "
       "bits, gradients of the word table and of head_bias are equal to rounding. A run may be resumed with another "
       "number (docs/memory.md).",
       ""},
      {MEGATRON_KEY(model, hidden_dropout), dropout(), "", "", "Dropout after embedding, attention and feed-forward.",
       ""},
      {MEGATRON_KEY(model, attention_dropout), dropout(), "", "", "Dropout of the attention probabilities.", ""},
      {MEGATRON_KEY(model, init_std), in_fp32(above(0)), "", "",
       "Standard deviation of initial weights. Output projections use it divided by √(2 · layers). With "
       "base_hidden_size it is that width's.",
       ""},
  };
}

std::vector<Key> moe_keys() {
  const Constraint factor = in_fp32(above(0)), coefficient = in_fp32(at_least(0));
  const std::string_view drop = "moe.drop";
  return {
      {MEGATRON_KEY_IN(moe, experts, model.moe.experts),
       noted(from_to(1, kMaxExperts), "a multiple of parallel.expert"), "", "none",
       "Experts per layer: feed-forward parts of which each token goes through a few.", "", Fact::always},
      {MEGATRON_KEY_IN(moe, top_k, model.moe.top_k), noted(from_to(1, kMaxExperts), "at most experts"), "", "",
       "Experts that a token goes through.", "", Fact::always},
      {MEGATRON_KEY_IN(moe, every, model.moe.every), from_to(1, kMaxLayers), "layers", "",
       "Interval of the layers with experts. 2: the second, the fourth and so on of a stack.", "moe layers"},
      {MEGATRON_KEY_IN(moe, layers, model.moe.layers), noted(from_to(0, kMaxLayers), "below model.layers, each once"),
       "", "by moe.every",
       "The layers with experts, counted from 0 as in the names of parameters; of a T5 those of either stack.",
       "moe layers"},
      {MEGATRON_KEY_IN(moe, ffn_hidden_size, model.moe.ffn_hidden_size),
       noted(from_to(1, kMaxExtent), "a multiple of parallel.tensor"), "", "= model.ffn_hidden_size",
       "Inner width of one expert.", "", Fact::always},
      {MEGATRON_KEY_IN(moe, capacity_factor, model.moe.capacity_factor), factor.with(drop, {"position", "random"}), "",
       "",
       "Room of an expert in training: it takes this many times its equal share of a sample's tokens. Tokens without "
       "room skip the expert.",
       ""},
      {MEGATRON_KEY_IN(moe, evaluation_capacity_factor, model.moe.evaluation_capacity_factor), factor, "",
       "= capacity_factor",
       "The same in evaluations of the loss. Where texts are scored or generated, no token is without room.", ""},
      {MEGATRON_KEY_IN(moe, minimum_capacity, model.moe.minimum_capacity),
       from_to(1, kMaxExtent).with(drop, {"position", "random"}), "tokens", "",
       "The least number of a sample's tokens that an expert has room for.", ""},
      {MEGATRON_KEY_IN(moe, drop, model.moe.drop), one_of(names_of(kDrops)), "", "",
       "Which tokens are without room, where too many chose an expert: the last ones of the sample, or in training "
       "random ones. First choices go before second ones. \"none\": every expert takes all tokens that chose it, and "
       "the capacities have no effect.",
       ""},
      {MEGATRON_KEY_IN(moe, buffer, model.moe.buffer), in_fp32(at_least(1)).with(drop, {"none"}), "", "",
       "With drop = \"none\": rows that an expert rank holds at once, as a multiple of its equal share. More rows go "
       "through the same buffers in further rounds.",
       ""},
      {MEGATRON_KEY_IN(moe, renormalize, model.moe.renormalize), any(), "", "",
       "Divide the weights of a token's experts by their sum.", "", Fact::always},
      {MEGATRON_KEY_IN(moe, balance_coefficient, model.moe.balance_coefficient), coefficient, "", "",
       "Of the loss that balances the experts' loads, a mean over samples and layers: experts · Σ (share of a sample's "
       "choices) · (mean probability). 1 is a perfect balance; 0: no such loss.",
       ""},
      {MEGATRON_KEY_IN(moe, z_coefficient, model.moe.z_coefficient), coefficient, "", "",
       "Of the loss that keeps the router's scores small: the mean of (ln Σ exp score)². 0: no such loss.", ""},
      {MEGATRON_KEY_IN(moe, bias_rate, model.moe.bias_rate), coefficient, "", "",
       "Balance without a loss (DeepSeek-V3): after each step the scores by which an expert is chosen, not its "
       "weights, "
       "go up by this where it had fewer tokens than the mean, and down where it had more. 0: off.",
       ""},
      {MEGATRON_KEY_IN(moe, jitter, model.moe.jitter), below_one(), "", "",
       "In training the router's input is multiplied by random numbers from 1 - jitter to 1 + jitter.", ""},
      {MEGATRON_KEY_IN(moe, shared_experts, model.moe.shared_experts), from_to(0, kMaxExperts), "", "",
       "Experts that every token goes through in addition, as one of their joint width (DeepSeek-MoE).", "",
       Fact::unless_default},
      {MEGATRON_KEY_IN(moe, shared_gate, model.moe.shared_gate), any(), "", "",
       "Multiply the output of the shared experts by the sigmoid of a linear layer (Qwen2-MoE).", "",
       Fact::unless_default},
      {MEGATRON_KEY_IN(moe, residual, model.moe.residual), any(), "", "",
       "Every token goes through the dense feed-forward part too, and a softmax over two numbers of a linear layer "
       "mixes "
       "its output with the experts' (DeepSpeed's residual MoE).",
       "", Fact::unless_default},
  };
}

namespace {

std::vector<std::string> exchanges() {
  std::vector<std::string> names = names_of(kAttentionExchanges);
  names.insert(names.begin(), std::string(kAutomaticExchange));
  return names;
}

}  // namespace

std::vector<Key> parallel_keys() {
  const Constraint extent = from_to(1, kMaxExtent);
  return {
      {MEGATRON_KEY(parallel, tensor), noted(extent, "divides attention_heads, ffn_hidden_size, padded vocabulary"),
       "ranks", "", "Ranks that share each layer's matrices.", ""},
      {MEGATRON_KEY(parallel, pipeline), extent, "ranks", "", "Stages that the layers are divided into.", ""},
      {MEGATRON_KEY(parallel, virtual_stages), noted(extent, "above 1 with schedule \"interleaved\" only"), "chunks",
       "", "Chunks of the model per stage.", ""},
      {MEGATRON_KEY(parallel, context), noted(extent, "above 1: sequence_length is a multiple of 2 · context"), "ranks",
       "", "Ranks that share each sequence: each has two of 2 · context chunks of it.", ""},
      {MEGATRON_KEY(parallel, context_exchange), one_of(exchanges()), "", "",
       "How attention sees the rows of other context ranks. gathered: each rank gathers the keys and values of a "
       "layer, in the forward and again in the backward pass. ulysses: each rank has all rows of a share of its heads. "
       "ring: keys and values go from rank to rank while the rest is computed. auto: of those that the numbers of "
       "heads allow, the one whose ranks send least.",
       ""},
      {MEGATRON_KEY(parallel, expert), noted(extent, "divides the data size and moe.experts"), "ranks", "",
       "Data ranks that divide the experts of a layer among them.", ""},
      {MEGATRON_KEY(parallel, data), noted(extent, "tensor · context · pipeline · data = ranks"), "ranks",
       "the rest of the ranks", "Replicas of the model. If given, the rest of the ranks must be this number.", ""},
      {MEGATRON_KEY(parallel, sequence_parallel), noted(any(), "sequence_length is a multiple of tensor · context"), "",
       "", "Between the tensor-parallel parts, each tensor rank holds a slice of the sequence.", ""},
      {MEGATRON_KEY(parallel, schedule), one_of(names_of(kSchedules)), "", "",
       "Order of forward and backward passes in a pipeline.", ""},
      {MEGATRON_KEY(parallel, layers_per_stage),
       noted(extent,
             "one number per stage, or per chunk with virtual_stages, in the order of the model; their sum is layers"),
       "layers", "evenly", "Layers of each stage, for an uneven division. A T5's decoder layers follow the encoder's.",
       ""},
      {MEGATRON_KEY(parallel, split_stage), from_to(1, kMaxExtent).with("model.family", {"t5"}), "stage", "none",
       "Asserts that this stage, counted from 0, is the first with layers of the decoder.", ""},
      {MEGATRON_KEY(parallel, overlap_gradients), any(), "", "",
       "Sum gradients over data ranks during the backward pass, as an `optimizer.share` other than \"none\" always "
       "does. The results are the same.",
       ""},
  };
}

}  // namespace megatron
