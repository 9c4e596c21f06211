#include "bench/random_batch.h"

#include "base/philox.h"

namespace megatron {

RandomBatch::RandomBatch(const Config& config, int data_rank, Device& device) {
  const std::int64_t s = config.model.sequence_length, b = config.train.micro_batch_size;
  std::vector<std::int32_t> tokens, targets, position_ids, positions;
  for (std::int64_t i = 0; i < s * b; ++i) {
    const auto words = philox4x32<7>({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(data_rank), 0, 0}, 1);
    const auto vocab = static_cast<std::uint32_t>(config.model.vocab_size);
    tokens.push_back(static_cast<std::int32_t>(words[0] % vocab));
    targets.push_back(static_cast<std::int32_t>(words[1] % vocab));
    position_ids.push_back(static_cast<std::int32_t>(i / b));
  }
  for (std::int64_t i = 0; i < s; ++i) positions.push_back(static_cast<std::int32_t>(i));
  memory_.reserve(4);
  batch_.main.tokens = upload(device, tokens, {s, b});
  batch_.targets = upload(device, targets, {s, b});
  batch_.main.position_ids = upload(device, position_ids, {s, b});
  batch_.main.positions = upload(device, positions, {s});
  batch_.main.sequence = s;
  batch_.samples = b;
  batch_.gradient_scale = 1 / static_cast<double>(s * config.train.global_batch_size);
}

Tensor RandomBatch::upload(Device& device, const std::vector<std::int32_t>& values, Shape shape) {
  memory_.emplace_back(device, values.size() * sizeof(std::int32_t));
  const Tensor tensor = memory_.back().tensor(shape, DType::i32);
  device.copy_to_device(tensor.data(), values.data(), tensor.bytes());
  return tensor;
}

}  // namespace megatron
