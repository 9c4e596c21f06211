#!/usr/bin/env bash
# Configures (once, when CMAKE_FLAGS is given, or for another MEGATRON_ARCH) and builds CMake targets.
# Usage: scripts/build.sh TARGET...
# From the environment: BUILD (folder, build), JOBS (default: cores, capped by memory), CMAKE_FLAGS, MEGATRON_ARCH, the
# CPU to build for (make ARCH=...; default: what this folder was configured for, at first the CPU it is built on), and
# MEGATRON_CUDA, 1 or 0: with or without the CUDA backend (make CUDA=...; default: what this folder was configured for,
# at first with it where a GPU is visible and nvcc is found).
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD:-build}
(($# > 0)) || { echo "build: no targets named" >&2; exit 1; }

# The largest files need about 1.5 GB to compile; /proc/meminfo does not know a container's limit, the cgroup does.
default_jobs() {
  local available limit
  available=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
    if [[ -r $limit ]] && [[ $(<"$limit") =~ ^[0-9]+$ ]]; then
      limit=$(awk '{ printf "%.0f", $1 / 1048576 }' "$limit")
      ((limit < available)) && available=$limit
      break
    fi
  done
  local jobs=$((available / 1500)) cores
  cores=$(nproc)
  ((jobs > cores)) && jobs=$cores
  ((jobs < 1)) && jobs=1
  echo "$jobs"
}

arch_flag=()
if [[ -n ${MEGATRON_ARCH:-} ]] && ! grep -qsxF "MEGATRON_ARCH:STRING=$MEGATRON_ARCH" "$build/CMakeCache.txt"; then
  arch_flag=("-DMEGATRON_ARCH:STRING=$MEGATRON_ARCH")
fi

# A folder whose first configuration failed has a cache, but nothing to build with.
configured=no
[[ -f $build/build.ninja || -f $build/Makefile ]] && configured=yes

gpu_is_visible() { [[ -e /dev/nvidia0 ]] || nvidia-smi --list-gpus >/dev/null 2>&1; }
nvcc_is_there() {  # 12.0 or later
  local nvcc=${CUDACXX:-${CUDA_HOME:-/usr/local/cuda}/bin/nvcc}
  [[ -x $nvcc ]] || nvcc=$(command -v nvcc) || return 1
  [[ $("$nvcc" --version) =~ release\ ([0-9]+)\. ]] && ((BASH_REMATCH[1] >= 12))
}

cuda=${MEGATRON_CUDA:-}
[[ $cuda =~ ^[01]?$ ]] || { echo "build: CUDA=$cuda: 1 or 0" >&2; exit 1; }
if [[ -z $cuda && $configured == no && ${CMAKE_FLAGS:-} != *MEGATRON_CUDA* ]] && gpu_is_visible; then
  if nvcc_is_there; then
    cuda=1
  else
    echo "build: a GPU is visible, but no nvcc 12.0 or later (PATH, CUDA_HOME, /usr/local/cuda): building for the CPU alone" >&2
  fi
fi
cuda_flag=()
wanted=$([[ $cuda == 1 ]] && echo ON || echo OFF)
if [[ -n $cuda ]] && ! grep -qsxF "MEGATRON_CUDA:BOOL=$wanted" "$build/CMakeCache.txt"; then
  cuda_flag=("-DMEGATRON_CUDA:BOOL=$wanted")
fi

if [[ $configured == no || -n ${CMAKE_FLAGS:-} || ${#arch_flag[@]} -gt 0 || ${#cuda_flag[@]} -gt 0 ]]; then
  generator=()
  if [[ $configured == no ]] && command -v ninja >/dev/null; then
    generator=(-G Ninja)
  fi
  # CMAKE_FLAGS is a list of words on purpose.
  # shellcheck disable=SC2086
  cmake -S . -B "$build" "${generator[@]}" ${CMAKE_FLAGS:-} "${arch_flag[@]}" "${cuda_flag[@]}"
fi
cmake --build "$build" --parallel "${JOBS:-$(default_jobs)}" --target "$@"
