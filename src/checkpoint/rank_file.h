// A rank file: what one rank owns, as one-dimensional HDF5 datasets.
//
//   /value, /m, /v   f32, contiguous: the pieces one behind the other (m and v only where the optimizer has them)
//   /pieces          u8: the table as JSON, [{"name", "shape", "offset", "extent", "first", "count", "position"}]
//   attributes       "step", "rank"
// Self-describing: offline tools need no manifest to understand one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"

namespace megatron {

/// Writes a new file of pieces that lie on `device`, closes and syncs it, and reopens it to prove that it can be read.
/// Returns its size and hash, taken from what the file system gives back. `rank` and `step` go into the file. Throws
/// Error.
FileDigest write_rank_file(const std::string& path, int rank, std::int64_t step, const std::vector<Piece>& owned,
                           Device& device);

/// A piece of a rank file's table, checked on its own.
struct TableEntry {
  std::string name;
  Shape shape;
  StoredPiece piece;
};

/// The table of pieces, as JSON text, after a check that it is sound, that it fits the datasets, and that the file is
/// what the manifest takes it for. Throws Error(checkpoint).
std::string read_piece_table(const std::string& path, int rank, std::int64_t step, int moments);

/// Throws Error(checkpoint) for a table that contradicts itself. `file` is set in every piece.
std::vector<TableEntry> parse_piece_table(const std::string& text, int file);

}  // namespace megatron
