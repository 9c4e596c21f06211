#include "planning/bench/random_batch.h"

#include "base/core/philox.h"
#include "models/families/family.h"

namespace megatron {

namespace {

BatchLayout layout_of(Config config, int context_rank) {
  config.data = {};
  return batch_layout_of_rank(family_of(config.model), config, context_rank).without(&Rows::weights);
}

/// The bound that the numbers of a field are below.
std::int64_t bound_of(const BatchField& field, const Config& config) {
  if (field.view == &Rows::types || field.view == &Rows::labels) return 2;
  return config.model.vocab_size;
}

}  // namespace

RandomBatch::RandomBatch(const Config& config, int data_rank, int context_rank, Device& device)
    : memory_(layout_of(config, context_rank), 1, device) {
  const auto copy = [&](void* to, const void* values, std::size_t bytes) { device.copy_to_device(to, values, bytes); };
  memory_.write_row_numbers(copy);
  const BatchLayout& layout = memory_.layout();
  std::uint32_t number = 0;  // number of the field: four in a row take a word each from the four that a place gives
  for (const BatchField& field : layout.fields) {
    if (field.source != FieldSource::sample) continue;
    internal_check(field.type == DType::i32, "a batch that cannot be made of random tokens", field.type);
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < shape_of(field, layout.sizes).elements(); ++i) {
      if (field.view == &Rows::lengths) {
        ids.push_back(static_cast<std::int32_t>(layout.sizes.whole().rows_of(field.stream)));
        continue;
      }
      const auto words =
          philox4x32<7>({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(data_rank), number / 4, 0}, 1);
      ids.push_back(static_cast<std::int32_t>(words[number % 4] % static_cast<std::uint32_t>(bound_of(field, config))));
    }
    ++number;
    copy(memory_.at(field, 0), ids.data(), layout.bytes(field));
  }
  batch_ = memory_.view(layout, layout.sizes, 0);
  loss_counts_.assign(family_of(config.model).loss_terms(config).size(),
                      static_cast<double>(config.train.global_batch_size));  // terms that count once per sample
  loss_counts_[0] *= static_cast<double>(layout.sizes.whole().rows_of(Stream::main));
}

}  // namespace megatron
