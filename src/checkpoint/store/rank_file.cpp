#include "checkpoint/store/rank_file.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/system/durable_file.h"
#include "base/text/foreign_json.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/tensor_slices.h"
#include "data/hdf5/hdf5_file.h"
#include "data/hdf5/hdf5_reader.h"
#include "distributed/comm/agreement.h"

namespace megatron {

namespace {

constexpr std::uint64_t kTableLimit = std::uint64_t{256} << 20;  // bytes

std::string table_text(const std::vector<TensorSlice>& owned) {
  nlohmann::json table = nlohmann::json::array();
  const std::vector<std::string> all = state_names(owned);
  std::int64_t position = 0;
  for (const TensorSlice& slice : owned) {
    nlohmann::json& entry = table.emplace_back();
    entry = {{"name", slice.name},         {"shape", slice.global_shape}, {"offset", slice.box.offset},
             {"extent", slice.box.extent}, {"first", slice.first},        {"count", slice.count},
             {"position", position}};
    if (const std::vector<std::string> states = state_names(slice); states != all) entry["states"] = states;
    position += slice.count;
  }
  return table.dump();
}

/// Slices that lie on a device, slice by slice and in blocks: in their place where the host can read them, else in
/// pinned memory.
class DeviceNumbers {
 public:
  DeviceNumbers(const std::vector<TensorSlice>& slices, Device& device) : all_(slices), device_(device) {
    if (!device.is_host_memory()) block_ = Buffer(device.pinned(), kHdf5BlockBytes);
  }

  std::span<const float> read(const std::string& dataset, std::int64_t position) {
    if (position == 0) slices_ = slices_in(dataset, all_), slice_ = 0, begin_ = 0;
    while (position - begin_ >= slices_[slice_].count) begin_ += slices_[slice_++].count;
    const std::int64_t first = position - begin_, count = std::min(kElements, slices_[slice_].count - first);
    const ConstTensor part = slices_[slice_].value.slice(0, first, count);
    if (device_.is_host_memory()) return as_floats(part, widened_);
    device_.copy_to_host(block_.data(), part.data(), part.bytes());
    return as_floats(ConstTensor(block_.data(), part.shape(), part.dtype()), widened_);
  }

 private:
  static constexpr std::int64_t kElements = static_cast<std::int64_t>(kHdf5BlockBytes / sizeof(float));

  const std::vector<TensorSlice>& all_;
  std::vector<TensorSlice> slices_;  // slices of the dataset that is being read
  Device& device_;
  Buffer block_;
  std::vector<float> widened_;  // a block in f32
  std::size_t slice_ = 0;
  std::int64_t begin_ = 0;  // place of this slice in the dataset
};

/// A checkpoint of parameters that are not finite is worth nothing, and may push out one that is.
void check_finite(std::span<const float> block, std::int64_t position, const std::vector<TensorSlice>& slices) {
  if (std::all_of(block.begin(), block.end(), [](float number) { return std::isfinite(number); })) [[likely]]
    return;
  const auto* const bad =
      std::find_if(block.data(), block.data() + block.size(), [](float number) { return !std::isfinite(number); });
  std::int64_t element = position + (bad - block.data());
  auto slice = slices.begin();
  while (element >= slice->count) element -= (slice++)->count;
  fail(ErrorKind::numerics, "the parameters are no longer finite ({} in tensor {}) and are not saved", *bad,
       slice->name);
}

void write_datasets(Hdf5File& file, const std::vector<TensorSlice>& slices, const NumberSource& numbers) {
  EarlyFlush flush(file.path());
  for (const std::string& name : datasets_with(state_names(slices))) {
    const std::int64_t elements = elements_of(slices_in(name, slices));
    Hdf5Dataset dataset = file.create_dataset(name, Hdf5Type::f32, static_cast<std::uint64_t>(elements));
    for (std::int64_t position = 0; position < elements;) {
      const std::span<const float> block = numbers(name, position);
      dataset.write(static_cast<std::uint64_t>(position), block.data(), block.size());
      position += static_cast<std::int64_t>(block.size());
      flush.written(block.size_bytes());
    }
    dataset.close();
  }
}

std::string read_table_text(const Hdf5Reader& file) {
  const Hdf5Array dataset = file.open_dataset(kSliceTable);
  verify(dataset.type() == Hdf5Type::u8 && dataset.contiguous() && dataset.elements() <= kTableLimit,
         ErrorKind::checkpoint, "{}: /pieces is not a table of slices", file.path());
  std::string text(dataset.elements(), '\0');
  dataset.read(0, static_cast<void*>(text.data()), dataset.elements());
  return text;
}

/// `states`: the file's.
TableEntry parse_entry(const nlohmann::json& object, int file, std::int64_t position,
                       const std::vector<std::string>& states) {
  TableEntry entry{text_at(object, "name", kLongestTensorName), shape_at(object, "shape"), states, {}};
  if (object.contains("states")) entry.states = states_at(object);
  verify(std::includes(states.begin(), states.end(), entry.states.begin(), entry.states.end()), ErrorKind::checkpoint,
         "slice of {}: a state of it has no dataset", entry.name);
  StoredSlice& slice = entry.slice;
  slice.box = {shape_at(object, "offset"), shape_at(object, "extent")};
  slice.file = file;
  const int rank = entry.shape.rank();
  verify(slice.box.offset.rank() == rank && slice.box.extent.rank() == rank, ErrorKind::checkpoint,
         "slice of {}: offset, extent and shape have different ranks", entry.name);
  for (int i = 0; i < rank; ++i) {
    const bool inside =
        slice.box.extent[i] <= entry.shape[i] && slice.box.offset[i] <= entry.shape[i] - slice.box.extent[i];
    verify(inside, ErrorKind::checkpoint, "slice of {}: {} + {} lies outside of {}", entry.name,
           slice.box.offset.to_string(), slice.box.extent.to_string(), entry.shape.to_string());
  }
  const std::int64_t elements = slice.box.extent.elements();
  slice.first = integer_at(object, "first", 0, elements);
  slice.count = integer_at(object, "count", 0, elements - slice.first);
  slice.position = integer_at(object, "position", position, position);
  return entry;
}

}  // namespace

std::int64_t rank_file_bytes(const std::vector<TensorSlice>& slices) {
  constexpr std::int64_t kHeaders = 4096;  // HDF5's own
  if (slices.empty()) return 0;
  std::int64_t numbers = 0;
  for (const TensorSlice& slice : slices) numbers += slice.numbers();
  return numbers * static_cast<std::int64_t>(sizeof(float)) + static_cast<std::int64_t>(table_text(slices).size()) +
         kHeaders;
}

SliceTable fill_rank_file(const std::string& path, int rank, std::int64_t step, const std::vector<TensorSlice>& slices,
                          const NumberSource& numbers) {
  internal_check(!slices.empty(), "a rank that owns nothing writes no file");
  SliceTable table{table_text(slices), state_names(slices)};
  Hdf5File file = Hdf5File::create(path);
  file.write_attribute("rank", static_cast<std::uint64_t>(rank));
  file.write_attribute("step", static_cast<std::uint64_t>(step));
  Hdf5Dataset slices_dataset = file.create_dataset(kSliceTable, Hdf5Type::u8, table.text.size());
  slices_dataset.write(0, table.text.data(), table.text.size());
  slices_dataset.close();
  write_datasets(file, slices, numbers);
  file.close();
  return table;
}

FileDigest finish_rank_file(const std::string& path, int rank, std::int64_t step, const SliceTable& table) {
  const FileDigest digest = digest_file(path);  // while the bytes are hot
  sync_path(path);
  const SliceTable stored = read_slice_table(path, rank, step);
  verify(stored.text == table.text && stored.states == table.states, ErrorKind::filesystem,
         "{}: what was read back is not what was written; check the disk", path);
  return digest;
}

FileDigest write_rank_file(const std::string& path, int rank, std::int64_t step, const std::vector<TensorSlice>& slices,
                           const NumberSource& numbers) {
  const NumberSource finite = [&](const std::string& dataset, std::int64_t position) {
    const std::span<const float> block = numbers(dataset, position);
    if (dataset == kValues) check_finite(block, position, slices);
    return block;
  };
  const SliceTable table = fill_rank_file(path, rank, step, slices, finite);
  return finish_rank_file(path, rank, step, table);
}

FileDigest write_rank_file(const std::string& path, int rank, std::int64_t step, const std::vector<TensorSlice>& owned,
                           Device& device) {
  internal_check(!owned.empty(), "a rank that owns nothing writes no file");
  DeviceNumbers numbers(owned, device);
  return write_rank_file(path, rank, step, owned, [&](const std::string& dataset, std::int64_t position) {
    return numbers.read(dataset, position);
  });
}

void require_finite(Communicator& world, const std::vector<TensorSlice>& owned, Device& device) {
  agree(world, [&] {
    const std::int64_t elements = elements_of(owned);
    DeviceNumbers numbers(owned, device);
    for (std::int64_t position = 0; position < elements;) {
      const std::span<const float> block = numbers.read(kValues, position);
      check_finite(block, position, owned);
      position += static_cast<std::int64_t>(block.size());
    }
  });
}

SliceTable read_slice_table(const std::string& path, int rank, std::int64_t step) {
  const Hdf5Reader file(path, ErrorKind::checkpoint);
  verify(file.read_u64("rank") == static_cast<std::uint64_t>(rank) &&
             file.read_u64("step") == static_cast<std::uint64_t>(step),
         ErrorKind::checkpoint, "{}: it belongs to another rank or step", path);
  SliceTable table{read_table_text(file), file.datasets()};
  std::erase_if(table.states, [](const std::string& name) { return name == kValues || name == kSliceTable; });
  std::map<std::string, std::int64_t> elements;
  for (const TableEntry& entry : parse_slice_table(table, 0)) {
    for (const std::string& name : datasets_with(entry.states)) elements[name] += entry.slice.count;
  }
  for (const std::string& name : datasets_with(table.states)) {
    const Hdf5Array dataset = file.open_dataset(name);
    const std::int64_t expected = elements[name];
    const bool fits = dataset.type() == Hdf5Type::f32 && dataset.elements() == static_cast<std::uint64_t>(expected);
    verify(dataset.contiguous(), ErrorKind::checkpoint, "{}: /{} is cut into chunks, which no checkpoint is", path,
           name);
    verify(fits, ErrorKind::checkpoint, "{}: /{} has {} elements of {}; the table of slices wants {} of f32", path,
           name, dataset.elements(), name_of(dataset.type()), expected);
  }
  return table;
}

std::vector<TableEntry> parse_slice_table(const SliceTable& table, int file) {
  const nlohmann::json list = parse_json(table.text, "the table of slices");
  verify(list.is_array(), ErrorKind::checkpoint, "the table of slices is not a list");
  std::vector<TableEntry> entries;
  std::int64_t position = 0;
  std::map<std::string, std::int64_t> in_states;
  for (const nlohmann::json& object : list) {
    TableEntry& entry = entries.emplace_back(parse_entry(object, file, position, table.states));
    const std::int64_t count = entry.slice.count;
    verify(count <= (std::int64_t{1} << 60) - position, ErrorKind::checkpoint, "the table of slices is too long");
    position += count;
    for (const std::string& state : entry.states) {
      entry.slice.state_positions.push_back(in_states[state]);
      in_states[state] += count;
    }
  }
  return entries;
}

}  // namespace megatron
