#include <algorithm>

#include "interop/hugging_face_families.h"

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
  list.linear("cls.predictions.transform.dense", "head.dense", h, h, true);
  list.norm("cls.predictions.transform.LayerNorm", "head.norm", h, true);
  list.vocabulary("cls.predictions.bias", "head.bias", false);
  if (!model.tie_embeddings) list.vocabulary(std::string(names.head) + ".weight", "head.weight", true);
  list.linear("bert.pooler.dense", "pooler", h, h, true);
  list.linear("cls.seq_relationship", "order_head", kOrders, h, true);
  return list.take();
}

bool is_derived(const std::string& name, HuggingFaceFormat format) {
  const HuggingFaceFamily& family = family_of(format);
  const bool of_layer = name.starts_with(family.names.layer);
  return std::any_of(family.derived.begin(), family.derived.end(),
                     [&](const std::string& derived) { return of_layer ? name.ends_with(derived) : name == derived; });
}

}  // namespace megatron
