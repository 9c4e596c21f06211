#include "training/datasets/document_ends.h"

#include "base/core/error.h"

namespace megatron {

void require_document_ends(const std::vector<std::unique_ptr<TokenDataset>>& sources, std::int32_t end) {
  for (const auto& source : sources) {
    for (const DocumentEnd& document : source->document_ends()) {
      verify(document.token == end, ErrorKind::data,
             "{}: its {} document ends with token {} and not with the end of document, {}: where documents end cannot "
             "be told for data.reset_attention_mask, reset_position_ids or eod_mask_loss; make it again without "
             "--no-append-eod",
             document.shard, document.which, document.token, end);
    }
  }
}

}  // namespace megatron
