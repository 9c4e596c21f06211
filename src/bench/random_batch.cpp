#include "bench/random_batch.h"

#include "base/philox.h"
#include "model/family.h"

namespace megatron {

namespace {

BatchLayout layout_of(Config config) {
  config.data = {};
  return batch_layout(config).without(&Rows::weights);
}

}  // namespace

RandomBatch::RandomBatch(const Config& config, int data_rank, Device& device) : memory_(layout_of(config), 1, device) {
  const auto copy = [&](void* to, const void* values, std::size_t bytes) { device.copy_to_device(to, values, bytes); };
  memory_.write_row_numbers(copy);
  const BatchLayout& layout = memory_.layout();
  std::size_t word = 0;  // of the four that each number of a place gives
  for (const BatchField& field : layout.fields) {
    if (field.source != FieldSource::sample) continue;
    internal_check(word < 4 && field.type == DType::i32, "a batch that cannot be made of random tokens");
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < shape_of(field, layout.sizes).elements(); ++i) {
      const auto words = philox4x32<7>({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(data_rank), 0, 0}, 1);
      ids.push_back(static_cast<std::int32_t>(words[word] % static_cast<std::uint32_t>(config.model.vocab_size)));
    }
    ++word;
    copy(memory_.at(field, 0), ids.data(), layout.bytes(field));
  }
  batch_ = memory_.view(layout, layout.sizes, 0);
  loss_count_ = static_cast<double>(config.model.sequence_length * config.train.global_batch_size);
}

}  // namespace megatron
