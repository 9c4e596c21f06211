#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/open_datasets.h"
#include "checkpoint/store/overlap.h"
#include "checkpoint/store/rank_file.h"
#include "checkpoint/store/tensor_slices.h"
#include "data/hdf5/hdf5_file.h"
#include "data/hdf5/hdf5_reader.h"
#include "distributed/comm/agreement.h"

namespace megatron {

namespace {

// Segments that are close together in the file are read in one go: a gap costs less than another call into HDF5 (a few
// microseconds), and columns of a matrix become a sequential read.
constexpr std::int64_t kGapElements = 4096;
constexpr std::int64_t kBlockElements = static_cast<std::int64_t>(kHdf5BlockBytes / sizeof(float));

/// Reads numbers from element `first` of a dataset on: in place where they are f32, else through the block.
void read_numbers_to(const Hdf5Array& dataset, std::int64_t first, Tensor target, std::vector<float>& block) {
  const std::int64_t count = target.elements();
  if (target.dtype() == DType::f32) {
    dataset.read(static_cast<std::uint64_t>(first), target.as<float>(), static_cast<std::uint64_t>(count));
    return;
  }
  block.resize(std::max(block.size(), static_cast<std::size_t>(std::min(count, kBlockElements))));
  for (std::int64_t done = 0; done < count; done += kBlockElements) {
    const std::int64_t now = std::min(count - done, kBlockElements);
    dataset.read(static_cast<std::uint64_t>(first + done), block.data(), static_cast<std::uint64_t>(now));
    set_numbers(target.slice(0, done, now), block.data());
  }
}

/// Reads segments (ascending in the file) from one dataset into the wanted slices' values.
void read_segments(const Hdf5Array& dataset, const std::vector<CopySegment>& segments,
                   const std::vector<TensorSlice>& wanted, std::vector<float>& block) {
  const auto target = [&](const CopySegment& segment) {
    return wanted[segment.wanted].value.slice(0, segment.to, segment.count);
  };
  for (std::size_t begin = 0, end = 0; begin < segments.size(); begin = end) {
    const std::int64_t first = segments[begin].from;
    std::int64_t stop = first + segments[begin].count;
    for (end = begin + 1; end < segments.size() && segments[end].from <= stop + kGapElements; ++end) {
      const std::int64_t longer = std::max(stop, segments[end].from + segments[end].count);
      if (longer - first > kBlockElements) break;
      stop = longer;
    }
    if (end == begin + 1) {
      read_numbers_to(dataset, first, target(segments[begin]), block);
      continue;
    }
    block.resize(std::max(block.size(), static_cast<std::size_t>(stop - first)));
    dataset.read(static_cast<std::uint64_t>(first), block.data(), static_cast<std::uint64_t>(stop - first));
    for (std::size_t i = begin; i < end; ++i) {
      set_numbers(target(segments[i]), block.data() + (segments[i].from - first));
    }
  }
}

/// Segments of one dataset to be read, by file.
struct Reading {
  std::string dataset;
  std::vector<TensorSlice> slices;
  std::vector<std::vector<CopySegment>> segments;
};

}  // namespace

std::vector<std::string> CheckpointReader::states() const {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.insert(tensor.states.begin(), tensor.states.end());
  return {names.begin(), names.end()};
}

// By file, in the order of each.
std::vector<std::vector<CopySegment>> CheckpointReader::plan(const std::string& dataset,
                                                             const std::vector<TensorSlice>& wanted) const {
  std::vector<std::vector<CopySegment>> segments_by_file(files_.size());
  for (std::size_t index = 0; index < wanted.size(); ++index) {
    const TensorSlice& slice = wanted[index];
    const auto stored = tensors_.find(slice.name);
    verify(stored != tensors_.end(), ErrorKind::checkpoint, "{}: has no tensor {}; it is of another model", path_,
           slice.name);
    const std::vector<std::string> has = datasets_with(stored->second.states);
    if (std::find(has.begin(), has.end(), dataset) == has.end()) {
      verify(!states().empty(), ErrorKind::checkpoint,
             "{}: holds weights only, no optimizer state; use checkpoint.initialize_from for it", path_);
      fail(
          ErrorKind::checkpoint,
          "{}: has no state \"{}\" of tensor {}, only [{}]: another optimizer saved it; use checkpoint.initialize_from "
          "for it",
          path_, dataset, slice.name, fmt::join(stored->second.states, ", "));
    }
    for (const CopySegment& segment : plan_slice(slice, index, stored->second, dataset)) {
      segments_by_file[static_cast<std::size_t>(segment.file)].push_back(segment);
    }
  }
  for (std::vector<CopySegment>& segments : segments_by_file) {
    std::sort(segments.begin(), segments.end(),
              [](const CopySegment& a, const CopySegment& b) { return a.from < b.from; });
  }
  return segments_by_file;
}

void CheckpointReader::read_here(const std::vector<TensorSlice>& wanted) const {
  check_slices(wanted);
  std::vector<Reading> readings;
  for (const std::string& dataset : datasets_with(state_names(wanted))) {
    std::vector<TensorSlice> slices = slices_in(dataset, wanted);
    std::vector<std::vector<CopySegment>> segments = plan(dataset, slices);
    readings.push_back({dataset, std::move(slices), std::move(segments)});
  }
  std::vector<float> block;
  for (std::size_t index = 0; index < files_.size(); ++index) {
    if (readings.front().segments[index].empty()) continue;  // no values, and then no states
    const Hdf5Reader file(files_[index], ErrorKind::checkpoint);
    for (const auto& [dataset, slices, segments] : readings) {
      if (!segments[index].empty()) read_segments(file.open_dataset(dataset), segments[index], slices, block);
    }
  }
}

void CheckpointReader::read_numbers(const std::string& dataset, const std::vector<TensorSlice>& wanted) const {
  OpenDatasets open;
  read_numbers(dataset, wanted, open);
}

void CheckpointReader::read_numbers(const std::string& dataset, const std::vector<TensorSlice>& wanted,
                                    OpenDatasets& open) const {
  check_slices(wanted);
  const std::vector<std::vector<CopySegment>> segments = plan(dataset, wanted);
  std::vector<float> block;
  for (std::size_t file = 0; file < files_.size(); ++file) {
    if (!segments[file].empty()) read_segments(open.at(files_[file], dataset), segments[file], wanted, block);
  }
}

namespace {

/// Most numbers of slices that are read together on their way to a device.
constexpr std::int64_t kNumbersTogether = std::int64_t{4} << 20;

/// The same, those with more numbers than are read together in several.
std::vector<TensorSlice> in_small_slices(const std::vector<TensorSlice>& slices) {
  std::vector<TensorSlice> result;
  for (const TensorSlice& slice : slices) {
    const auto most = kNumbersTogether / static_cast<std::int64_t>(1 + slice.states.size());
    for (std::int64_t first = 0; first < slice.count; first += most) {
      TensorSlice part = slice;
      part.first += first;
      part.count = std::min(most, slice.count - first);
      for_each_tensor(part, [&](Tensor& tensor) { tensor = tensor.slice(0, first, part.count); });
      result.push_back(std::move(part));
    }
  }
  return result;
}

/// The same slices in host memory, one after the other, each at a multiple of four bytes.
std::vector<TensorSlice> in_host_memory(std::vector<TensorSlice> slices, const Buffer& memory) {
  std::size_t used = 0;
  for (TensorSlice& slice : slices) {
    for_each_tensor(slice, [&](Tensor& tensor) {
      tensor = memory.tensor({slice.count}, tensor.dtype(), used);
      used += (tensor.bytes() + sizeof(float) - 1) / sizeof(float) * sizeof(float);
    });
  }
  return slices;
}

}  // namespace

// By way of pinned memory, a bounded number of slices at a time; where the device's memory is the host's, at once.
void CheckpointReader::read_to(Device& device, const std::vector<TensorSlice>& wanted) const {
  if (device.is_host_memory()) return read_here(wanted);
  check_slices(wanted);
  const std::vector<TensorSlice> slices = in_small_slices(wanted);
  std::int64_t all = 0;
  for (const TensorSlice& slice : slices) all += slice.numbers();
  const Buffer memory(device.pinned(), static_cast<std::size_t>(std::min(all, kNumbersTogether)) * sizeof(float));
  for (auto begin = slices.begin(); begin != slices.end();) {
    auto end = begin;
    std::int64_t numbers = 0;
    do {
      numbers += (end++)->numbers();
    } while (end != slices.end() && numbers + end->numbers() <= kNumbersTogether);
    const std::vector<TensorSlice> here = in_host_memory({begin, end}, memory);
    read_here(here);
    for (const TensorSlice& slice : here) {
      std::vector<Tensor> targets;
      for_each_tensor(*begin++, [&](const Tensor& tensor) { targets.push_back(tensor); });
      auto target = targets.begin();
      for_each_tensor(slice, [&](const Tensor& tensor) {
        device.copy_to_device((target++)->data(), tensor.data(), tensor.bytes());
      });
    }
  }
}

void CheckpointReader::read(Communicator& world, const std::vector<TensorSlice>& wanted, Device& device) const {
  agree(world, [&] { read_to(device, wanted); });
}

}  // namespace megatron
