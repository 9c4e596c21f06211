// --logits FILE: the logits that each new token was chosen from, in an HDF5 file. Written under a temporary name while
// texts are made, by the rank that has the logits; it takes its name at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/system/durable_file.h"
#include "data/hdf5/hdf5_file.h"

namespace megatron {

class LogitsFile {
 public:
  LogitsFile(OutputFile output, std::int64_t vocab_size);
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;
  ~LogitsFile();  ///< removes what was not published

  /// One row, for new token number `position` of text number `text`, both from 0.
  void add(std::int64_t text, std::int64_t position, std::span<const float> logits);
  /// Gives the file its name. Errors: as publish_output().
  void publish();

 private:
  OutputFile output_;
  std::string temporary_;
  std::optional<Hdf5File> file_;
  Hdf5Dataset logits_;
  std::vector<std::int64_t> texts_, positions_;
  bool published_ = false;
};

}  // namespace megatron
