#include "training/step/offload.h"

#include <cstring>
#include <string>

#include "base/core/error.h"
#include "base/system/mapped_file.h"
#include "checkpoint/store/free_space.h"

namespace megatron {

namespace {

constexpr const char* kWhat = "the optimizer's state";
constexpr const char* kFolderKey = "optimizer.offload_folder";

// On a CPU.
class StateFile final : public OffloadedMemory {
 public:
  StateFile(const std::string& folder, std::size_t bytes) : file_(folder, bytes, kWhat, kFolderKey) {}

  std::byte* data() override { return file_.data(); }
  std::size_t bytes() const override { return file_.bytes(); }
  // A master and two states, each in at most two blocks, and room for what is read ahead.
  std::int64_t elements_at_a_time() const override { return MappedFile::kBlockBytes / sizeof(float); }
  void use(const Tensor& numbers) override { file_.use(numbers.data(), numbers.bytes()); }
  void rest() override { file_.rest(); }

 private:
  MappedFile file_;
};

// Pinned memory of the host, which a GPU's kernels reach under the same addresses.
class StateInHost final : public OffloadedMemory {
 public:
  StateInHost(Device& device, std::size_t bytes) : memory_(device.pinned(), bytes) {
    std::memset(memory_.data(), 0, bytes);
  }
  std::byte* data() override { return memory_.data(); }
  std::size_t bytes() const override { return memory_.bytes(); }

 private:
  Buffer memory_;
};

class CountedState final : public OffloadedMemory {
 public:
  CountedState(Device& device, std::size_t bytes) : memory_(device, bytes) {}
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

std::unique_ptr<OffloadedMemory> make_offloaded_memory(const Config& config, Device& device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (config.optimizer.offload == "file") return std::make_unique<StateFile>(offload_folder(config), bytes);
  return std::make_unique<StateInHost>(device, bytes);
}

std::unique_ptr<OffloadedMemory> count_offloaded_memory(Device& device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  return std::make_unique<CountedState>(device, bytes);
}

}  // namespace megatron
