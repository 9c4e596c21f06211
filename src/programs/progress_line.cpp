#include "programs/progress_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/system/notes.h"
#include "base/text/byte_text.h"

namespace megatron {

void ProgressLine::show(std::uint64_t bytes) {
  if (!active_ || seconds() < last_ + 2) return;
  last_ = seconds();
  bytes = std::min(bytes, total_);
  const auto done = static_cast<double>(bytes), all = static_cast<double>(total_);
  print_note(fmt::format("{:>10} of {} {:5.1f} %  {}/s", format_bytes(done), format_bytes(all), 100 * done / all,
                         format_bytes(done / last_)));
}

}  // namespace megatron
