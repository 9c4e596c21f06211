// A rank file: what one rank owns, as one-dimensional HDF5 datasets.
//
//   /value, /m, /v   f32, contiguous: the slices one after the other, for each state (m, v) those that have it
//   /pieces          u8: the table as JSON, [{"name", "shape", "offset", "extent", "first", "count", "position"}], with
//                    "states" of those that do not have all of the file's
//   attributes       "step", "rank". Self-describing: offline tools need no manifest to understand one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/files.h"

namespace megatron {

/// A table of slices as a file has it.
struct SliceTable {
  std::string text;                 ///< JSON
  std::vector<std::string> states;  ///< states with a dataset in the file: those of a slice that lists none
};

/// Gives the numbers that go into a dataset, from element `position` on: as many as are at hand, at least one. Asked
/// for one dataset after the other, from 0 to the end. The numbers stay until the next call.
using NumberSource = std::function<std::span<const float>(const std::string& dataset, std::int64_t position)>;

/// Writes a new file of these slices (of which the tensors do not count), closes and syncs it, and reopens it to prove
/// that it can be read. Returns its size and hash, taken from what the file system gives back. `rank` and `step` go
/// into the file. Throws Error; ErrorKind::numerics if a parameter is not finite.
FileDigest write_rank_file(const std::string& path, int rank, std::int64_t step, const std::vector<TensorSlice>& slices,
                           const NumberSource& numbers);
/// The same in two parts: all that needs the numbers, which gives the table of slices, and the rest, which needs only
/// the file and so may be done by another thread while the next file is being written. For conversions: numbers that
/// are not finite are copied as they are.
SliceTable fill_rank_file(const std::string& path, int rank, std::int64_t step, const std::vector<TensorSlice>& slices,
                          const NumberSource& numbers);
FileDigest finish_rank_file(const std::string& path, int rank, std::int64_t step, const SliceTable& table);
/// The same, of slices that lie on `device`.
FileDigest write_rank_file(const std::string& path, int rank, std::int64_t step, const std::vector<TensorSlice>& owned,
                           Device& device);

/// The size of a rank file of these slices, of which the tensors do not count; 0 of none, which make no file.
std::int64_t rank_file_bytes(const std::vector<TensorSlice>& slices);

/// A slice of a rank file's table, checked on its own.
struct TableEntry {
  std::string name;
  Shape shape;
  std::vector<std::string> states;  ///< sorted
  StoredSlice slice;
};

/// A file's, after a check that it is sound, that it fits the datasets, and that the file is what the manifest takes it
/// for. Throws Error(checkpoint).
SliceTable read_slice_table(const std::string& path, int rank, std::int64_t step);

/// Throws Error(checkpoint) for a table that contradicts itself. `file` is set in every slice.
std::vector<TableEntry> parse_slice_table(const SliceTable& table, int file);

}  // namespace megatron
