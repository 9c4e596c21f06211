#include "model/stage.h"

#include "base/error.h"

namespace megatron {

void Stage::logits(Context& /*context*/, Tensor /*logits*/) const {
  fail(ErrorKind::internal, "logits of a model that predicts no next token");
}

}  // namespace megatron
