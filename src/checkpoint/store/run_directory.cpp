#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/system/storage.h"
#include "base/text/byte_text.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/files.h"
#include "checkpoint/store/folder.h"

namespace megatron {

void check_free_space(const std::string& directory, std::int64_t bytes) {
  const std::optional<std::int64_t> available = free_space(directory);
  verify(!available || *available >= bytes, ErrorKind::filesystem,
         "{}: a checkpoint needs {} ({} bytes) and {} ({} bytes) are free; make room or choose another run.directory",
         directory, format_bytes(static_cast<double>(bytes)), bytes,
         format_bytes(static_cast<double>(available.value_or(0))), available.value_or(0));
}

void check_writable(const std::string& directory) {
  create_folder_durably(directory);
  const std::string probe = directory + "/.tmp_probe";
  (void)::unlink(probe.c_str());
  try {
    create_file_durably(probe, "writable\n");
  } catch (...) {
    (void)::unlink(probe.c_str());
    throw;
  }
  if (::unlink(probe.c_str()) != 0) fail_with_errno("remove", probe);
}

void clean_checkpoints(const std::string& run_directory) {
  remove_temporaries({run_directory + "/config.toml", run_directory + "/loss.svg", run_directory + "/report.html"});
  remove_temporaries({checkpoints_folder(run_directory) + "/.tmp_mark"});
  clean_leftovers(checkpoints_folder(run_directory));
}

bool directory_has_run(const std::string& run_directory) {
  for (const char* name : {"config.toml", "metrics.jsonl", "run.log"}) {
    if (file_type(run_directory + "/" + name) != FileType::absent) return true;
  }
  return !steps_in(checkpoints_folder(run_directory)).empty();
}

std::string make_fresh_run_directory(const std::string& wanted) {
  if (!directory_has_run(wanted)) return wanted;
  std::filesystem::path stem = std::filesystem::path(wanted).lexically_normal();
  if (!stem.has_filename()) stem = stem.parent_path();  // "runs/t/"
  if (stem.filename() == "." || stem.filename() == "..") stem = std::filesystem::canonical(stem);
  for (int number = 2;; ++number) {
    const std::string name = fmt::format("{}_{}", stem.string(), number);
    if (::mkdir(name.c_str(), 0777) == 0) return name;
    if (errno != EEXIST) fail_with_errno("create", name);
  }
}

}  // namespace megatron
