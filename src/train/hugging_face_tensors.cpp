#include <algorithm>

#include "train/hugging_face_model.h"

namespace megatron {

namespace {

/// Puts together the list of tensors.
class Tensors {
 public:
  Tensors(std::vector<ForeignTensor>& tensors, const ModelConfig& model, std::int64_t vocab_rows)
      : tensors_(tensors), padded_(model.padded_vocab()), vocab_rows_(vocab_rows) {}

  void vector(const std::string& theirs, const std::string& ours, std::int64_t size) {
    tensors_.push_back({theirs, {size}, false, {{ours, {size}, {size}, 0}}});
  }
  void matrix(const std::string& theirs, const std::string& ours, std::int64_t out, std::int64_t in, bool transposed) {
    stacked(theirs, {ours}, {out}, in, transposed);
  }
  void vocabulary(const std::string& theirs, const std::string& ours, std::int64_t width) {
    tensors_.push_back(
        {theirs, {vocab_rows_, width}, false, {{ours, {std::min(vocab_rows_, padded_), width}, {padded_, width}, 0}}});
  }
  /// Several records below each other; `in` 0: vectors.
  void stacked(const std::string& theirs, const std::vector<std::string>& ours, const std::vector<std::int64_t>& rows,
               std::int64_t in, bool transposed) {
    ForeignTensor tensor{theirs, {}, transposed, {}};
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const Shape shape = in == 0 ? Shape{rows[i]} : Shape{rows[i], in};
      tensor.records.push_back({ours[i], shape, shape, sum});
      sum += rows[i];
    }
    tensor.shape = {sum};
    if (in > 0) tensor.shape.insert(transposed ? tensor.shape.begin() : tensor.shape.end(), in);
    tensors_.push_back(std::move(tensor));
  }

 private:
  std::vector<ForeignTensor>& tensors_;
  std::int64_t padded_, vocab_rows_;
};

void list_gpt2(const ModelConfig& model, Tensors& list) {
  const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size;
  list.vocabulary("transformer.wte.weight", "embedding.word.weight", h);
  list.matrix("transformer.wpe.weight", "embedding.position.weight", model.max_position_embeddings, h, false);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string theirs = fmt::format("transformer.h.{}.", layer), ours = fmt::format("layers.{}.", layer);
    const auto named = [&](const char* kind) {
      std::vector<std::string> names;
      for (const char* part : {"query", "key", "value"}) names.push_back(ours + "attention." + part + "." + kind);
      return names;
    };
    for (const char* kind : {"weight", "bias"}) {
      list.vector(theirs + "ln_1." + kind, ours + "attention_norm." + kind, h);
      list.vector(theirs + "ln_2." + kind, ours + "mlp_norm." + kind, h);
    }
    list.stacked(theirs + "attn.c_attn.weight", named("weight"), {h, h, h}, h, true);
    list.stacked(theirs + "attn.c_attn.bias", named("bias"), {h, h, h}, 0, false);
    list.matrix(theirs + "attn.c_proj.weight", ours + "attention.output.weight", h, h, true);
    list.vector(theirs + "attn.c_proj.bias", ours + "attention.output.bias", h);
    list.matrix(theirs + "mlp.c_fc.weight", ours + "mlp.up.weight", f, h, true);
    list.vector(theirs + "mlp.c_fc.bias", ours + "mlp.up.bias", f);
    list.matrix(theirs + "mlp.c_proj.weight", ours + "mlp.down.weight", h, f, true);
    list.vector(theirs + "mlp.c_proj.bias", ours + "mlp.down.bias", h);
  }
  list.vector("transformer.ln_f.weight", "final_norm.weight", h);
  list.vector("transformer.ln_f.bias", "final_norm.bias", h);
}

void list_llama(const ModelConfig& model, Tensors& list) {
  const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size;
  const std::int64_t groups = model.query_groups * model.head_size();
  list.vocabulary("model.embed_tokens.weight", "embedding.word.weight", h);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string theirs = fmt::format("model.layers.{}.", layer), ours = fmt::format("layers.{}.", layer);
    const auto linear = [&](const char* their, const char* our, std::int64_t out, std::int64_t in) {
      list.matrix(theirs + their + ".weight", ours + our + ".weight", out, in, false);
      if (model.bias) list.vector(theirs + their + ".bias", ours + our + ".bias", out);
    };
    list.vector(theirs + "input_layernorm.weight", ours + "attention_norm.weight", h);
    list.vector(theirs + "post_attention_layernorm.weight", ours + "mlp_norm.weight", h);
    linear("self_attn.q_proj", "attention.query", h, h);
    linear("self_attn.k_proj", "attention.key", groups, h);
    linear("self_attn.v_proj", "attention.value", groups, h);
    linear("self_attn.o_proj", "attention.output", h, h);
    linear("mlp.gate_proj", "mlp.gate", f, h);
    linear("mlp.up_proj", "mlp.up", f, h);
    linear("mlp.down_proj", "mlp.down", h, f);
  }
  list.vector("model.norm.weight", "final_norm.weight", h);
}

}  // namespace

std::vector<ForeignTensor> foreign_tensors(const ModelConfig& model, ForeignFormat format, std::int64_t vocab_rows) {
  std::vector<ForeignTensor> tensors;
  Tensors list(tensors, model, vocab_rows);
  format == ForeignFormat::gpt2 ? list_gpt2(model, list) : list_llama(model, list);
  if (!model.tie_embeddings) list.vocabulary("lm_head.weight", "head.weight", model.hidden_size);
  return tensors;
}

bool is_derived(const std::string& name, ForeignFormat format) {
  if (format == ForeignFormat::llama) return name.ends_with(".rotary_emb.inv_freq");
  return name.starts_with("transformer.h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

}  // namespace megatron
