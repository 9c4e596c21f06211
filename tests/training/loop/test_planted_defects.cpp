// Defects of the kinds that parallel trainers have had, planted one by one into a layout: --verify finds each of them,
// and verifies the same layout without it: by comparing with one rank alone, and by what the check of collectives says
// first. So it does where a defect is one of 16 bits alone. Planted errors for the check by itself: tests/parity.
#include "backend/ops/backends.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/forgetful_communicator.h"
#include "support/planted_defects.h"
#include "support/small_corpus.h"
#include "training/loop/verify_layout.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Planted {
  CommunicationDefect communication;
  std::function<void(DefectiveOps& ops)> operations;  ///< the last rank's
};

void verify_with(int ranks, const Config& input, const Planted& planted, bool in_16_bits = false,
                 bool check_collectives = false) {
  run_as_threads(ranks, [&](Communicator& threads) {
    Onset onset{in_16_bits};
    DefectiveCommunicator world(threads, planted.communication, onset);
    std::vector<std::string> warnings;
    const ResolvedRun run = agree_on_run(input, world, warnings);
    Backend cpu = make_cpu_backend();
    auto ops = std::make_unique<DefectiveOps>(std::move(cpu.ops), onset);
    if (planted.operations && world.rank() == ranks - 1) planted.operations(*ops);
    Compute compute{Backend(std::move(cpu.device), std::move(ops)), TransportKind::host, nullptr, ""};
    Log log(false);
    internal_check(verify_layout_on(run.config, world, compute, *run.datasets,
                                    {.host = "node07", .version = "0", .job = {}}, log, check_collectives) == 0,
                   "an exit code without an error");
  });
}

/// The layout is verified as it is, and not with the defect, of which `finding` is said in fp32. A defect of 16 bits
/// alone is found there. `checked`: what is said of it in fp32 with the check of collectives; empty: the same, since
/// the check does not see it.
void check_found(int ranks, Config config, const Planted& defect, const std::string& finding,
                 const std::string& checked = "") {
  verify_with(ranks, config, {});
  verify_with(ranks, config, {}, false, /*check_collectives=*/true);
  require_error(ErrorKind::numerics, {checked.empty() ? finding : checked},
                [&] { verify_with(ranks, config, defect, false, /*check_collectives=*/true); });
  require_error(ErrorKind::numerics, {"in fp32, this layout does not train what one rank trains", finding},
                [&] { verify_with(ranks, config, defect); });
  for (const char* const precision : {"bf16", "fp16"}) {
    CAPTURE(precision);
    config.precision.compute = precision;
    config.precision.loss_scale = 4096;
    verify_with(ranks, config, {});
    require_error(ErrorKind::numerics,
                  {fmt::format("in {}, this layout does not train what one rank trains", precision)},
                  [&] { verify_with(ranks, config, defect, true); });
  }
}

bool is_sum(DType type, const Tensor& values, Reduce reduce) {
  return values.dtype() == type && reduce == Reduce::sum;
}

}  // namespace

TEST_CASE("--verify finds partial gradients of norms that are not summed") {
  const ShardFolder folder;
  Config config = small_run(folder, 2, 1);
  config.parallel.sequence_parallel = true;
  Planted defect;
  defect.communication.group = "tensor";
  defect.communication.forgets_all_reduce = [](const Tensor& values, Reduce reduce) {
    return is_sum(DType::f32, values, reduce) && values.shape().rank() == 1;  // the head's sums are a matrix
  };
  check_found(2, config, defect, "backward from the loss, the first that is off is final_norm.bias",
              "gradient_reducer.cpp:");
}

TEST_CASE("--verify finds a tied table's gradients that are not summed") {
  const ShardFolder folder;
  Planted defect;
  defect.communication.group = "tie 0";
  defect.communication.forgets_all_reduce = [](const Tensor&, Reduce) { return true; };
  check_found(2, small_run(folder, 1, 2), defect, "the only one is embedding.word.weight", "gradient_reducer.cpp:");
}

TEST_CASE("--verify finds shared key heads' gradients that are not summed") {
  const ShardFolder folder;
  Config config = small_run(folder, 2, 1);
  with_one_group(config.model);
  Planted defect;
  defect.communication.group = "kv_replicas";
  defect.communication.forgets_all_reduce = [](const Tensor&, Reduce) { return true; };
  check_found(2, config, defect, "layers.3.attention.value", "gradient_reducer.cpp:");
}

TEST_CASE("--verify finds gradients that are divided by the number of ranks") {
  const ShardFolder folder;
  Planted defect;
  defect.communication.group = "data";
  defect.communication.after_sum = [](Tensor values, int ranks) {
    for (std::int64_t i = 0; i < values.elements(); ++i) values.as<float>()[i] /= static_cast<float>(ranks);
  };
  check_found(2, small_run(folder, 1, 1), defect, "the first that is off is final_norm.bias, by 5.0e-01",
              "gradient_reducer.cpp:");
}

TEST_CASE("--verify finds a count of targets that is not summed") {
  const ShardFolder folder;
  Config config = small_run(folder, 1, 1);
  config.data.eod_mask_loss = true;
  Planted defect;
  defect.communication.group = "control";
  defect.communication.forgets_all_reduce = [](const Tensor& values, Reduce reduce) {
    return is_sum(DType::f64, values, reduce);
  };
  check_found(2, config, defect, "the loss of step 1", "loss_counts.cpp:");
}

TEST_CASE("--verify finds a norm that leaves out the other ranks' gradients") {
  const ShardFolder folder;
  Planted defect;
  defect.communication.group = "model";
  defect.communication.forgets_all_reduce = [](const Tensor& values, Reduce reduce) {
    return is_sum(DType::f64, values, reduce);
  };
  check_found(2, small_run(folder, 2, 1), defect, "the gradient norm of step 1", "update_step.cpp:");
}

TEST_CASE("--verify finds a micro-batch that was lost for another") {
  const ShardFolder folder;
  Planted defect;
  defect.communication.group = "pipeline";
  defect.communication.repeats_received_messages = true;
  check_found(2, small_run(folder, 1, 2), defect, "the loss of step 1", "executor.cpp:");
}

TEST_CASE("--verify finds gathered parameters in the wrong order") {
  const ShardFolder folder;
  Config config = small_run(folder, 1, 1);
  config.optimizer.share = "state";
  Planted defect;
  defect.communication.group = "data";
  defect.communication.swaps_gathered_parts = true;
  check_found(2, config, defect, "the loss of step 2", "parameter_all_gather.cpp:");
}

TEST_CASE("--verify finds a dropout mask of other samples") {
  const ShardFolder folder;
  Planted defect;
  defect.operations = [](DefectiveOps& ops) { ops.with_dropout = [](Dropout& dropout) { ++dropout.first_sample; }; };
  check_found(2, small_run(folder, 1, 1), defect, "the loss of step 1");
}

TEST_CASE("--verify finds positions that are off by one on a tensor rank") {
  const ShardFolder folder;
  Config config = small_run(folder, 2, 1);
  config.model.position_embedding = "rope";
  Planted defect;
  defect.operations = [](DefectiveOps& ops) {
    // Attention knows differences of positions only: a shift shows where it grows within the sequence.
    ops.with_rotary = [moved = std::vector<std::int32_t>()](RotaryArgs& args) mutable {
      const std::int64_t count = args.positions.elements();
      moved.assign(args.positions.as<std::int32_t>(), args.positions.as<std::int32_t>() + count);
      for (std::int64_t i = count / 2; i < count; ++i) ++moved[static_cast<std::size_t>(i)];
      args.positions = Tensor(moved.data(), args.positions.shape(), DType::i32);
    };
  };
  check_found(2, config, defect, "the first that is off is final_norm.weight");
}

TEST_CASE("--verify finds words that are looked up one row off") {
  const ShardFolder folder;
  Planted defect;
  defect.operations = [](DefectiveOps& ops) { ops.with_embedding = [](std::int64_t& first_row) { ++first_row; }; };
  check_found(2, small_run(folder, 2, 1), defect, "the loss of step 1", "rows that all tensor ranks have");
}

TEST_CASE("--verify finds an update that forgets weight decay") {
  const ShardFolder folder;
  Config config = small_run(folder, 2, 1);
  Planted defect;
  defect.operations = [](DefectiveOps& ops) { ops.with_adamw = [](AdamWArgs& args) { args.weight_decay = 0; }; };
  check_found(2, config, defect, "from the same gradients", "rows that all tensor ranks have");
}

TEST_CASE("--verify finds an update that counts itself wrong") {
  const ShardFolder folder;
  Config config = small_run(folder, 1, 2);
  Planted defect;
  defect.operations = [](DefectiveOps& ops) { ops.with_adamw = [](AdamWArgs& args) { ++args.step; }; };
  check_found(2, config, defect, "from the same gradients");
}

TEST_CASE("--verify finds a mean that a rank has over its own samples") {
  const ShardFolder folder;
  Planted defect;
  defect.operations = [](DefectiveOps& ops) { ops.with_loss_scale = [](float& scale) { scale *= 2; }; };
  check_found(2, small_run(folder, 1, 1), defect, "the first that is off is final_norm.bias");
}
