#include "model/stage.h"

#include "base/error.h"

namespace megatron {

bool Stage::reads(const BatchField& field) const {
  switch (field.reader) {
    case FieldReader::embedding: return first();
    case FieldReader::attention: return true;
    case FieldReader::head: return last();
  }
  fail(ErrorKind::internal, "a field that no layer reads");
}

void Stage::logits(Context& /*context*/, Tensor /*logits*/) const {
  fail(ErrorKind::internal, "logits of a model that predicts no next token");
}

}  // namespace megatron
