#include "training/step/offload.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/core/error.h"
#include "base/system/host_name.h"
#include "base/system/mapped_file.h"
#include "base/system/memory_usage.h"
#include "base/system/storage.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"
#include "training/step/grid.h"

namespace megatron {

namespace {

constexpr const char* kWhat = "the optimizer's state";
constexpr const char* kFolderKey = "optimizer.offload_folder";

// On a CPU.
class StateFile final : public OffloadedMemory {
 public:
  StateFile(const std::string& folder, std::size_t bytes, std::size_t ranks_here)
      : file_(folder, bytes, kWhat, kFolderKey), ranks_here_(ranks_here) {}

  std::byte* data() override { return file_.data(); }
  std::size_t bytes() const override { return file_.bytes(); }
  // A master and two states, each in at most two blocks, and room for what is read ahead.
  std::int64_t elements_at_a_time() const override { return MappedFile::kBlockBytes / sizeof(float); }
  void use(const Tensor& numbers, Access access) override {
    file_.use(numbers.data(), numbers.bytes(),
              access == Access::write ? MappedFile::Access::write : MappedFile::Access::read);
  }
  void rest() override { file_.rest(); }
  // Half of what is free: what is read must stay in the kernel's cache until it is used.
  void expect_update() override { file_.read_ahead(free_memory_bytes().value_or(0) / 2 / ranks_here_); }

 private:
  MappedFile file_;
  std::size_t ranks_here_;
};

// Without a file.
class StateInMemory final : public OffloadedMemory {
 public:
  StateInMemory(Allocator& allocator, std::size_t bytes) : memory_(allocator, bytes) {}
  std::byte* data() override { return memory_.data(); }
  std::size_t bytes() const override { return memory_.bytes(); }

 private:
  Buffer memory_;
};

}  // namespace

void require_offload(const OptimizerConfig& optimizer, bool on_host_memory) {
  verify(
      optimizer.offload != "host" || !on_host_memory, ErrorKind::configuration,
      "optimizer.offload = \"host\" moves a GPU's optimizer state to the host's memory, and this run computes on the "
      "CPU, whose memory that is; take optimizer.offload = \"file\"");
  verify(optimizer.offload != "file" || on_host_memory, ErrorKind::configuration,
         "optimizer.offload = \"file\" is for the CPU's memory, and this run computes on a GPU; take optimizer.offload "
         "= \"host\"");
}

std::string offload_folder(const Config& config) {
  const std::string& named = config.optimizer.offload_folder;
  return named.empty() ? existing_folder(config.run.directory) : named;
}

double bytes_of_state_files(const Config& config, const std::vector<MemoryPlan>& stages, int ranks_here) {
  double all = 0, most = 0;
  for (const MemoryPlan& stage : stages) {
    const auto bytes = static_cast<double>(stage.fullest.file);
    all += bytes * grid_shape(config).ranks() / static_cast<double>(stages.size());
    most = std::max(most, bytes);
  }
  return config.optimizer.offload_folder.empty() ? all : std::min(all, most * ranks_here);
}

std::unique_ptr<OffloadedMemory> make_offloaded_memory(const Config& config, const ProcessGrid& grid, Device& device,
                                                       std::size_t bytes) {
  require_offload(config.optimizer, device.is_host_memory());
  if (config.optimizer.offload == "none") return nullptr;
  const std::vector<std::string> hosts = gather_on_all(grid.world(), host_name());
  const auto ranks_here = static_cast<std::size_t>(std::count(hosts.begin(), hosts.end(), host_name()));
  std::unique_ptr<OffloadedMemory> memory;
  agree(grid.world(), [&] {
    if (bytes == 0) return;
    if (config.optimizer.offload == "file") {
      memory = std::make_unique<StateFile>(offload_folder(config), bytes, ranks_here);
    } else {
      // Pinned, so that a GPU's kernels reach it under the same addresses.
      memory = std::make_unique<StateInMemory>(device.pinned(), bytes);
      std::memset(memory->data(), 0, bytes);
    }
  });
  return memory;
}

std::unique_ptr<OffloadedMemory> count_offloaded_memory(const Config& config, Device& device, std::size_t bytes) {
  require_offload(config.optimizer, device.is_host_memory());
  if (bytes == 0) return nullptr;
  return std::make_unique<StateInMemory>(device, bytes);
}

}  // namespace megatron
