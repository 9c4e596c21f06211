// Records of TensorBoard's event files: tensorflow.Event messages of protocol buffers, framed as TFRecords (length,
// masked CRC32C of the length, data, masked CRC32C of the data). Written by hand, since five kinds are all that is
// needed. Knows nothing of runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace megatron {

/// CRC-32 of Castagnoli, as TFRecords hold it: rotated and shifted, so that a CRC of data with CRCs stays a good one.
std::uint32_t masked_crc32c(std::string_view data);

std::string tf_record(std::string_view data);

/// The first record of a file. `time` in all of them: seconds since 1970.
std::string version_event(double time);
/// A program has started, whose first step is `step`: readers drop what earlier files say of it and of later steps.
std::string start_event(double time, std::int64_t step);
using TaggedScalar = std::pair<std::string, double>;
std::string scalars_event(double time, std::int64_t step, std::span<const TaggedScalar> scalars);
/// `text` is Markdown.
std::string text_event(double time, std::int64_t step, std::string_view tag, std::string_view text);

}  // namespace megatron
