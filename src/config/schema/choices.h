// Choices of keys whose rows say no more than a name: what the model, recomputation and devices are told by a word.
// A table with more to say of a choice has its own header (schedules.h, base/core/activations.h).
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "base/core/native_16bit.h"

namespace megatron {

template <class Kind>
struct Choice {
  Kind kind;
  std::string_view name;  ///< as input files write it
};
template <class Kind>
Choice(Kind, const char*) -> Choice<Kind>;  // Clang before 17 deduces none for aggregates

/// The kind of this name. An unknown name, which the configuration refuses, gets the kind of the first row.
template <class Table>
constexpr auto kind_of(const Table& table, std::string_view name) {
  const auto row = std::find_if(std::begin(table), std::end(table), [&](const auto& one) { return one.name == name; });
  return (row == std::end(table) ? std::begin(table) : row)->kind;
}

enum class PositionEmbedding { learned, rotary, alibi, relative, none };
inline constexpr std::array kPositionEmbeddings{
    Choice{PositionEmbedding::learned, "learned"}, Choice{PositionEmbedding::rotary, "rope"},
    Choice{PositionEmbedding::alibi, "alibi"}, Choice{PositionEmbedding::relative, "relative"},
    Choice{PositionEmbedding::none, "none"}};

/// Divisor of attention scores: the root of the head size, or none.
enum class AttentionScale { head_size, none };
inline constexpr std::array kAttentionScales{Choice{AttentionScale::head_size, "head_size"},
                                             Choice{AttentionScale::none, "none"}};

/// Inputs of a layer's feed-forward part: the sum with attention's output, or the layer's input by its own norm or by
/// attention's.
enum class ResidualOrder { sequential, parallel, parallel_one_norm };
inline constexpr std::array kResiduals{Choice{ResidualOrder::sequential, "sequential"},
                                       Choice{ResidualOrder::parallel, "parallel"},
                                       Choice{ResidualOrder::parallel_one_norm, "parallel_one_norm"}};

enum class NormPosition { pre, post };
inline constexpr std::array kNormPositions{Choice{NormPosition::pre, "pre"}, Choice{NormPosition::post, "post"}};

/// Tokens that an expert without room leaves out; none: it has room for all.
enum class ExpertDrop { position, random, none };
inline constexpr std::array kDrops{Choice{ExpertDrop::position, "position"}, Choice{ExpertDrop::random, "random"},
                                   Choice{ExpertDrop::none, "none"}};

/// Factor of an orthogonal update of a weight [rows, columns], which is [out, in]: sqrt(max(1, rows / columns)) (Jordan
/// et al. 2024), or 0.2 · sqrt(max(rows, columns)), with which learning rates of AdamW fit (Liu et al. 2025).
enum class MuonScale { spectral, match_adam_rms };
struct MuonScaleChoice {
  MuonScale kind;
  std::string_view name;
  double rate_power;  ///< power of the width's factor that muP multiplies the learning rate with: what is missing for
                      ///< an update whose spectral norm does not grow with the width (Yang, Simon and Bernstein 2023)
};
inline constexpr std::array kMuonScales{MuonScaleChoice{MuonScale::spectral, "spectral", 0},
                                        MuonScaleChoice{MuonScale::match_adam_rms, "match_adam_rms", -0.5}};

/// Width that learning rates, weight decay and initial deviations are for: the model's own, or model.base_hidden_size,
/// from which those of this model follow (maximal update parametrization, Yang and Hu et al. 2022).
enum class Scaling { none, mup };
inline constexpr std::array kScalings{Choice{Scaling::none, "none"}, Choice{Scaling::mup, "mup"}};

enum class RecomputeMode { none, selective, full };
inline constexpr std::array kRecomputeModes{Choice{RecomputeMode::none, "none"},
                                            Choice{RecomputeMode::selective, "selective"},
                                            Choice{RecomputeMode::full, "full"}};

/// Parts of layers that a backward makes again with mode "selective". A part that another contains adds nothing to it.
enum class RecomputePart { norms, activations, feed_forward };
struct RecomputePartChoice {
  RecomputePart kind;
  std::string_view name;
  std::string_view not_saved, made_from, families;  ///< in words, for plans and documents
};
inline constexpr std::array kRecomputeParts{
    RecomputePartChoice{RecomputePart::norms, "norms", "outputs of norms, those of queries and keys among them",
                        "normalised again from their input", "all"},
    RecomputePartChoice{RecomputePart::activations, "activations", "outputs of activations, experts' too",
                        "the function again of the first matrix' product", "all"},
    RecomputePartChoice{RecomputePart::feed_forward, "feed_forward",
                        "the first matrix' product and the activation's output, experts' too",
                        "that product once more (and its gather with sequence_parallel)", "all"}};

enum class DeviceChoice { automatic, cpu, cuda };
inline constexpr std::array kDevices{Choice{DeviceChoice::automatic, "auto"}, Choice{DeviceChoice::cpu, "cpu"},
                                     Choice{DeviceChoice::cuda, "cuda"}};

inline constexpr std::array kNative16Bit{Choice{Native16Bit::automatic, "auto"}, Choice{Native16Bit::on, "on"},
                                         Choice{Native16Bit::off, "off"}};

}  // namespace megatron
