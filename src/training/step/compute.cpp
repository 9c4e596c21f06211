#include "training/step/compute.h"

#include <algorithm>
#include <map>
#include <utility>

#include "backend/ops/backends.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"
#include "distributed/parallel/staged_communicator.h"
#include "training/step/code_path.h"

namespace megatron {

namespace {

using HostAndDevice = std::pair<std::string, std::string>;

// Why the host passes tensors on, or nothing where NCCL can; on rank 0, from all ranks' hosts and devices.
std::string reason_for_staging(const RunConfig& run, const std::vector<HostAndDevice>& ranks) {
  if (run.communication == "mpi") return "run.communication = \"mpi\"";
  if (!cuda_build().nccl) return "this build has no NCCL";
  std::map<HostAndDevice, int> sharers;
  for (const HostAndDevice& rank : ranks) ++sharers[rank];
  for (const auto& [device, count] : sharers) {
    if (count > 1) return fmt::format("{} ranks on {} share a device, which NCCL refuses", count, device.first);
  }
  return "";
}

// On this rank. Loads nothing where nothing points to a GPU.
bool has_usable_device() {
  return cuda_device_is_likely() && cuda_support().devices > 0;
}

std::string choose_automatically(Communicator& world, std::vector<std::string>& warnings) {
  const bool usable = has_usable_device(), likely = cuda_device_is_likely();
  if (!world.any_rank(!usable)) return "cuda";
  if (!world.any_rank(likely)) return "cpu";  // no rank expects anything else
  std::string lack;
  if (!usable && !likely) {
    lack = "its machine has none, or CUDA_VISIBLE_DEVICES hides them";
  } else if (!usable) {
    lack = cuda_support().obstacle.empty() ? cuda_support().description : cuda_support().obstacle;
  }
  const std::vector<std::string> lacks = world.gather_texts(lack, 0);
  const auto first = std::find_if(lacks.begin(), lacks.end(), [](const std::string& text) { return !text.empty(); });
  if (first != lacks.end()) {
    warnings.push_back(fmt::format("run.device = \"auto\" is the CPU: rank {} has no GPU that it can use: {}",
                                   first - lacks.begin(), *first));
  }
  return "cpu";
}

}  // namespace

RunConfig choose_device(RunConfig run, Communicator& world, std::vector<std::string>& warnings) {
  if (run.device_choice() == DeviceChoice::automatic) run.device = choose_automatically(world, warnings);
  agree(world, [&] {
    if (run.device_choice() == DeviceChoice::cuda) {
      verify(cuda_build().cuda, ErrorKind::configuration,
             "run.device = \"cuda\": this build has no CUDA backend; build it where nvcc is found, or use run.device = "
             "\"cpu\" or \"auto\"");
      const CudaSupport& cuda = cuda_support();
      verify(cuda.obstacle.empty(), ErrorKind::configuration, "run.device = \"cuda\": {}", cuda.obstacle);
      verify(cuda.devices > 0, ErrorKind::configuration,
             "run.device = \"cuda\": this process has no CUDA device to use ({}); ask the batch system for one (Slurm: "
             "--gpus-per-task=1 or --gres=gpu:N), check nvidia-smi and CUDA_VISIBLE_DEVICES, or use run.device = "
             "\"cpu\"",
             cuda.description);
    }
    verify(run.device_choice() == DeviceChoice::cuda || run.communication != "nccl", ErrorKind::configuration,
           "run.communication = \"nccl\" moves tensors between CUDA devices, and this run computes on the CPU; use "
           "run.communication = \"mpi\" or \"auto\"");
    verify(run.communication != "nccl" || cuda_build().nccl, ErrorKind::configuration,
           "run.communication = \"nccl\": this build has no NCCL; use run.communication = \"mpi\" or \"auto\"");
  });
  if (run.device_choice() == DeviceChoice::cpu) run.communication = "mpi";
  return run;
}

RunConfig choose_planned_device(RunConfig run) {
  if (run.device_choice() == DeviceChoice::automatic) run.device = has_usable_device() ? "cuda" : "cpu";
  return run;
}

std::unique_ptr<CountingOps> make_counting_ops(const RunConfig& run) {
  return run.device_choice() == DeviceChoice::cuda ? make_cuda_counting_ops()
                                                   : make_cpu_counting_ops(static_cast<int>(run.threads));
}

bool on_host_memory(const RunConfig& run) {
  return run.device_choice() != DeviceChoice::cuda;
}

TransportKind planned_transport(const RunConfig& run) {
  if (on_host_memory(run)) return TransportKind::host;
  if (run.communication == "mpi") return TransportKind::staged;
  const bool without_nccl = run.communication == "auto" && cuda_build().cuda && !cuda_build().nccl;
  return without_nccl ? TransportKind::staged : TransportKind::nccl;
}

TransportKind transport_of(const Device& device, const Communicator& group) {
  if (device.is_host_memory()) return TransportKind::host;
  return dynamic_cast<const StagedCommunicator*>(&group) != nullptr ? TransportKind::staged : TransportKind::nccl;
}

std::unique_ptr<Communicator> staged_transport(Communicator& group, Device& device) {
  return device.is_host_memory() ? nullptr : std::make_unique<StagedCommunicator>(group, device);
}

Compute start_compute(const RunConfig& run, DType type, Communicator& world, const std::string& host, int local_rank) {
  Compute compute;
  if (run.device_choice() == DeviceChoice::cpu) {
    // Jobs without bf16 do not ask for its products.
    const Native16Bit native = type == DType::bf16 ? run.native_16bit_choice() : Native16Bit::automatic;
    agree(world, [&] {
      compute.backend = make_cpu_backend(static_cast<int>(run.threads), native);
      compute.half_products = chosen_half_products(native);
    });
    if (type == DType::bf16) require_same_half_products(world, host, compute.half_products);
    return compute;
  }
  agree(world, [&] { compute.backend = make_cuda_backend(local_rank % cuda_support().devices); });
  Device& device = *compute.backend.device;
  const std::vector<HostAndDevice> ranks = gather(world, HostAndDevice(host, device.identity()));
  const std::string reason = world.broadcast_text(world.rank() == 0 ? reason_for_staging(run, ranks) : "", 0);
  verify(run.communication != "nccl" || reason.empty(), ErrorKind::configuration,
         "run.communication = \"nccl\": {}; start one rank for each device, or use run.communication = \"mpi\" or "
         "\"auto\"",
         reason);
  const bool nccl = reason.empty() && world.size() > 1;  // a single rank sends nothing
  compute.transport_kind = nccl ? TransportKind::nccl : TransportKind::staged;
  compute.transport = nccl ? make_nccl_communicator(world, device) : staged_transport(world, device);
  if (world.size() > 1) {
    compute.description = nccl ? "NCCL" : fmt::format("MPI, through pinned host memory ({})", reason);
  }
  return compute;
}

}  // namespace megatron
