#include "models/families/stage.h"

#include "base/core/error.h"

namespace megatron {

bool Stage::reads(const BatchField& field) const {
  switch (field.reader) {
    case FieldReader::embedding: return first();
    case FieldReader::attention: return true;
    case FieldReader::head: return last();
  }
  fail(ErrorKind::internal, "a field that no layer reads");
}

KeyValueCache Stage::make_cache(Arena& /*arena*/, const CacheSizes& /*sizes*/, DType /*type*/) const {
  fail(ErrorKind::configuration, "this model predicts no next token: it generates no text");
}

void Stage::infer(Context& /*context*/, const StageData& /*in*/, const StageData& /*out*/, ConstTensor /*rows*/,
                  Tensor /*logits*/) const {
  fail(ErrorKind::configuration, "this model predicts no next token: it has no logits of one");
}

void Stage::encode(Context& /*context*/, const StageData& /*in*/, const StageData& /*out*/) const {
  fail(ErrorKind::internal, "a pass over the encoder of a model that has none");
}

}  // namespace megatron
