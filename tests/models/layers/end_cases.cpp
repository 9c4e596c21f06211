// Embeddings and heads as layer cases.
#include "models/layers/bert_head.h"
#include "models/layers/embedding.h"
#include "models/layers/head.h"
#include "models/layers/layer_cases.h"
#include "models/layers/task_head.h"

namespace megatron::test {

namespace {

int declare_word(ParameterBuilder& builder) {
  return builder.column_parallel_weight(Role::embedding, "embedding.word.weight", kPaddedVocab, kHidden, 0.02);
}

struct TestedEmbedding final : TestedLayer {
  TestedEmbedding(ParameterBuilder& builder, const EmbeddingSizes& sizes)
      : embedding(builder, declare_word(builder), sizes) {}
  void forward(Context& context, ConstTensor, Tensor y) override { embedding.forward(context, y, saved); }
  void backward(Context& context, Tensor dy, Tensor) override { embedding.backward(context, dy, saved); }
  Embedding embedding;
  Embedding::Saved saved;
};

template <class HeadClass, class Sizes>
struct TestedHead final : TestedLayer {
  TestedHead(ParameterBuilder& builder, const Sizes& sizes) : head(declare(builder, sizes)) {}
  static HeadClass declare(ParameterBuilder& builder, const Sizes& sizes) {
    if constexpr (std::is_same_v<HeadClass, TaskHead>) {
      return {builder, sizes};
    } else {
      return {builder, declare_word(builder), sizes};
    }
  }
  void forward(Context& context, ConstTensor input, Tensor) override {
    x = input;
    head.forward(context, x, saved);
    fresh = true;
  }
  // The logits have become their gradient: another backward needs another forward.
  void backward(Context& context, Tensor, Tensor dx) override {
    if (!fresh) head.forward(context, x, saved);
    fresh = false;
    head.backward(context, saved, dx);
  }
  HeadClass head;
  typename HeadClass::Saved saved;
  ConstTensor x;
  bool fresh = false;
};
using TestedDecoderHead = TestedHead<Head, HeadSizes>;
using TestedBertHead = TestedHead<BertHead, BertHeadSizes>;
using TestedTaskHead = TestedHead<TaskHead, TaskHeadSizes>;

}  // namespace

void add_end_cases(CaseList& cases, double dropout) {
  HeadSizes head{.vocab = kVocab, .norm = {.hidden = kHidden}};
  cases.add<TestedDecoderHead>("Head", kHidden, 0, head);
  head.bias = true;
  cases.add<TestedDecoderHead>("Head with a bias", kHidden, 0, head);
  head.scale = 0.4;
  cases.add<TestedDecoderHead>("Head with a bias and a scale", kHidden, 0, head);
  head.chunks = 3;
  cases.add<TestedDecoderHead>(std::string("Head with a bias and a scale") + kInChunks, kHidden, 0, head);
  BertHeadSizes bert{.vocab = kVocab, .norm = {.hidden = kHidden}, .sentence_order_term = 0};  // a sum of both losses
  cases.add<TestedBertHead>("BERT's head", kHidden, 0, bert).encoder = true;
  bert.scale = 0.4;
  cases.add<TestedBertHead>("BERT's head with a scale", kHidden, 0, bert).encoder = true;
  bert.chunks = 5;
  cases.add<TestedBertHead>(std::string("BERT's head with a scale") + kInChunks, kHidden, 0, bert).encoder = true;
  bert.chunks = 1;
  bert.scale = 1;
  bert.final_norm = false;
  bert.activation = Activation::gelu_exact;
  cases.add<TestedBertHead>("BERT's head without a norm of its input", kHidden, 0, bert).encoder = true;
  TaskHeadSizes task{.norm = {.hidden = kHidden},
                     .classifier = {.name = "task_head", .hidden = kHidden, .outputs = 3, .dropout = dropout}};
  cases.add<TestedTaskHead>("Task head of three labels", kHidden, 0, task).encoder = true;
  task.final_norm = false;
  task.classifier.outputs = 1;
  task.classifier.columns = kSamples;
  LayerCase& choice = cases.add<TestedTaskHead>("Task head of a multiple choice", kHidden, 0, task);
  choice.columns = kSamples;
  choice.encoder = true;
  const auto add_embedding = [&](const std::string& name, const EmbeddingSizes& sizes) {
    cases.add<TestedEmbedding>(name, 0, kHidden, sizes);
  };
  EmbeddingSizes embedding{
      .padded_vocab = kPaddedVocab, .hidden = kHidden, .positions = kPositions, .dropout = dropout};
  add_embedding("Embedding", embedding);
  embedding.scale = 1.7;
  add_embedding("Embedding with a scale", embedding);
  embedding.norm = NormSizes{.hidden = kHidden};
  add_embedding("Embedding with a scale and a norm", embedding);
  embedding = {.padded_vocab = kPaddedVocab, .hidden = kHidden, .dropout = dropout};
  add_embedding("Embedding without positions", embedding);
  embedding.with_head = true;
  add_embedding("Embedding next to a head", embedding);
  embedding.with_head = false;
  embedding.positions = kPositions;
  embedding.types = 2;
  cases.add<TestedEmbedding>("Embedding with types", 0, kHidden, embedding).encoder = true;
}

}  // namespace megatron::test
