// Decoder: a model on a grid of ranks that predicts tokens, with the keys and values of earlier ones cached. Weights
// without gradients, in any precision. Works on groups of prompts, so that a pipeline has one for each stage in flight.
// All ranks of a model replica make the same calls; the sampling rank gets the logits. Knows nothing of sampling.
//
// Encoder-decoder models run the encoder once per prompt, in a separate pass that fills the cross-attention cache.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "config/schema/config.h"
#include "distributed/comm/process_grid.h"
#include "models/families/family.h"
#include "training/step/compute.h"

namespace megatron {

struct DecoderSizes {
  std::int64_t samples = 1;      ///< prompts in a group
  std::int64_t groups = 1;       ///< that are cached at a time
  std::int64_t capacity = 1;     ///< tokens per prompt and what follows it
  std::int64_t first_rows = 1;   ///< tokens per prompt in one pass, at most
  std::int64_t logits_rows = 1;  ///< tokens in one pass of which logits are wanted, at most
  bool reorders = false;         ///< beams take each other's place
  /// Tokens per text that an encoder reads, and texts that it reads in one pass, at most; 0 without an encoder.
  std::int64_t encoder_rows = 0, encoder_samples = 0;
};

/// Bytes on this rank's device, and of its host.
struct DecoderMemory {
  std::size_t weights = 0, cache = 0, activations = 0, workspace = 0;
  std::size_t communication =
      0;                 ///< staging of the groups' operations (distributed/comm/staging.h); MPI's own is not known
  std::size_t host = 0;  ///< pinned memory of the host, for a device with separate memory
  std::size_t total() const { return weights + cache + activations + workspace + communication; }
};

/// Memory that the rank at `at` needs, without allocating anything. `config` is resolved for tensor × pipeline ranks,
/// with a `run` whose device is chosen.
DecoderMemory plan_decoder(const Config& config, const GridShape& shape, const GridCoordinates& at, DType type,
                           const DecoderSizes& sizes, TransportKind transport);
/// With the transport that is to be expected.
DecoderMemory plan_decoder(const Config& config, const GridShape& shape, const GridCoordinates& at, DType type,
                           const DecoderSizes& sizes);

/// New tokens of some neighbouring samples of a group; or the whole texts of their encoder, with offsets of 0 and
/// without logits.
struct DecoderPass {
  std::int64_t first_sample = 0;
  std::vector<std::vector<std::int32_t>> tokens;  ///< by sample, 1 to first_rows each; an encoder's to encoder_rows
  std::vector<std::int32_t> offsets;              ///< by sample: its tokens of earlier passes that these follow
  std::vector<std::int64_t> wanted;               ///< by sample: of how many of the last tokens logits are wanted
  Stream stream = Stream::main;
};

class Decoder {
 public:
  /// As plan_decoder() says; `world` has shape.ranks() ranks. Allocates all that was planned; weights are anything
  /// until load() or initialize().
  Decoder(Config config, const GridShape& shape, Communicator& world, Compute compute, DType type,
          const DecoderSizes& sizes);
  ~Decoder();

  /// Collective over the world. Errors as CheckpointReader::read().
  void load(Communicator& world, const CheckpointReader& checkpoint);

  /// The weights that a training with this seed begins with.
  void initialize(std::uint64_t seed);

  const Config& config() const { return config_; }
  const ProcessGrid& grid() const { return grid_; }
  const DecoderSizes& sizes() const { return sizes_; }
  Device& device() const { return *compute_.backend.device; }
  bool samples_here() const { return grid_.last_stage() && grid_.at().tensor == 0; }
  int sampling_rank() const;     ///< in grid().model()
  DecoderMemory memory() const;  ///< that this rank has allocated

  /// On the sampling rank sets logits [wanted tokens, vocab_size], sample by sample in the order of their tokens;
  /// elsewhere leaves them. A token that is not the first of its place replaces what was there and after it. The tokens
  /// of an encoder-decoder need its samples' texts first.
  void run(std::int64_t group, const DecoderPass& pass, std::vector<float>& logits);
  /// Sample i of the group becomes what sample from[i] was, but for what its encoder has read.
  void reorder(std::int64_t group, std::span<const std::int32_t> from);

 private:
  struct Model;
  struct Group;
  void take_logits(const Tensor& all, std::vector<float>& logits);

  Config config_;
  Compute compute_;
  ProcessGrid grid_;
  std::unique_ptr<Model> model_;
  DType type_;
  DecoderSizes sizes_;
  Buffer integer_memory_, saved_memory_, scratch_memory_, input_memory_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace megatron
