// A checkpoint folder whose manifest fits its rank file, byte counts and hash included, where the rank file is a
// well-formed HDF5 file with any attributes, datasets and table of slices: opened, checked for gaps, and read to its
// last number.
#include "checkpoint/store/files.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/rank_file.h"
#include "checkpoint/store/tensor_slices.h"
#include "data/hdf5/hdf5_file.h"
#include "distributed/comm/thread_communicator.h"
#include "fuzz/fuzz.h"
#include "support/temporary_folder.h"

using namespace megatron;

namespace {

constexpr int kRank = 3, kStep = 5;

void write_attribute(Hdf5File& file, const char* name, std::uint64_t good, fuzz::Choices& choices) {
  switch (choices.below(16)) {
    case 1: return;
    case 2: return file.write_attribute(name, choices.number(8));
    case 3: return file.write_attribute(name, std::string_view("text"));
    default: return file.write_attribute(name, good);
  }
}

void write_dataset(Hdf5File& file, const std::string& name, Hdf5Type good, const std::string& bytes,
                   fuzz::Choices& choices) {
  const std::uint64_t kind = choices.below(16);
  if (kind == 1) return;
  const Hdf5Type type = kind == 2 ? static_cast<Hdf5Type>(choices.below(8)) : good;
  const std::uint64_t whole = bytes.size() / size_of(type);
  const std::uint64_t elements = kind == 3 ? std::min<std::uint64_t>(whole, choices.number(1)) : whole;
  Hdf5Dataset dataset =
      kind == 4 ? file.create_growable_dataset(name, type, 64) : file.create_dataset(name, type, elements);
  if (elements == 0) return;
  kind == 4 ? dataset.append(bytes.data(), elements) : dataset.write(0, bytes.data(), elements);
}

std::vector<TableEntry> entries_of(const SliceTable& table) {
  std::vector<TableEntry> entries;
  fuzz::allow({ErrorKind::checkpoint}, [&] { entries = parse_slice_table(table, 0); });
  return entries;
}

/// Writes the rank file; returns what a manifest would say of its tensors.
std::vector<TensorSummary> write_file(const std::string& path, const std::vector<std::string>& states,
                                      fuzz::Choices& choices) {
  Hdf5File file = Hdf5File::create(path);
  write_attribute(file, "rank", kRank, choices);
  write_attribute(file, "step", kStep, choices);
  const std::string_view front = choices.take(8);  // says how the datasets are written
  const std::string table(choices.rest());
  fuzz::Choices layout(front);
  std::vector<TensorSummary> tensors;
  std::int64_t elements = 0;
  for (const TableEntry& entry : entries_of({table, states})) {
    elements += std::min<std::int64_t>(entry.slice.count, 1 << 12);
    const bool known = std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == entry.name; });
    if (!known) tensors.push_back({entry.name, entry.shape, entry.shape.elements(), entry.states});
  }
  write_dataset(file, "pieces", Hdf5Type::u8, table, layout);
  const auto count = static_cast<std::size_t>(std::min<std::int64_t>(elements, 1 << 14));
  for (const std::string& name : datasets_with(states)) {
    write_dataset(file, name, Hdf5Type::f32, std::string(count * sizeof(float), '\1'), layout);
  }
  file.close();
  return tensors;
}

void read_all(Communicator& world, const std::string& path) {
  std::vector<std::string> warnings;
  const CheckpointReader reader = open_named_checkpoint(world, path, warnings);
  fuzz::require(reader.state().step == kStep, "another checkpoint");
  verify_coverage(reader);
  std::vector<TensorSlice> slices = whole_tensors(reader);
  for (TensorSlice& slice : slices) {
    fuzz::require(slice.count <= 1 << 14, "a tensor larger than its file");
    std::vector<float> numbers(static_cast<std::size_t>(slice.count) + 1, -7.0f);
    slice.value = Tensor(numbers.data(), {slice.count}, DType::f32);
    const std::vector<std::string> datasets = datasets_with(state_names(slice));
    slice.states.clear();
    for (const std::string& dataset : datasets) reader.read_numbers(dataset, {slice});
    fuzz::require(numbers.back() == -7.0f, "read more than there is");
    fuzz::require(std::count(numbers.begin(), numbers.end(), -7.0f) == 1, "numbers that nothing was read into");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TemporaryFolder folder(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  fuzz::Choices choices({reinterpret_cast<const char*>(data), size});
  const std::vector<std::string> both{"m", "v"};
  const std::vector<std::string> states(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(choices.below(3)));
  const std::string path = folder.file(rank_file_name(kRank));
  Manifest manifest;
  manifest.state.step = kStep;
  manifest.ranks = kRank + 1;
  manifest.tensors = write_file(path, states, choices);
  const FileDigest digest = digest_file(path);
  manifest.files = {{kRank, digest.bytes, digest.xxh3_128}};
  ::write_file(folder.file(kManifestName), manifest_text(manifest));
  fuzz::allow({ErrorKind::checkpoint},
              [&] { run_as_threads(1, [&](Communicator& world) { read_all(world, folder.path()); }); });
  return 0;
}
