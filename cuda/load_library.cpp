// The CUDA backend as the programs have it: its library, loaded when it is asked for.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "backend/ops/backends.h"
#include "backend/ops/ops.h"
#include "cuda/build_name.h"
#include "cuda/library.h"
#include "distributed/comm/communicator.h"

namespace megatron {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "libmegatron_cuda.so";

fs::path program_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

struct Loading {
  const CudaLibrary* library = nullptr;
  std::string obstacle;  ///< if there is none
};

Loading load() {
  const std::string file = cuda_library_file();
  if (file.empty()) {
    return {
        nullptr,
        fmt::format("{}, which belongs next to the program, is neither in {} nor in its ../lib/megatron_train: copy "
                    "it there from where both were built, or use run.device = \"cpu\"",
                    kFile, program_folder().string())};
  }
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* function = handle == nullptr ? nullptr : dlsym(handle, "megatron_cuda_library");
  if (function == nullptr) {
    const char* reason = dlerror();
    return {
        nullptr,
        fmt::format("{} cannot be loaded: {}. The libraries of CUDA (cudart, cublasLt) and NCCL are looked for where "
                    "they were when it was built, and in the folders of LD_LIBRARY_PATH: load their module, or name "
                    "their folders there; a symbol that is undefined means that library and program are not of one "
                    "build. run.device = \"cpu\" does without",
                    file, reason == nullptr ? "no reason is given" : reason)};
  }
  void* name = dlsym(handle, "megatron_cuda_build");
  const std::string_view build =
      name == nullptr ? "one without a name" : reinterpret_cast<decltype(&megatron_cuda_build)>(name)();
  if (build != MEGATRON_BUILD_NAME) {
    return {nullptr,
            fmt::format("{} is of another build ({}) than the program ({}): copy both from where they were built, or "
                        "build both again. run.device = \"cpu\" does without",
                        file, build, MEGATRON_BUILD_NAME)};
  }
  return {reinterpret_cast<decltype(&megatron_cuda_library)>(function)(), ""};
}

const Loading& loading() {
  static const Loading once = load();
  return once;
}

const CudaLibrary& library() {
  verify(loading().library != nullptr, ErrorKind::configuration, "{}", loading().obstacle);
  return *loading().library;
}

}  // namespace

std::string cuda_library_file() {
  const fs::path program = program_folder();
  for (const char* folder : {"", "../lib/megatron_train", "../lib", "..", "../.."}) {
    std::error_code ignored;
    const fs::path file = (program / folder / kFile).lexically_normal();
    if (fs::exists(file, ignored)) return file.string();
  }
  return {};
}

CudaBuild cuda_build() {
  return {.cuda = true, .nccl = MEGATRON_NCCL};
}

bool cuda_device_is_likely() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");  // numbers or names up to the first that is none
  if (visible != nullptr && (*visible == '\0' || *visible == '-' || std::string_view(visible) == "NoDevFiles")) {
    return false;
  }
  // The driver's own, the one of Linux under Windows, the one of integrated GPUs.
  for (const char* file : {"/dev/nvidiactl", "/dev/dxg", "/dev/nvmap"}) {
    if (access(file, F_OK) == 0) return true;
  }
  return false;
}

const CudaSupport& cuda_support() {
  static const CudaSupport once =
      loading().library != nullptr
          ? loading().library->support()
          : CudaSupport{.devices = 0, .description = "not loaded", .obstacle = loading().obstacle};
  return once;
}

Backend make_cuda_backend(int device_index) {
  return library().open_backend(device_index);
}

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device) {
  return library().connect_nccl(host, device);
}

}  // namespace megatron
