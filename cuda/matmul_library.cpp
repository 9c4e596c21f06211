#include "cuda/matmul_library.h"

#include <cublasLt.h>

#include <unordered_map>

#include "backend/ops/arguments.h"
#include "backend/ops/product_size.h"
#include "cuda/cublas_check.h"
#include "cuda/cuda_check.h"
#include "cuda/cuda_device.h"

namespace megatron {

namespace {

constexpr std::size_t kWorkspaceBytes = 32u << 20, kHopperWorkspaceBytes = 64u << 20;
/// The largest alignment that kernels ask of a place. Larger ones make no separate plans, so that the place of a
/// tensor in memory does not change the order of additions.
constexpr std::uint32_t kAlignment = 16;

std::uint32_t alignment_of(const void* place) {
  const auto address = reinterpret_cast<std::uintptr_t>(place) | kAlignment;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// All that the choice of an algorithm depends on.
struct Key {
  std::int64_t m = 0, n = 0, k = 0, a_stride = 0, b_stride = 0, c_stride = 0;
  std::uint32_t a_alignment = 0, b_alignment = 0, c_alignment = 0;
  cudaDataType_t input = CUDA_R_32F, output = CUDA_R_32F;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::size_t hash = 0;
    const auto mix = [&](std::int64_t value) {
      hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    };
    for (const std::int64_t value : {key.m, key.n, key.k, key.a_stride, key.b_stride, key.c_stride}) mix(value);
    mix(key.a_alignment | key.b_alignment << 8 | key.c_alignment << 16);
    mix(key.input << 8 | key.output);
    mix(key.epilogue << 3 | key.transpose_a << 2 | key.transpose_b << 1 | static_cast<int>(key.accumulate));
    return hash;
  }
};

/// The matrix that column-major cuBLASLt sees in row-major memory is the transpose: rows and columns change places, and
/// cᵀ = op(b)ᵀ · op(a)ᵀ has b in front.
struct Plan {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, c;
  cublasLtMatmulAlgo_t algorithm;
};

template <class T>
void set_product(Plan& plan, cublasLtMatmulDescAttributes_t what, T value) {
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(&plan.product, what, &value, sizeof value));
}

void set_operation(Plan& plan, cublasLtMatmulDescAttributes_t operand, bool transpose) {
  set_product(plan, operand, transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
}

cublasLtEpilogue_t epilogue_of(const Epilogue& epilogue) {
  switch (epilogue.kind) {
    case Epilogue::Kind::bias: return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::Kind::gelu:
      return epilogue.bias == nullptr ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::Kind::gelu_gradient: return CUBLASLT_EPILOGUE_DGELU;
    default: return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

/// Where the operands of the epilogue lie.
void set_places(Plan& plan, const Epilogue& epilogue) {
  if (epilogue.bias != nullptr) set_product(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue.bias);
  if (epilogue.gelu_input != nullptr) {
    set_product(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue.gelu_input);
  }
}

/// A row-major matrix of `rows` by `columns` as cuBLASLt sees it.
void set_layout(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                std::int64_t stride) {
  CUBLAS_CHECK(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(columns),
                                        static_cast<std::uint64_t>(rows), stride));
}

template <class T>
void set_preference(cublasLtMatmulPreferenceOpaque_t& preference, cublasLtMatmulPreferenceAttributes_t what, T value) {
  CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, what, &value, sizeof value));
}

/// Null: there is no algorithm with this epilogue. Without one that is an error, as all else that goes wrong always is.
std::unique_ptr<Plan> make_plan(cublasLtHandle_t handle, const Key& key, const Epilogue& epilogue,
                                std::size_t workspace_bytes) {
  auto made = std::make_unique<Plan>();
  Plan& plan = *made;
  // With f32 inputs this is f32 throughout, no TF32; with 16-bit ones, f32 sums on the tensor cores.
  CUBLAS_CHECK(cublasLtMatmulDescInit(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set_operation(plan, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b);
  set_operation(plan, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a);
  set_layout(plan.a, key.input, key.transpose_a ? key.k : key.m, key.transpose_a ? key.m : key.k, key.a_stride);
  set_layout(plan.b, key.input, key.transpose_b ? key.n : key.k, key.transpose_b ? key.k : key.n, key.b_stride);
  set_layout(plan.c, key.output, key.m, key.n, key.c_stride);
  set_product(plan, CUBLASLT_MATMUL_DESC_EPILOGUE, key.epilogue);
  if (epilogue.gelu_input != nullptr) set_product(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.n);
  // The choice of an algorithm looks at how they are aligned: as little as any may be, wherever these are.
  void* anywhere = reinterpret_cast<void*>(std::uintptr_t{kAlignment});
  set_places(plan, {.kind = epilogue.kind,
                    .bias = epilogue.bias == nullptr ? nullptr : anywhere,
                    .gelu_input = epilogue.gelu_input == nullptr ? nullptr : anywhere});

  cublasLtMatmulPreferenceOpaque_t preference;
  CUBLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
  set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
  // A dot product cut in pieces has its f32 sums in the workspace, added up in one order by a separate kernel.
  set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);
  set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.c_alignment);
  set_preference(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);

  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &plan.product, &plan.b, &plan.a, &plan.c,
                                                               &plan.c, &preference, 1, &best, &found);
  const cublasStatus_t reason = status_of_search(status, found, best.state);
  if (epilogue.kind != Epilogue::Kind::none && reason == CUBLAS_STATUS_NOT_SUPPORTED) return nullptr;
  if (reason != CUBLAS_STATUS_SUCCESS) {
    fail(ErrorKind::internal,
         "cuBLASLt found no algorithm for {} x {} x {} (a {}, row stride {}; b {}, {}; c {}): {}. {}", key.m, key.n,
         key.k, key.transpose_a ? "transposed" : "as it is", key.a_stride, key.transpose_b ? "transposed" : "as it is",
         key.b_stride, key.c_stride, cublasLtGetStatusString(reason), cublas_advice(reason));
  }
  plan.algorithm = best.algo;
  return made;
}

/// c = 0 · c, or c as it is.
void multiply_nothing(const MatmulArgs& args, ProductSize size, cudaStream_t stream) {
  if (args.accumulate) return;
  const std::size_t element = size_of(args.c.dtype());
  CUDA_CHECK(cudaMemset2DAsync(args.c.data(), static_cast<std::size_t>(args.c.stride(0)) * element, 0,
                               static_cast<std::size_t>(size.n) * element, static_cast<std::size_t>(size.m), stream));
}

cudaDataType_t type_of(DType type) {
  switch (type) {
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

}  // namespace

struct MatmulLibrary::State {
  State(CudaDevice& device, std::size_t workspace_bytes)
      : stream(device.compute_stream()), workspace(device, workspace_bytes) {
    CUBLAS_CHECK(cublasLtCreate(&handle));
  }
  ~State() { (void)cublasLtDestroy(handle); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Plan* plan_of(const Key& key, const Epilogue& epilogue) {
    const auto known = plans.find(key);
    if (known != plans.end()) [[likely]]
      return known->second.get();
    return plans.emplace(key, make_plan(handle, key, epilogue, workspace.bytes())).first->second.get();
  }

  cudaStream_t stream;
  Buffer workspace;
  cublasLtHandle_t handle = nullptr;
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans;  // descriptors stay where they were made
};

MatmulLibrary::MatmulLibrary(CudaDevice& device)
    : state_(std::make_unique<State>(device, device.capability() >= 90 ? kHopperWorkspaceBytes : kWorkspaceBytes)) {}
MatmulLibrary::~MatmulLibrary() = default;

void MatmulLibrary::multiply(const MatmulArgs& args) {
  with_activation_type("matmul", args.a.dtype(), [](auto) {});
  const ProductSize size = product_size(args);
  if (size.k == 0) return multiply_nothing(args, size, state_->stream);
  (void)multiply(args, Epilogue{});
}

bool MatmulLibrary::multiply(const MatmulArgs& args, const Epilogue& epilogue) {
  const ProductSize size = product_size(args);
  Plan* plan = state_->plan_of({.m = size.m,
                                .n = size.n,
                                .k = size.k,
                                .a_stride = args.a.stride(0),
                                .b_stride = args.b.stride(0),
                                .c_stride = args.c.stride(0),
                                .a_alignment = alignment_of(args.a.data()),
                                .b_alignment = alignment_of(args.b.data()),
                                .c_alignment = alignment_of(args.c.data()),
                                .input = type_of(args.a.dtype()),
                                .output = type_of(args.c.dtype()),
                                .transpose_a = args.transpose_a,
                                .transpose_b = args.transpose_b,
                                .accumulate = args.accumulate,
                                .epilogue = epilogue_of(epilogue)},
                               epilogue);
  if (plan == nullptr) return false;
  set_places(*plan, epilogue);
  const float alpha = 1, beta = args.accumulate ? 1 : 0;
  CUBLAS_CHECK(cublasLtMatmul(state_->handle, &plan->product, &alpha, args.b.data(), &plan->b, args.a.data(), &plan->a,
                              &beta, args.c.data(), &plan->c, args.c.data(), &plan->c, &plan->algorithm,
                              state_->workspace.data(), state_->workspace.bytes(), state_->stream));
  return true;
}

}  // namespace megatron
