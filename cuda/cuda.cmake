# The CUDA backend's library, libmegatron_cuda.so, which lies next to the programs, and their loading of it. Included by
# the top level's CMakeLists.txt when MEGATRON_CUDA is ON.
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
list(FILTER cuda_sources EXCLUDE REGEX "/(no_cuda|load_library|working_memory)\\.cpp$")  # the programs'
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, NCCL in ${NCCL_LIBRARY}")
  list(FILTER cuda_sources EXCLUDE REGEX "/no_nccl\\.cpp$")
  # Compiled all the same, so that it goes with every change.
  add_library(no_nccl OBJECT ${CMAKE_SOURCE_DIR}/cuda/no_nccl.cpp)
  target_include_directories(no_nccl PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(no_nccl PRIVATE ops_layer comm_layer)
else()
  message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}; no NCCL (NCCL_ROOT names another place)")
  list(FILTER cuda_sources EXCLUDE REGEX "/nccl_[a-z_]*\\.cpp$")
endif()

# The layers below are the programs', who show their names to it: all of them, since a program may use less than it.
set(shown_layers core_layer tensor_layer ops_layer comm_layer)
add_library(megatron_cuda SHARED ${cuda_sources})
set_target_properties(megatron_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Shared)
target_compile_options(megatron_cuda PRIVATE ${without_build_path})
target_include_directories(megatron_cuda PUBLIC ${CMAKE_SOURCE_DIR})
with_build_name(megatron_cuda)
foreach(layer ${shown_layers})
  target_include_directories(megatron_cuda PRIVATE $<TARGET_PROPERTY:${layer},INTERFACE_INCLUDE_DIRECTORIES>)
endforeach()
target_link_libraries(megatron_cuda PUBLIC CUDA::cudart PRIVATE CUDA::cublasLt fmt::fmt)
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  target_include_directories(megatron_cuda SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
  target_link_libraries(megatron_cuda PRIVATE ${NCCL_LIBRARY})
endif()
target_compile_options(megatron_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-DFMT_USE_CONSTEXPR=1;-Xcompiler=-Wall,-Wextra>")
if(MEGATRON_WARNINGS_AS_ERRORS)
  target_compile_options(megatron_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Werror>")
endif()

target_sources(cuda_backend PRIVATE cuda/load_library.cpp)
with_build_name(cuda_backend)
target_compile_definitions(cuda_backend PRIVATE
  MEGATRON_NCCL=$<IF:$<AND:$<BOOL:${NCCL_INCLUDE_DIR}>,$<BOOL:${NCCL_LIBRARY}>>,true,false>)
target_link_libraries(cuda_backend PUBLIC ${CMAKE_DL_LIBS})
list(TRANSFORM shown_layers PREPEND "$<TARGET_FILE:" OUTPUT_VARIABLE shown_files)
list(TRANSFORM shown_files APPEND ">")
list(JOIN shown_files "," shown_files)
target_link_options(cuda_backend INTERFACE
  "LINKER:--export-dynamic,--whole-archive,${shown_files},--no-whole-archive")
