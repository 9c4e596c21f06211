// A checkpoint folder whose manifest fits its rank file, byte count, hash and tensors included, where the rank file is
// of any bytes: the stored rank files with any change, their checksums taken as right. Its table of slices is read, the
// folder opened, and every number read.
#include "checkpoint/store/rank_file.h"

#include "checkpoint/store/files.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/tensor_slices.h"
#include "distributed/comm/thread_communicator.h"
#include "fuzz/fuzz.h"
#include "fuzz/hdf5_end.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

constexpr int kRank = 3, kStep = 5;
constexpr std::int64_t kMostNumbers = 1 << 16;

/// Summaries that a manifest would have of the tensors in this table.
std::vector<TensorSummary> tensors_of(const SliceTable& table) {
  std::vector<TensorSummary> tensors;
  for (const TableEntry& entry : parse_slice_table(table, 0)) {
    const bool known = std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == entry.name; });
    if (!known) tensors.push_back({entry.name, entry.shape, entry.shape.elements(), entry.states});
  }
  return tensors;
}

void read_folder(Communicator& world, const std::string& path) {
  std::vector<std::string> warnings;
  const CheckpointReader reader = open_named_checkpoint(world, path, warnings);
  verify_coverage(reader);
  for (TensorSlice& slice : whole_tensors(reader)) {
    fuzz::require(slice.count <= kMostNumbers, "a tensor larger than its file");
    std::vector<float> numbers(static_cast<std::size_t>(slice.count) + 1, -7.0f);
    slice.value = Tensor(numbers.data(), {slice.count}, DType::f32);
    const std::vector<std::string> datasets = datasets_with(state_names(slice));
    slice.states.clear();
    for (const std::string& dataset : datasets) reader.read_numbers(dataset, {slice});
    fuzz::require(numbers.back() == -7.0f, "read more than there is");
  }
}

void read_file(const std::string& folder, const std::string& path) {
  const SliceTable table = read_slice_table(path, kRank, kStep);
  Manifest manifest;
  manifest.state.step = kStep;
  manifest.ranks = kRank + 1;
  manifest.tensors = tensors_of(table);
  const FileDigest digest = digest_file(path);
  manifest.files = {{kRank, digest.bytes, digest.xxh3_128}};
  ::write_file(folder + "/" + kManifestName, manifest_text(manifest));
  run_as_threads(1, [&](Communicator& world) { read_folder(world, folder); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TemporaryFolder folder(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  const std::string path = folder.file(rank_file_name(kRank));
  ::write_file(path, fuzz::with_right_end({reinterpret_cast<const char*>(data), size}));
  fuzz::allow({ErrorKind::checkpoint}, [&] { read_file(folder.path(), path); });
  return 0;
}
