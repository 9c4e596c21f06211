// The tables of an encoder-decoder that several of its layers use, and several stages hold copies of: the word table
// (encoder's and decoder's embedding, and the head where it is tied), the learned positions that both embeddings share,
// and the biases by distance that all layers of a stack share. A rank declares each once, in front of its layers.
#pragma once

#include <vector>

#include "config/schema/config.h"
#include "models/layers/parameter_builder.h"

namespace megatron {

/// Indices of parameters; kNone where the model or this rank has no use for the table.
struct T5Tables {
  int word = kNone, position = kNone;
  int encoder_distances = kNone, decoder_distances = kNone;  ///< [heads(/t), relative_buckets]
};

/// See ModelFamily: the stages of each table that two or more have.
std::vector<std::vector<int>> t5_ties(const Config& config);

/// Declares embedding.word.weight, embedding.position.weight, relative.encoder.weight and relative.decoder.weight, as
/// far as this rank's chunks use them. The first stage of a tie counts.
T5Tables declare_t5_tables(ParameterBuilder& builder, const Config& config, const ProcessGrid& grid);

}  // namespace megatron
