// Each planted error under every parity layout in which it can happen: the check finds it in all of them. Where it
// names the error by its line: test_planted_errors.cpp.
#include "parity/planted_runs.h"
#include "parity/subjects.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// An error, and the layouts that it can happen on.
struct Kind {
  Planted error;
  bool (*happens)(const Config& config);
};

bool has_tensor(const Config& config) {
  return config.parallel.tensor > 1;
}
bool has_data(const Config& config) {
  return config.parallel.data > 1;
}
bool has_pipeline(const Config& config) {
  return config.parallel.pipeline > 1;
}
bool is_sharded(const Config& config) {
  return has_data(config) && config.optimizer.shares().state;
}
bool divides_sequences(const Config& config) {
  return has_tensor(config) && config.parallel.sequence_parallel;
}
bool has_whole_rows(const Config& config) {
  return has_tensor(config) && !config.parallel.sequence_parallel;
}

std::vector<Kind> kinds() {
  return {
      {{.name = "no sums of layers", .communication = without_sums("tensor")}, has_tensor},
      {{.name = "sums of layers twice too large", .communication = scaled_sums("tensor", 2)}, has_tensor},
      {{.name = "no sums of gradients", .communication = without_sums("data")}, has_data},
      {{.name = "gradients over the data size", .communication = scaled_sums("data", 0.5f)}, has_data},
      {{.name = "no sum of the tied table", .communication = without_sums("tie 0")}, has_pipeline},
      {{.name = "no sum of squares", .communication = without_sums("model", DType::f64)},
       [](const Config& config) { return has_tensor(config) || has_pipeline(config); }},
      {{.name = "messages that come twice", .communication = {.group = "pipeline", .repeats_received_messages = true}},
       has_pipeline},
      {{.name = "weights in wrong places", .communication = {.group = "data", .swaps_gathered_parts = true}},
       is_sharded},
      {{.name = "no wait for weights", .pass = without_waiting}, is_sharded},
      {{.name = "gradients summed twice", .after_backward = sum_again}, has_data},
      {{.name = "a mean over own targets", .counts = count_alone}, has_data},
      {{.name = "norms taken for replicas", .record = is_replica}, divides_sequences},
      {{.name = "norms summed though they are whole", .record = is_partial}, has_whole_rows},
      {{.name = "counted on every rank", .record = [](Parameter& parameter) { parameter.owner = true; }}, has_tensor},
      {{.name = "counted nowhere",
        .record = [](Parameter& parameter) { parameter.owner &= parameter.role != Role::norm; }},
       [](const Config&) { return true; }},
      {{.name = "no tie", .record = [](Parameter& parameter) { parameter.tie = kNone; }}, has_pipeline},
      {{.name = "another dropout mask",
        .operations = [](DefectiveOps& ops) { ops.with_dropout = [](Dropout& dropout) { ++dropout.first_sample; }; }},
       has_whole_rows},
      {{.name = "sums over the data ranks", .over_data_ranks = true},
       [](const Config& config) { return has_tensor(config) && config.parallel.data == config.parallel.tensor; }},
  };
}

}  // namespace

TEST_CASE("planted: each error is found on every layout") {
  const std::vector<Kind> all = kinds();
  std::vector<int> found(all.size());
  for (const auto& subject : {layouts, sequence_parallel, schedules, zero_bubble, gradient_reducer, distributed}) {
    for (const Row& row : subject()) {
      const Config config = config_of(row);
      if (row.tensor * row.data * row.pipeline == 1) continue;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[i].happens(config)) continue;
        Planted planted = all[i].error;
        INFO(planted.name << " on " << row.name);
        planted.tensor = row.tensor;
        planted.data = row.data;
        planted.pipeline = row.pipeline;
        planted.how = with(row.trains, row.how);
        require_found(planted);
        ++found[i];
      }
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    INFO(all[i].error.name);
    CHECK(found[i] >= 2);
  }
}
