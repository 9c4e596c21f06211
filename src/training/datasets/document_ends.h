// Ends of documents, for data.reset_attention_mask, reset_position_ids and eod_mask_loss, which look for their token.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/shards/token_dataset.h"

namespace megatron {

/// Throws Error(data), with the shard, where the first or last document of one does not end with the token `end`.
void require_document_ends(const std::vector<std::unique_ptr<TokenDataset>>& sources, std::int32_t end);

}  // namespace megatron
