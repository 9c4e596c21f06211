// The subjects of the table of the parity test: each has its own list, so that the rows of one option stand
// together.
#pragma once

#include "parity/rows.h"

namespace megatron::test {

inline std::vector<std::string> with(std::vector<std::string> settings, const std::vector<std::string>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

inline const std::vector<std::string> kTwoChunks = {"parallel.schedule=interleaved", "parallel.virtual_stages=2"};

// Models: with two and with one group, 4 tensor ranks and 2 share keys and values.
inline const std::vector<std::string> kLlama = {"model.position_embedding=rope", "model.normalization=rmsnorm",
                                                "model.activation=swiglu",       "model.bias=false",
                                                "model.tie_embeddings=false",    "model.query_groups=2"};
inline const std::vector<std::string> kOneGroup = {"model.query_groups=1", "model.position_embedding=alibi"};
// It magnifies rounding: a small rate.
inline const std::vector<std::string> kMuon = {"optimizer.name=muon", "optimizer.momentum=0.9",
                                               "optimizer.adamw_learning_rate_factor=0.25", "learning_rate.peak=0.002"};

// Recomputation of parts of layers.
inline const std::vector<std::string> kNormsAgain = {"recompute.mode=selective", "recompute.parts=[\"norms\"]"};
inline const std::vector<std::string> kActivationsAgain = {"recompute.mode=selective",
                                                           "recompute.parts=[\"activations\"]"};
inline const std::vector<std::string> kFeedForwardAgain = {"recompute.mode=selective",
                                                           "recompute.parts=[\"feed_forward\"]"};
inline const std::vector<std::string> kMostAgain = {"recompute.mode=selective",
                                                    "recompute.parts=[\"norms\", \"feed_forward\"]"};

std::vector<Row> layouts();
std::vector<Row> sequence_parallel();
std::vector<Row> schedules();
std::vector<Row> zero_bubble();
std::vector<Row> gradient_reducer();
std::vector<Row> distributed();
std::vector<Row> divided_gradients();
std::vector<Row> offload();
std::vector<Row> recomputation();
std::vector<Row> precision();
std::vector<Row> head_chunks();

std::vector<Row> rules();
std::vector<Row> batches();
std::vector<Row> sequences();
std::vector<Row> documents();
std::vector<Row> instructions();
std::vector<Row> losses();

std::vector<Row> variants();
std::vector<Row> encoders();
std::vector<Row> encoder_decoders();
std::vector<Row> experts();

std::vector<Row> context();

}  // namespace megatron::test
