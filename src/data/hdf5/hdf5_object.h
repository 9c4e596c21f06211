// The object headers of an HDF5 file: what the root group links to, and of a dataset its shape, type, place and
// attributes. Private to the reader of this layer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_metadata.h"
#include "data/hdf5/hdf5_type.h"

namespace megatron {

/// One u64, one text, or something that is never read.
struct Hdf5Attribute {
  std::string name;
  std::optional<std::uint64_t> number = {};
  std::optional<std::string> text = {};
};

struct Hdf5Link {
  std::string name;
  std::uint64_t address = kNoAddress;  ///< none: a soft or external link
};

/// Where the chunks of a dataset are listed: an extensible array, which HDF5 makes for datasets that grow.
struct Hdf5ChunkIndex {
  std::uint64_t chunk_elements = 0;
  std::uint64_t element_bytes = 0;
  std::uint64_t address = kNoAddress;  ///< the array header's; none: there are no chunks
};

/// Where a dataset's bytes are.
struct Hdf5Layout {
  std::uint64_t address = kNoAddress, bytes = 0;  ///< if there are no chunks
  std::optional<Hdf5ChunkIndex> chunks = {};
};

struct Hdf5ObjectHeader {
  std::vector<Hdf5Link> links;
  std::vector<Hdf5Attribute> attributes;
  bool has_shape = false, has_type = false;
  std::optional<std::uint64_t> elements;  ///< none: not one-dimensional
  std::optional<Hdf5Type> type;           ///< none: another type
  std::optional<Hdf5Layout> layout;
  bool fletcher32 = false;
  std::string refusal;  ///< not empty: of a kind of dataset that is never read, and why

  bool is_dataset() const { return has_shape && has_type && layout.has_value(); }
};

Hdf5ObjectHeader read_object_header(Hdf5Storage& storage, std::uint64_t address);

}  // namespace megatron
