#include "inference/decoding/inference_model.h"

#include "backend/ops/counting_ops.h"
#include "config/rules/resolve.h"
#include "inference/decoding/load_weights.h"
#include "training/step/saved_layout.h"

namespace megatron {

TaskConfig task_of(const CheckpointReader& checkpoint) {
  return saved_config(checkpoint).task;
}

Config config_for_inference(const CheckpointReader& checkpoint, std::int64_t tensor, std::int64_t pipeline) {
  Config config = config_of_model(saved_config(checkpoint));
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  resolve(config, static_cast<int>(tensor * pipeline), nullptr);
  return config;
}

std::vector<std::int32_t> end_tokens_of(const CheckpointReader& checkpoint) {
  std::vector<std::int32_t> ends;
  read_state(checkpoint, [&](const nlohmann::json& extra) {
    if (extra.contains(kEndTokensKey)) ends = extra.at(kEndTokensKey).get<std::vector<std::int32_t>>();
  });
  return ends;
}

InferenceModel::InferenceModel(Config config, Communicator& world, Compute compute, DType type)
    : config_(std::move(config)), compute_(std::move(compute)), type_(type) {
  grid_ = std::make_unique<ProcessGrid>(world, GridShape{}, compute_.transport.get());
  region_ = std::make_unique<TensorRegion>(*grid_, false);
  stages_ = make_stages(config_, *grid_, *region_, store_);
  store_.allocate_values(*compute_.backend.device, type_);
}

std::vector<TensorSlice> InferenceModel::values() const {
  internal_check(type_ == DType::f32, "the pieces of a checkpoint are f32", type_);
  return whole_values(store_);
}

void InferenceModel::load(Communicator& world, const CheckpointReader& checkpoint) {
  load_weights(world, checkpoint, store_, compute_.backend);
}

// One sample without documents and padding, of which the head is asked for no loss.
MicroBatch InferenceModel::upload(std::span<const std::int32_t> tokens, std::span<const std::int32_t> encoder_tokens) {
  Device& device = *compute_.backend.device;
  const auto copy = [&](void* to, const void* values, std::size_t bytes) { device.copy_to_device(to, values, bytes); };
  Config config = config_;
  config.data = {};
  BatchLayout layout = batch_layout(config);
  for (const auto field : {&Rows::targets, &Rows::weights, &Rows::types, &Rows::lengths, &Rows::labels}) {
    layout = layout.without(field).without(field, Stream::encoder);
  }
  layout.sizes = {.rows = {static_cast<std::int64_t>(tokens.size()), static_cast<std::int64_t>(encoder_tokens.size())},
                  .samples = 1};
  const auto longer = [&](Stream stream) {
    return batch_.layout().sizes.rows_of(stream) < layout.sizes.rows_of(stream);
  };
  if (longer(Stream::main) || longer(Stream::encoder)) {
    batch_ = BatchBuffer(layout, 1, device);
    batch_.write_row_numbers(copy);
  }
  for (const auto& [stream, ids] : {std::pair(Stream::main, tokens), {Stream::encoder, encoder_tokens}}) {
    const BatchField* const field = layout.find(&Rows::tokens, stream);
    internal_check((field == nullptr) == ids.empty(), "logits need the tokens of each stream of a model");
    if (field != nullptr) copy(batch_.at(*field, 0), ids.data(), ids.size_bytes());
  }
  return batch_.view(layout, layout.sizes, 0);
}

void InferenceModel::logits(std::span<const std::int32_t> tokens, std::int64_t first_row, std::vector<float>& logits,
                            std::span<const std::int32_t> encoder_tokens) {
  const auto s = static_cast<std::int64_t>(tokens.size());
  const std::int64_t vocab = config_.model.vocab_size, padded = config_.model.padded_vocab();
  Device& device = *compute_.backend.device;
  const MicroBatch batch = upload(tokens, encoder_tokens);

  // The same pass twice: once to learn how much memory this length needs, once for real.
  const auto pass = [&](Ops& ops, Arena& saved, Arena& scratch) {
    const Tensor all = saved.allocate("logits", {s, padded}, type_);
    const PassSettings settings{.training = false, .activation_type = type_};
    Context pass_context{
        .ops = ops, .region = *region_, .saved = &saved, .scratch = scratch, .micro_batch = batch, .pass = settings};
    stages_.front()->infer(pass_context, {}, {}, {}, all);
    if (type_ == DType::f32) return all;
    const Tensor wide = saved.allocate("logits in f32", {s, padded}, DType::f32);
    ops.copy(all, wide);
    return wide;
  };
  CountingOps counting;
  Arena saved_size("saved"), scratch_size("scratch");
  pass(counting, saved_size, scratch_size);
  if (saved_memory_.bytes() < saved_size.high_water()) saved_memory_ = Buffer(device, saved_size.high_water());
  if (scratch_memory_.bytes() < scratch_size.high_water()) scratch_memory_ = Buffer(device, scratch_size.high_water());
  Arena saved("saved", saved_memory_), scratch("scratch", scratch_memory_);
  const Tensor all = pass(*compute_.backend.ops, saved, scratch);
  logits.resize(static_cast<std::size_t>((s - first_row) * vocab));
  for (std::int64_t row = first_row; row < s; ++row) {
    device.copy_to_host(logits.data() + (row - first_row) * vocab, all.slice(0, row, 1).data(),
                        static_cast<std::size_t>(vocab) * sizeof(float));
  }
}

}  // namespace megatron
