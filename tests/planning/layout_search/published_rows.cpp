#include "planning/layout_search/published_rows.h"

#include "config/rules/resolve.h"

namespace megatron::test {

namespace {

constexpr int kGpusOfNode = 8;

std::int64_t sequence_of(const PublishedRow& row) {
  return row.generation == Generation::megatron_2024 ? 4096 : 2048;
}
std::int64_t vocabulary_of(const PublishedRow& row) {
  return row.generation == Generation::megatron_2024 ? 131072 : 51200;
}

/// c[rows, columns] of an inner dimension, in 16 bits.
ProductWork half_product(double rows, double columns, double inner) {
  return {rows, columns, inner, 2 * (rows * inner + inner * columns + rows * columns), DType::f16};
}

// Megatron-LM repeats the last projection of a layer that is recomputed, whose result no backward reads: this program
// leaves it and its sum out. Selective recomputation repeats attention's core, which a fused kernel has no need of.
class Repeats {
 public:
  explicit Repeats(const PublishedRow& row) : row_(row) {}

  void add_to(RecordedLayout::PlayedStage& stage) const {
    Recording& recording = stage.recording;
    std::vector<Event> events;
    int group = -1, tickets = 0;
    for (std::size_t i = 0; i < recording.groups.size(); ++i) {
      if (recording.groups[i].name == "tensor") group = static_cast<int>(i);
    }
    for (const Event& event : recording.events) {
      if (const auto* started = std::get_if<StartedCollective>(&event))
        tickets = std::max(tickets, started->ticket + 1);
    }
    for (const Event& event : recording.events) {
      events.push_back(event);
      const auto* attention = std::get_if<AttentionWork>(&event);
      if (attention == nullptr || !attention->backward) continue;
      if (row_.full_recomputation) {
        repeat_projection(events, group, tickets);
      } else {
        AttentionWork again = *attention;
        again.backward = false;
        again.square_flops *= 2.0 / 5;
        events.emplace_back(again);
      }
    }
    recording.events = std::move(events);
  }

 private:
  void repeat_projection(std::vector<Event>& events, int group, int& tickets) const {
    const auto tokens = static_cast<double>(sequence_of(row_) * row_.micro_batch), h = static_cast<double>(row_.hidden);
    events.emplace_back(half_product(tokens, h, 4 * h / static_cast<double>(row_.tensor)));
    if (group < 0) return;
    events.emplace_back(StartedCollective{Verb::all_reduce, group, tickets, 2 * tokens * h});
    events.emplace_back(Waited{tickets++});
  }

  const PublishedRow& row_;
};

}  // namespace

Config PublishedRow::config() const {
  Config config;
  ModelConfig& model = config.model;
  model.layers = layers;
  model.hidden_size = hidden;
  model.attention_heads = heads;
  model.sequence_length = sequence_of(*this);
  model.vocab_size = vocabulary_of(*this);
  config.parallel.tensor = tensor;
  config.parallel.pipeline = pipeline;
  config.parallel.virtual_stages = chunks;
  if (chunks > 1) config.parallel.schedule = "interleaved";
  config.data.train = "none";
  config.train.steps = 1;
  config.train.micro_batch_size = micro_batch;
  config.train.global_batch_size = batch;
  config.precision.compute = generation == Generation::megatron_2024 ? "bf16" : "fp16";
  config.recompute.mode = full_recomputation ? "full" : "none";
  config.parallel.sequence_parallel = !full_recomputation && tensor > 1;
  config.optimizer.share = generation == Generation::megatron_2024 ? "state" : "none";
  config.run.device = "cuda";
  config.run.communication = "nccl";
  resolve(config, static_cast<int>(gpus), nullptr);
  return config;
}

// The first formula counts the recomputed forward, the last does not; both the whole square of the scores.
double PublishedRow::published_seconds() const {
  if (teraflops == 0) return seconds;
  const auto s = static_cast<double>(sequence_of(*this)), h = static_cast<double>(hidden),
             all_layers = static_cast<double>(layers), vocabulary = static_cast<double>(vocabulary_of(*this));
  const double passes = full_recomputation ? 96 : 72, head = full_recomputation ? 16 : 12;
  const double flops = passes * static_cast<double>(batch) * s * all_layers * h * h *
                       (1 + s / (6 * h) + vocabulary / (head * all_layers * h));
  return flops / (static_cast<double>(gpus) * teraflops * 1e12);
}

const std::vector<PublishedRow>& published_rows() {
  using enum Generation;
  static const std::vector<PublishedRow> rows = {
      {"1.7B", megatron_2021, 24, 2304, 24, 1, 1, 1, 16, 32, 512, true, 137, 0},
      {"3.6B", megatron_2021, 30, 3072, 32, 2, 1, 1, 16, 64, 512, true, 138, 0},
      {"7.5B", megatron_2021, 36, 4096, 32, 4, 1, 1, 16, 128, 512, true, 142, 0},
      {"18.4B", megatron_2021, 40, 6144, 48, 8, 1, 1, 8, 256, 1024, true, 135, 0},
      {"39.1B", megatron_2021, 48, 8192, 64, 8, 2, 1, 4, 512, 1536, true, 138, 0},
      {"76.1B", megatron_2021, 60, 10240, 80, 8, 4, 3, 2, 1024, 1792, true, 140, 0},
      {"145.6B", megatron_2021, 80, 12288, 96, 8, 8, 2, 2, 1536, 2304, true, 148, 0},
      {"310.1B", megatron_2021, 96, 16384, 128, 8, 16, 2, 1, 1920, 2160, true, 155, 0},
      {"529.6B", megatron_2021, 105, 20480, 128, 8, 35, 3, 1, 2520, 2520, true, 163, 0},
      {"1008B", megatron_2021, 128, 25600, 160, 8, 64, 1, 1, 3072, 3072, true, 163, 0},
      {"22B full", megatron_2022, 48, 6144, 64, 8, 1, 1, 4, 8, 4, true, 0, 1.42},
      {"22B selective", megatron_2022, 48, 6144, 64, 8, 1, 1, 4, 8, 4, false, 0, 1.10},
      {"175B full", megatron_2022, 96, 12288, 96, 8, 8, 3, 1, 64, 64, true, 0, 18.13},
      {"175B selective", megatron_2022, 96, 12288, 96, 8, 8, 3, 1, 64, 64, false, 0, 13.75},
      {"530B full", megatron_2022, 105, 20480, 128, 8, 35, 3, 1, 280, 280, true, 0, 49.05},
      {"530B selective", megatron_2022, 105, 20480, 128, 8, 35, 3, 1, 280, 280, false, 0, 37.83},
      {"1T full", megatron_2022, 128, 25600, 160, 8, 64, 1, 1, 512, 512, true, 0, 94.42},
      {"1T selective", megatron_2022, 128, 25600, 160, 8, 64, 1, 1, 512, 512, false, 0, 71.49},
      // The table has neither micro-batches nor chunks: without a pipeline one micro-batch, with one of a sample each
      // and chunks of one layer.
      {"1.7B", megatron_2024, 24, 2048, 16, 1, 1, 1, 4, 48, 192, false, 408.8, 0},
      {"7.1B", megatron_2024, 30, 4096, 32, 2, 1, 1, 4, 96, 192, false, 465.9, 0},
      {"16B", megatron_2024, 32, 6144, 48, 4, 1, 1, 4, 192, 192, false, 489.1, 0},
      {"32B", megatron_2024, 48, 7168, 56, 8, 1, 1, 4, 384, 192, false, 459.6, 0},
      {"70B", megatron_2024, 84, 8192, 64, 8, 2, 42, 1, 768, 384, false, 419.7, 0},
      {"119B", megatron_2024, 92, 10240, 80, 8, 4, 23, 1, 1536, 768, false, 420.5, 0},
      {"177B", megatron_2024, 96, 12288, 96, 8, 6, 16, 1, 2304, 1152, false, 432.8, 0},
      {"314B", megatron_2024, 96, 16384, 128, 8, 8, 12, 1, 3072, 1536, false, 474.4, 0},
      {"462B", megatron_2024, 112, 18432, 144, 8, 16, 7, 1, 6144, 3072, false, 459.9, 0},
  };
  return rows;
}

RecordedLayout record_row(const PublishedRow& row) {
  RecordedLayout layout = record_layout(row.config(), kGpusOfNode);
  if (row.generation == Generation::megatron_2024) return layout;
  const Repeats repeats(row);
  for (RecordedLayout::PlayedStage& stage : layout.played) repeats.add_to(stage);
  return layout;
}

}  // namespace megatron::test
