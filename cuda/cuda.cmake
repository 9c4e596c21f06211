# The CUDA backend: libmegatron_cuda.so, which lies beside the programs. Included by the top level's CMakeLists.txt when
# MEGATRON_CUDA is ON.
#
# Building needs the toolkit (nvcc, cudart, cuBLASLt), 12.0 or later, and no GPU. NCCL is used where it is found.
find_program(MEGATRON_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  if(NOT MEGATRON_NVCC)
    message(FATAL_ERROR "The CUDA backend needs nvcc of the CUDA toolkit, 12.0 or later, which is neither on the PATH nor "
                        "in /usr/local/cuda/bin. Install or load it (module load cuda), name it with CUDACXX=/some/where/"
                        "bin/nvcc in the environment, or build without a GPU: make CUDA=0.")
  endif()
  set(CMAKE_CUDA_COMPILER ${MEGATRON_NVCC})
endif()
# Machine code for the A100's and the H100's families, and PTX that drivers compile for what is later.
set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "Compute capabilities to build for, e.g. 90-real")
enable_language(CUDA)
find_package(CUDAToolkit 12.0 REQUIRED)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ENV NCCL_ROOT ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY nccl HINTS ENV NCCL_ROOT ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib lib64)

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cuda/*.cu ${CMAKE_SOURCE_DIR}/cuda/*.cpp)
list(FILTER cuda_sources EXCLUDE REGEX "/no_cuda\\.cpp$")
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, NCCL in ${NCCL_LIBRARY}")
  list(FILTER cuda_sources EXCLUDE REGEX "/no_nccl\\.cpp$")
else()
  message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}; no NCCL (NCCL_ROOT names another place)")
  list(FILTER cuda_sources EXCLUDE REGEX "/nccl_[a-z_]*\\.cpp$")
endif()

# The layers below are part of the library and of the programs; the loader makes their names one.
add_library(cuda_backend SHARED ${cuda_sources})
set_target_properties(cuda_backend PROPERTIES OUTPUT_NAME megatron_cuda CUDA_RUNTIME_LIBRARY Shared)
target_include_directories(cuda_backend PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(cuda_backend PUBLIC ops_layer comm_layer CUDA::cudart PRIVATE CUDA::cublasLt ${CMAKE_DL_LIBS})
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  target_include_directories(cuda_backend SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
  target_link_libraries(cuda_backend PRIVATE ${NCCL_LIBRARY})
endif()
target_compile_options(cuda_backend PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-DFMT_USE_CONSTEXPR=1;-Xcompiler=-Wall,-Wextra>")
if(MEGATRON_WARNINGS_AS_ERRORS)
  target_compile_options(cuda_backend PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()
