#include "checkpoint/store/rank_file.h"

#include <algorithm>
#include <cmath>

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
  std::int64_t position = 0;
  for (const TensorSlice& slice : owned) {
    table.push_back({{"name", slice.name},
                     {"shape", slice.global_shape},
                     {"offset", slice.box.offset},
                     {"extent", slice.box.extent},
                     {"first", slice.first},
                     {"count", slice.count},
                     {"position", position}});
    position += slice.count;
  }
  return table.dump();
}

/// Slices that lie on a device, slice by slice and in blocks: in their place where the host can read them, else in
/// pinned memory.
class DeviceNumbers {
 public:
  DeviceNumbers(const std::vector<TensorSlice>& slices, Device& device) : slices_(slices), device_(device) {
    if (!device.is_host_memory()) block_ = Buffer(device.pinned(), kHdf5BlockBytes);
  }

  std::span<const float> read(StateKind kind, std::int64_t position) {
    if (position == 0) slice_ = 0, begin_ = 0;
    while (position - begin_ >= slices_[slice_].count) begin_ += slices_[slice_++].count;
    const std::int64_t first = position - begin_, count = std::min(kElements, slices_[slice_].count - first);
    const ConstTensor part = tensor_of(slices_[slice_], kind).slice(0, first, count);
    if (device_.is_host_memory()) return {part.as<float>(), static_cast<std::size_t>(count)};
    device_.copy_to_host(block_.data(), part.data(), part.bytes());
    return {reinterpret_cast<const float*>(block_.data()), static_cast<std::size_t>(count)};
  }

 private:
  static constexpr std::int64_t kElements = static_cast<std::int64_t>(kHdf5BlockBytes / sizeof(float));
  static const Tensor& tensor_of(const TensorSlice& slice, StateKind kind) {
    return kind == StateKind::value ? slice.value : kind == StateKind::m ? slice.m : slice.v;
  }

  const std::vector<TensorSlice>& slices_;
  Device& device_;
  Buffer block_;
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

void write_datasets(Hdf5File& file, const std::vector<TensorSlice>& slices, int moments, const NumberSource& numbers) {
  std::int64_t elements = 0;
  for (const TensorSlice& slice : slices) elements += slice.count;
  EarlyFlush flush(file.path());
  for (const StateKind kind : stored_with(moments)) {
    Hdf5Dataset dataset = file.create_dataset(dataset_of(kind), Hdf5Type::f32, static_cast<std::uint64_t>(elements));
    for (std::int64_t position = 0; position < elements;) {
      const std::span<const float> block = numbers(kind, position);
      dataset.write(static_cast<std::uint64_t>(position), block.data(), block.size());
      position += static_cast<std::int64_t>(block.size());
      flush.written(block.size_bytes());
    }
    dataset.close();
  }
}

std::string read_table_text(const Hdf5Reader& file) {
  const Hdf5Array dataset = file.open_dataset("pieces");
  verify(dataset.type() == Hdf5Type::u8 && dataset.contiguous() && dataset.elements() <= kTableLimit,
         ErrorKind::checkpoint, "{}: /pieces is not a table of slices", file.path());
  std::string text(dataset.elements(), '\0');
  dataset.read(0, static_cast<void*>(text.data()), dataset.elements());
  return text;
}

TableEntry parse_entry(const nlohmann::json& object, int file, std::int64_t position) {
  TableEntry entry{text_at(object, "name", kLongestTensorName), shape_at(object, "shape"), {}};
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

const char* dataset_of(StateKind kind) {
  return kind == StateKind::value ? "value" : kind == StateKind::m ? "m" : "v";
}

std::int64_t rank_file_bytes(const std::vector<TensorSlice>& slices, int moments) {
  constexpr std::int64_t kHeaders = 4096;  // HDF5's own
  if (slices.empty()) return 0;
  std::int64_t elements = 0;
  for (const TensorSlice& slice : slices) elements += slice.count;
  return elements * static_cast<std::int64_t>(sizeof(float)) * (1 + moments) +
         static_cast<std::int64_t>(table_text(slices).size()) + kHeaders;
}

std::string fill_rank_file(const std::string& path, int rank, std::int64_t step, const std::vector<TensorSlice>& slices,
                           int moments, const NumberSource& numbers) {
  internal_check(!slices.empty(), "a rank that owns nothing writes no file");
  std::string table = table_text(slices);
  Hdf5File file = Hdf5File::create(path);
  file.write_attribute("rank", static_cast<std::uint64_t>(rank));
  file.write_attribute("step", static_cast<std::uint64_t>(step));
  Hdf5Dataset slices_dataset = file.create_dataset("pieces", Hdf5Type::u8, table.size());
  slices_dataset.write(0, table.data(), table.size());
  slices_dataset.close();
  write_datasets(file, slices, moments, numbers);
  file.close();
  return table;
}

FileDigest finish_rank_file(const std::string& path, int rank, std::int64_t step, const std::string& table,
                            int moments) {
  const FileDigest digest = digest_file(path);  // while the bytes are hot
  sync_path(path);
  const std::string stored = read_slice_table(path, rank, step, moments);
  verify(stored == table, ErrorKind::filesystem, "{}: what was read back is not what was written; check the disk",
         path);
  return digest;
}

FileDigest write_rank_file(const std::string& path, int rank, std::int64_t step, const std::vector<TensorSlice>& slices,
                           int moments, const NumberSource& numbers) {
  const NumberSource finite = [&](StateKind kind, std::int64_t position) {
    const std::span<const float> block = numbers(kind, position);
    if (kind == StateKind::value) check_finite(block, position, slices);
    return block;
  };
  const std::string table = fill_rank_file(path, rank, step, slices, moments, finite);
  return finish_rank_file(path, rank, step, table, moments);
}

FileDigest write_rank_file(const std::string& path, int rank, std::int64_t step, const std::vector<TensorSlice>& owned,
                           Device& device) {
  internal_check(!owned.empty(), "a rank that owns nothing writes no file");
  DeviceNumbers numbers(owned, device);
  return write_rank_file(path, rank, step, owned, owned.front().moments(),
                         [&](StateKind kind, std::int64_t position) { return numbers.read(kind, position); });
}

void require_finite(Communicator& world, const std::vector<TensorSlice>& owned, Device& device) {
  agree(world, [&] {
    std::int64_t elements = 0;
    for (const TensorSlice& slice : owned) elements += slice.count;
    DeviceNumbers numbers(owned, device);
    for (std::int64_t position = 0; position < elements;) {
      const std::span<const float> block = numbers.read(StateKind::value, position);
      check_finite(block, position, owned);
      position += static_cast<std::int64_t>(block.size());
    }
  });
}

std::string read_slice_table(const std::string& path, int rank, std::int64_t step, int moments) {
  const Hdf5Reader file(path, ErrorKind::checkpoint);
  verify(file.read_u64("rank") == static_cast<std::uint64_t>(rank) &&
             file.read_u64("step") == static_cast<std::uint64_t>(step),
         ErrorKind::checkpoint, "{}: it belongs to another rank or step", path);
  std::string text = read_table_text(file);
  std::int64_t elements = 0;
  for (const TableEntry& entry : parse_slice_table(text, 0)) elements += entry.slice.count;
  for (const StateKind kind : stored_with(moments)) {
    const Hdf5Array dataset = file.open_dataset(dataset_of(kind));
    const bool fits = dataset.type() == Hdf5Type::f32 && dataset.elements() == static_cast<std::uint64_t>(elements);
    verify(dataset.contiguous(), ErrorKind::checkpoint, "{}: /{} is cut into chunks, which no checkpoint is", path,
           dataset_of(kind));
    verify(fits, ErrorKind::checkpoint, "{}: /{} has {} elements of {}; the table of slices wants {} of f32", path,
           dataset_of(kind), dataset.elements(), name_of(dataset.type()), elements);
  }
  return text;
}

std::vector<TableEntry> parse_slice_table(const std::string& text, int file) {
  const nlohmann::json table = parse_json(text, "the table of slices");
  verify(table.is_array(), ErrorKind::checkpoint, "the table of slices is not a list");
  std::vector<TableEntry> entries;
  std::int64_t position = 0;
  for (const nlohmann::json& object : table) {
    entries.push_back(parse_entry(object, file, position));
    const std::int64_t count = entries.back().slice.count;
    verify(count <= (std::int64_t{1} << 60) - position, ErrorKind::checkpoint, "the table of slices is too long");
    position += count;
  }
  return entries;
}

}  // namespace megatron
