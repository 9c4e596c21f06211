// On real ranks, where reductions need staging: a decoder takes what its plan says, category by category, to the byte,
// on every rank, also through pinned memory; and what was reserved never grows.
#include "backend/ops/backends.h"
#include "inference/decoding/decoder.h"
#include "mpi/session_of_tests.h"
#include "mpi_memory/cases.h"
#include "support/catch.h"
#include "support/communicator_cases.h"
#include "support/separate_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

struct Decoding {
  const char* name;
  int tensor, data, pipeline;
  DType type = DType::f32;
  bool separate = false;  ///< a device with separate memory
  void (*change)(Config&) = [](Config&) {};
};

const Decoding kDecodings[] = {
    {"data 4", 1, 4, 1},
    {"tensor 4", 4, 1, 1},
    {"tensor 4, wide", 4, 1, 1, DType::f32, false, wide},
    {"tensor 2, pipeline 2, wide, bf16", 2, 1, 2, DType::bf16, false, wide},
    {"pipeline 4", 1, 1, 4},
    {"data 4, device", 1, 4, 1, DType::f32, true},
    {"tensor 4, device", 4, 1, 1, DType::f32, true},
    {"tensor 2, pipeline 2, device", 2, 1, 2, DType::f32, true},
    {"data 2, pipeline 2, device, bf16", 1, 2, 2, DType::bf16, true},
};

/// Passes of several sizes, on all groups, and the question of those who stop.
void use(Decoder& decoder) {
  const DecoderSizes& sizes = decoder.sizes();
  const auto samples = static_cast<std::size_t>(sizes.samples);
  std::vector<float> logits;
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{2}, sizes.first_rows}) {
    const std::vector<std::int64_t> wanted(samples, std::min(rows, sizes.logits_rows / sizes.samples));
    const std::vector<std::vector<std::int32_t>> tokens(samples,
                                                        std::vector<std::int32_t>(static_cast<std::size_t>(rows), 7));
    for (std::int64_t group = 0; group < sizes.groups; ++group) {
      decoder.run(group, {0, tokens, std::vector<std::int32_t>(samples, 0), wanted}, logits);
    }
  }
  double stop = 0;
  decoder.grid().model().host().start_all_reduce({&stop, {1}, DType::f64}, kPassedOnMaximum).wait();
}

}  // namespace

TEST_CASE("MPI: a decoder's memory is as planned by category in every layout") {
  run_on_all_ranks("decoder memory", [](Communicator& world) {
    if (world.size() != 4) return;
    for (const Decoding& test : kDecodings) {
      Config config = Case{test.name, test.tensor, test.data, test.pipeline, test.change}.config();
      config.run.device = test.separate ? "cuda" : "cpu";
      config.run.communication = "mpi";
      const GridShape shape = grid_shape(config);
      const DecoderSizes sizes{
          .samples = 3, .groups = 2, .capacity = 16, .first_rows = 9, .logits_rows = 6, .reorders = false};
      Compute compute{
          .backend = test.separate ? make_separate_backend() : make_cpu_backend(), .transport = {}, .description = {}};
      compute.transport = staged_transport(world, *compute.backend.device);
      Decoder decoder(config, shape, world, std::move(compute), test.type, sizes);
      const DecoderMemory plan = plan_decoder(config, shape, decoder.grid().at(), test.type, sizes);
      const auto check = [&](const char* when) {
        const DecoderMemory used = decoder.memory();
        const auto expect = [&](const char* what, std::size_t DecoderMemory::*part) {
          communicator_cases::expect(used.*part == plan.*part, "{}, {}, {}: {} bytes used, {} planned", test.name, when,
                                     what, used.*part, plan.*part);
        };
        expect("weights", &DecoderMemory::weights);
        expect("cache", &DecoderMemory::cache);
        expect("activations", &DecoderMemory::activations);
        expect("communication", &DecoderMemory::communication);
        expect("host", &DecoderMemory::host);
      };
      check("at the start");
      for (int again = 0; again < 2; ++again) use(decoder);
      check("at the end");
      const std::size_t staging = test.separate ? plan.host : plan.communication;
      communicator_cases::expect((staging > 0) == (test.tensor > 1 || test.pipeline > 1), "{}: {} bytes of staging",
                                 test.name, staging);
    }
  });
}
