#include "bench/random_batch.h"

#include <algorithm>

#include "base/philox.h"
#include "model/family.h"

namespace megatron {

namespace {

BatchLayout layout_of(Config config) {
  config.data = {};
  return batch_layout(config).without(&Rows::weights);
}

/// Ids are below it.
std::int64_t bound_of(const BatchField& field, const Config& config) {
  return field.view == &Rows::types || field.view == &Rows::labels ? 2 : config.model.vocab_size;
}

void fill_with_ids(std::vector<std::int32_t>& ids, std::int64_t bound, int data_rank, std::size_t word) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto words = philox4x32<7>({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(data_rank), 0, 0}, 1);
    ids[i] = static_cast<std::int32_t>(words[word] % static_cast<std::uint32_t>(bound));
  }
}

}  // namespace

RandomBatch::RandomBatch(const Config& config, int data_rank, Device& device) : memory_(layout_of(config), 1, device) {
  const auto copy = [&](void* to, const void* values, std::size_t bytes) { device.copy_to_device(to, values, bytes); };
  memory_.write_row_numbers(copy);
  const BatchLayout& layout = memory_.layout();
  std::size_t word = 0;  // of the four that each number of a place gives
  for (const BatchField& field : layout.fields) {
    if (field.source != FieldSource::sample) continue;
    std::vector<std::int32_t> ids(static_cast<std::size_t>(shape_of(field, layout.sizes).elements()));
    if (field.view == &Rows::lengths) {
      std::fill(ids.begin(), ids.end(), static_cast<std::int32_t>(config.model.sequence_length));
    } else {
      internal_check(word < 4 && field.type == DType::i32, "a batch that cannot be made of random tokens");
      fill_with_ids(ids, bound_of(field, config), data_rank, word++);
    }
    copy(memory_.at(field, 0), ids.data(), layout.bytes(field));
  }
  batch_ = memory_.view(layout, layout.sizes, 0);
  loss_counts_.assign(family_of(config.model).loss_terms(config).size(),
                      static_cast<double>(config.model.sequence_length * config.train.global_batch_size));
}

}  // namespace megatron
