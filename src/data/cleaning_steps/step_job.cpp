#include "data/cleaning_steps/step_job.h"

#include <fmt/format.h>

#include "base/core/error.h"
#include "data/cleaning_steps/shuffle_spill.h"
#include "distributed/comm/agreement.h"

namespace megatron {

bool has_pages(const StepJob& job) {
  return job.step->inputs == InputKind::wiki_dumps;
}

TextInputs text_inputs(const StepJob& job) {
  verify(job.format.empty() || !has_pages(job), ErrorKind::configuration,
         "{} reads dumps of MediaWiki (.xml, also compressed); leave out --format", job.step->name);
  verify(job.format.empty() || job.format == "jsonl" || job.format == "list", ErrorKind::configuration,
         "format '{}': choose one of: jsonl list", job.format);
  return {.paths = job.inputs,
          .format = job.format == "list" ? "text" : job.format,
          .plain_name = "list",
          .wiki_pages = has_pages(job),
          .skip_bad = job.skip_bad,
          .longest = job.longest};
}

std::string identity_of(const StepJob& job) {
  return fmt::format("{}\n{}\n{}\n{} {} {} {} {}\n", job.program, job.step->name, job.keys.identity(), job.text_key,
                     extension_of(job.packing), job.skip_bad, job.examples, job.longest);
}

std::string agreed_identity(Communicator& world, std::span<const StepJob> jobs) {
  std::string mine;
  agree(world, [&] {
    for (const StepJob& job : jobs) mine += identity_of(job);
  });
  const std::string root = world.broadcast_text(mine, 0);
  agree(world, [&] {
    verify(mine == root, ErrorKind::data, "a key's file or the program differs from rank 0's; give all nodes the same");
  });
  return mine;
}

std::uint64_t most_step_bytes(const StepJob& job) {
  // A block's lines, read and placed; the longest line as it is read, unescaped, changed and kept, in strings that have
  // grown to twice as much; buffers of the files.
  constexpr std::uint64_t kBuffers = std::uint64_t{16} << 20;
  const bool spills = job.step->name == shuffle_step().name;
  const std::uint64_t own = job.step->memory != nullptr ? job.step->memory(job.keys, job.longest) : 0;
  return 3 * job.block_bytes + 12 * job.longest + kBuffers + (spills ? 4 * kBucketBytes : 0) + own;
}

}  // namespace megatron
