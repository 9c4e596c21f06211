// Manifest: the small file that makes a folder of rank files a checkpoint.
//
// JSON: {"format", "format_version": "major.minor", "checksum", "content"}; the checksum is over version and content,
// so that a flipped digit of a step is as much a damaged checkpoint as a flipped weight. A newer minor version only
// adds keys and is read; a newer major version is refused. docs/checkpoint_format.md lists the keys and the versions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/text/foreign_json.h"
#include "checkpoint/store/checkpoint.h"

namespace megatron {

inline constexpr int kFormatMajor = 2;  ///< the newest that is read
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::int64_t kManifestLimit = std::int64_t{256} << 20;  ///< bytes
inline constexpr std::int64_t kStepLimit = 1'000'000'000'000'000;

struct RankFile {
  int rank = 0;
  std::int64_t bytes = 0;
  std::string xxh3_128;
};

/// A tensor as the manifest lists it: which ones there are, and how many elements the rank files hold of each.
struct TensorSummary {
  std::string name;
  Shape shape;
  std::int64_t elements = 0;
  std::vector<std::string> states = {};  ///< the optimizer's, by name, sorted
};

struct Manifest {
  TrainingState state;
  int ranks = 0;                ///< ranks of the run that saved; a rank that owned nothing has no file
  std::vector<RankFile> files;  ///< by rank
  std::vector<TensorSummary> tensors;

  std::int64_t file_bytes() const;
  std::vector<std::string> states() const;  ///< names of all tensors' states, sorted
};

/// A manifest's line about a tensor, as far as it is in this slice.
TensorSummary summary_of(const TensorSlice& slice);

/// "rank_00003.h5"
std::string rank_file_name(int rank);

std::string manifest_text(const Manifest& manifest);

/// The reverse. Throws Error(checkpoint); NewerFormat if the major version is not ours.
Manifest parse_manifest(const std::string& text);

/// Written by a later version of the program: not damaged, so never passed over in silence.
class NewerFormat : public Error {
 public:
  using Error::Error;
};

/// "states" of an object: sorted names, each once. Throws Error(checkpoint).
std::vector<std::string> states_at(const nlohmann::json& object);
/// 1 to kMaxRank extents whose product fits comfortably into 64 bits; offsets may be 0, extents of nothing as well.
Shape shape_at(const nlohmann::json& object, const char* key);
/// A list of the extents; the reverse is for lists of this program.
void to_json(nlohmann::json& list, const Shape& shape);
void from_json(const nlohmann::json& list, Shape& shape);

}  // namespace megatron
