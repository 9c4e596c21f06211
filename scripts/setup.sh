#!/usr/bin/env bash
# Installs the packages that building and testing need. Usage: scripts/setup.sh [MORE_PACKAGE...]
#
# Debian and Ubuntu: apt, as root or through sudo, and only what is missing; silent when nothing is.
# Elsewhere: if the tools and libraries cannot be seen, says what to load or install, and ends with 1.
set -euo pipefail

packages=(g++ cmake ninja-build make openmpi-bin libopenmpi-dev libhdf5-dev libboost-program-options-dev
          catch2 libtomlplusplus-dev libfmt-dev nlohmann-json3-dev libdnnl-dev libxxhash-dev zlib1g-dev libbz2-dev
          libzstd-dev libcld2-dev libicu-dev strace "$@")

what_is_needed() {
  cat <<'TEXT'
This system has no apt, so nothing was installed. Needed: a C++20 compiler (GCC 12 or later), CMake 3.22 or later,
Ninja or make, Open MPI 4.1 or 5.0, HDF5 1.10 or later (C library, serial), Boost.Program_options, oneDNN, fmt 9 or
later, toml++ 3.3 or later, nlohmann-json 3.11, xxHash 0.8, zlib 1.2, bzip2 1.0, zstd 1.4; ICU 60 or later (without it
--split-sentences is refused); CLD2 (without it texts cannot be chosen by language); for the tests Catch2 2.13 or 3 and
strace (without it some are skipped).

  modules   module load gcc/12 cmake ninja openmpi/4.1 hdf5 boost onednn
            (the names differ between sites: `module avail`; the small libraries below usually come from Spack or conda)
  Spack     spack install gcc@12 cmake ninja openmpi@4.1 hdf5~mpi boost+program_options onednn fmt@9 tomlplusplus \
                          nlohmann-json xxhash zlib bzip2 zstd icu4c catch2@2.13.10   and then `spack load` the same list
  conda     conda create -n megatron -c conda-forge gxx_linux-64=12 cmake ninja make openmpi=4.1 hdf5 libboost-devel \
                          onednn fmt=9 tomlplusplus nlohmann_json xxhash zlib bzip2 zstd icu catch2=2.13 and then `conda activate megatron`

With libraries in unusual places: make CMAKE_FLAGS="-DCMAKE_PREFIX_PATH=/some/where;/else/where"
Then run the same make target again; SKIP_SETUP=1 leaves out this check.
TEXT
}

[[ "${SKIP_SETUP:-0}" == 1 ]] && exit 0

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  for tool in cmake mpicc mpirun; do
    if ! command -v "$tool" >/dev/null; then
      echo "setup: $tool is not on the PATH." >&2
      what_is_needed >&2
      exit 1
    fi
  done
  exit 0  # CMake names any library it cannot find
fi

# One dpkg-query for all: packages it does not know are simply absent from its output.
installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF "$package installed" <<<"$installed" || missing+=("$package")
done
((${#missing[@]} == 0)) && exit 0

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup: packages are missing, and this is neither root nor a machine with sudo. As root:" >&2
    echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends \
    "${missing[@]}" >"$log" 2>&1
}

# The package lists may be absent (fresh containers) or too old to find the files: refresh them only when it fails.
if ! install; then
  if ! "${as_root[@]}" apt-get update --quiet >"$log" 2>&1 || ! install; then
    cat "$log" >&2
    echo "setup: apt-get could not install: ${missing[*]} (its own words are above)" >&2
    exit 1
  fi
fi
