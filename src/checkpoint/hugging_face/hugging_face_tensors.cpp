#include <algorithm>

#include "checkpoint/hugging_face/hugging_face_families.h"

namespace megatron {

namespace {

using Record = HuggingFaceTensor::Record;

/// Puts together the list of a family's tensors. A linear layer or norm is given by its name there and here, its
/// weight's shape, and whether it has a bias.
class TensorList {
 public:
  TensorList(const ModelConfig& model, const HuggingFaceFamily& family, std::int64_t vocab_rows)
      : model_(model), family_(family), vocab_rows_(vocab_rows) {}

  void norm(const std::string& theirs, const std::string& ours, std::int64_t size, bool bias) {
    add(theirs + ".weight", {{ours + ".weight", {size}, {size}}}, false).shift = family_.norm_shift;
    if (bias) add(theirs + ".bias", {{ours + ".bias", {size}, {size}}}, false);
  }

  void linear(const std::string& theirs, const std::string& ours, std::int64_t out, std::int64_t in, bool bias) {
    add(theirs + ".weight", {{ours + ".weight", {out, in}, {out, in}}}, family_.transposed);
    if (bias) add(theirs + ".bias", {{ours + ".bias", {out}, {out}}}, false);
  }

  /// A weight [out, in] whose rows are their columns, in families that transpose no others.
  void table(const std::string& theirs, const std::string& ours, std::int64_t out, std::int64_t in) {
    add(theirs + ".weight", {{ours + ".weight", {out, in}, {out, in}}}, true);
  }

  /// Query, key and value in one tensor each of weights and biases.
  void fused(const std::string& theirs, const std::string& ours, bool bias) {
    const std::int64_t d = model_.head_size(), h = model_.hidden_size, rows = model_.attention_heads * d;
    for (const bool weight : {true, false}) {
      if (!weight && !bias) continue;
      const char* kind = weight ? ".weight" : ".bias";
      const Shape shape = weight ? Shape{rows, h} : Shape{rows};
      std::vector<Record> records;
      for (const char* part : {"query", "key", "value"}) {
        Record record{ours + part + kind, shape, shape};
        const auto index = static_cast<std::int64_t>(records.size());
        if (family_.qkv == HuggingFaceQkv::stacked) {
          record.first = index * rows;
        } else {
          record.first = index * d;
          record.together = d;
          record.spacing = 3 * d;
        }
        records.push_back(std::move(record));
      }
      add(theirs + kind, std::move(records), weight && family_.transposed);
    }
  }

  void vocabulary(const std::string& theirs, const std::string& ours, bool matrix) {
    const std::int64_t h = model_.hidden_size, padded = model_.padded_vocab(), rows = std::min(vocab_rows_, padded);
    const Record record = matrix ? Record{ours, {rows, h}, {padded, h}} : Record{ours, {rows}, {padded}};
    add(theirs, {record}, false).shape[0] = vocab_rows_;
  }

  /// A linear layer on the pooler's output. Of a choice among columns it has no bias here, as it would shift all alike.
  void task_head(std::int64_t outputs, bool choice) {
    const std::int64_t h = model_.hidden_size;
    linear("classifier", "task_head", outputs, h, !choice);
    if (choice) tensors_.push_back({"classifier.bias", {outputs}, false, {}});
  }

  void positions(const std::string& theirs, const std::string& ours) {
    const Shape shape{model_.max_position_embeddings, model_.hidden_size};
    HuggingFaceTensor& tensor = add(theirs, {{ours, shape, shape, family_.position_shift}}, false);
    tensor.shape[0] += family_.position_shift;
  }

  std::vector<HuggingFaceTensor> take() { return std::move(tensors_); }

 private:
  /// The shape is that of all records' rows together.
  HuggingFaceTensor& add(const std::string& name, std::vector<Record> records, bool transposed) {
    HuggingFaceTensor tensor{name, {0}, transposed, std::move(records)};
    for (const Record& record : tensor.records) tensor.shape[0] += record.shape[0];
    const Shape& shape = tensor.records[0].shape;
    if (shape.rank() > 1) tensor.shape.insert(transposed ? tensor.shape.begin() : tensor.shape.end(), shape[1]);
    tensors_.push_back(std::move(tensor));
    return tensors_.back();
  }

  const ModelConfig& model_;
  const HuggingFaceFamily& family_;
  std::int64_t vocab_rows_;
  std::vector<HuggingFaceTensor> tensors_;
};

void list_experts(const ModelConfig& model, const HuggingFaceNames& names, const std::string& theirs,
                  const std::string& ours, TensorList& list) {
  const MoeConfig& moe = model.moe;
  const std::int64_t h = model.hidden_size, f = moe.ffn_hidden_size;
  list.linear(theirs + names.router, ours + "router", moe.experts, h, false);
  const auto expert = [&](const std::string& their_name, const std::string& own, std::int64_t width) {
    list.linear(their_name + names.expert_gate, own + "gate", width, h, false);
    list.linear(their_name + names.expert_up, own + "up", width, h, false);
    list.linear(their_name + names.expert_down, own + "down", h, width, false);
  };
  for (std::int64_t k = 0; k < moe.experts; ++k) {
    expert(fmt::format("{}{}{}.", theirs, names.expert, k), fmt::format("{}experts.{}.", ours, k), f);
  }
  if (names.shared_expert == nullptr) return;
  expert(theirs + names.shared_expert, ours + "shared.", moe.shared_ffn());
  list.linear(theirs + names.shared_gate, ours + "shared_gate", 1, h, false);
}

void list_layer(const ModelConfig& model, const HuggingFaceFamily& family, std::int64_t layer, TensorList& list) {
  const HuggingFaceNames& names = family.names;
  const std::string theirs = fmt::format("{}{}.", names.layer, layer), ours = fmt::format("layers.{}.", layer);
  const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size, d = model.head_size();
  const std::int64_t queries = model.attention_heads * d, keys = model.query_groups * d;
  const bool beta = row_named(kNormalizations, model.normalization).bias;
  const BiasConfig& bias = model.bias;
  list.norm(theirs + names.attention_norm, ours + "attention_norm", h, beta);
  if (names.mlp_norm != nullptr) list.norm(theirs + names.mlp_norm, ours + "mlp_norm", h, beta);
  if (names.query_key_value != nullptr) {
    list.fused(theirs + names.query_key_value, ours + "attention.", bias.query_key_value);
  } else {
    list.linear(theirs + names.query, ours + "attention.query", queries, h, bias.query_key_value);
    list.linear(theirs + names.key, ours + "attention.key", keys, h, bias.query_key_value);
    list.linear(theirs + names.value, ours + "attention.value", keys, h, bias.query_key_value);
  }
  if (names.query_norm != nullptr) {
    list.norm(theirs + names.query_norm, ours + "attention.query_norm", d, false);
    list.norm(theirs + names.key_norm, ours + "attention.key_norm", d, false);
  }
  list.linear(theirs + names.output, ours + "attention.output", h, queries, bias.attention_output);
  if (model.moe.in_layer(layer)) return list_experts(model, names, theirs, ours + "moe.", list);
  if (names.gate != nullptr) list.linear(theirs + names.gate, ours + "mlp.gate", f, h, bias.feed_forward);
  list.linear(theirs + names.up, ours + "mlp.up", f, h, bias.feed_forward);
  list.linear(theirs + names.down, ours + "mlp.down", h, f, bias.feed_forward);
}

}  // namespace

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelConfig& model, HuggingFaceFormat format,
                                                    std::int64_t vocab_rows) {
  const HuggingFaceFamily& family = family_of(format);
  return family.tensors(model, family, vocab_rows);
}

std::vector<HuggingFaceTensor> decoder_tensors(const ModelConfig& model, const HuggingFaceFamily& family,
                                               std::int64_t vocab_rows) {
  const HuggingFaceNames& names = family.names;
  const bool beta = row_named(kNormalizations, model.normalization).bias;
  TensorList list(model, family, vocab_rows);
  list.vocabulary(std::string(names.word) + ".weight", "embedding.word.weight", true);
  if (names.position != nullptr) list.positions(std::string(names.position) + ".weight", "embedding.position.weight");
  if (names.embedding_norm != nullptr) list.norm(names.embedding_norm, "embedding.norm", model.hidden_size, beta);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) list_layer(model, family, layer, list);
  list.norm(names.final_norm, "final_norm", model.hidden_size, beta);
  if (!model.tie_embeddings) list.vocabulary(std::string(names.head) + ".weight", "head.weight", true);
  if (model.head_bias) list.vocabulary(std::string(names.head) + ".bias", "head.bias", false);
  return list.take();
}

std::vector<HuggingFaceTensor> bert_tensors(const ModelConfig& model, const HuggingFaceFamily& family,
                                            std::int64_t vocab_rows) {
  constexpr std::int64_t kTypes = 2, kOrders = 2;
  const HuggingFaceNames& names = family.names;
  const std::int64_t h = model.hidden_size;
  TensorList list(model, family, vocab_rows);
  list.vocabulary(std::string(names.word) + ".weight", "embedding.word.weight", true);
  list.positions(std::string(names.position) + ".weight", "embedding.position.weight");
  list.linear("bert.embeddings.token_type_embeddings", "embedding.type", kTypes, h, false);
  if (names.embedding_norm != nullptr) list.norm(names.embedding_norm, "embedding.norm", h, true);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) list_layer(model, family, layer, list);
  if (names.final_norm != nullptr) list.norm(names.final_norm, "final_norm", h, true);
  if (model.task_outputs > 0) {
    list.linear("bert.pooler.dense", "pooler", h, h, true);
    list.task_head(model.task_outputs, model.task_choices > 1);
    return list.take();
  }
  list.linear("cls.predictions.transform.dense", "head.dense", h, h, true);
  list.norm("cls.predictions.transform.LayerNorm", "head.norm", h, true);
  list.vocabulary("cls.predictions.bias", "head.bias", false);
  if (!model.tie_embeddings) list.vocabulary(std::string(names.head) + ".weight", "head.weight", true);
  list.linear("bert.pooler.dense", "pooler", h, h, true);
  list.linear("cls.seq_relationship", "order_head", kOrders, h, true);
  return list.take();
}

namespace {

/// One layer of either side. Its parts are numbered there: attention, of the decoder then attention to the encoder's
/// output, and the feed-forward part.
void list_t5_layer(const ModelConfig& model, const char* side, std::int64_t layer, TensorList& list) {
  const std::string theirs = fmt::format("{}.block.{}.layer.", side, layer);
  const std::string ours = fmt::format("{}.layers.{}.", side, layer);
  const std::int64_t h = model.hidden_size, f = model.ffn_hidden_size,
                     width = model.attention_heads * model.head_size();
  int part = 0;
  const auto norm = [&](const std::string& name) {
    list.norm(fmt::format("{}{}.layer_norm", theirs, part), ours + name, h, false);
  };
  const auto attention = [&](const char* their_name, const std::string& name) {
    const std::string before = fmt::format("{}{}.{}.", theirs, part, their_name);
    norm(name + "_norm");
    list.linear(before + "q", ours + name + ".query", width, h, false);
    list.linear(before + "k", ours + name + ".key", width, h, false);
    list.linear(before + "v", ours + name + ".value", width, h, false);
    list.linear(before + "o", ours + name + ".output", h, width, false);
    ++part;
  };
  attention("SelfAttention", "attention");
  if (std::string_view(side) == "decoder") attention("EncDecAttention", "cross_attention");
  norm("mlp_norm");
  const std::string mlp = fmt::format("{}{}.DenseReluDense.", theirs, part);
  if (model.gated()) list.linear(mlp + "wi_0", ours + "mlp.gate", f, h, false);
  list.linear(mlp + (model.gated() ? "wi_1" : "wi"), ours + "mlp.up", f, h, false);
  list.linear(mlp + "wo", ours + "mlp.down", h, f, false);
}

}  // namespace

std::vector<HuggingFaceTensor> t5_tensors(const ModelConfig& model, const HuggingFaceFamily& family,
                                          std::int64_t vocab_rows) {
  const std::int64_t h = model.hidden_size;
  TensorList list(model, family, vocab_rows);
  list.vocabulary(std::string(family.names.word) + ".weight", "embedding.word.weight", true);
  for (const char* side : {"encoder", "decoder"}) {
    const bool encoder = std::string_view(side) == "encoder";
    list.table(fmt::format("{}.block.0.layer.0.SelfAttention.relative_attention_bias", side),
               fmt::format("relative.{}", side), model.attention_heads, model.relative_buckets);
    const std::int64_t layers = encoder ? model.layers : model.decoder_layers;
    for (std::int64_t layer = 0; layer < layers; ++layer) list_t5_layer(model, side, layer, list);
    list.norm(fmt::format("{}.final_layer_norm", side), encoder ? "encoder.final_norm" : "final_norm", h, false);
  }
  if (!model.tie_embeddings) list.vocabulary(std::string(family.names.head) + ".weight", "head.weight", true);
  return list.take();
}

bool is_derived(const std::string& name, HuggingFaceFormat format) {
  const HuggingFaceFamily& family = family_of(format);
  const bool of_layer = name.starts_with(family.names.layer);
  return std::any_of(family.derived.begin(), family.derived.end(),
                     [&](const std::string& derived) { return of_layer ? name.ends_with(derived) : name == derived; });
}

}  // namespace megatron
