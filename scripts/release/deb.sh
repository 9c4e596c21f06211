#!/usr/bin/env bash
# Builds the Debian package: the programs without the CUDA backend and without tests, into build-deb/.
# Usage: scripts/release/deb.sh      From the environment: MEGATRON_ARCH (x86-64-v3), JOBS, CMAKE_FLAGS.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v dpkg-shlibdeps > /dev/null ||
  { echo "deb: a Debian package is made on Debian or Ubuntu; dpkg-shlibdeps (dpkg-dev) is not here" >&2; exit 1; }
command -v help2man > /dev/null || echo "deb: without manual pages of the programs: help2man is not here"
build="build-deb"
machine=$(uname -m)
arch=${MEGATRON_ARCH:-}
[[ -n $arch ]] || { [[ $machine == x86_64 ]] && arch=x86-64-v3 || arch=native; }
programs=(src/programs/megatron_*.cpp)
programs=("${programs[@]##*/}")

BUILD=$build MEGATRON_ARCH=$arch MEGATRON_CUDA=0 CMAKE_FLAGS="-DMEGATRON_TESTS=OFF -DMEGATRON_LINKS=OFF ${CMAKE_FLAGS:-}" \
  scripts/build.sh "${programs[@]%.cpp}"
rm -f "$build"/*.deb
(cd "$build" && cpack -G DEB > cpack.log) || { cat "$build/cpack.log" >&2; exit 1; }
for package in "$build"/*.deb; do
  echo "deb: $package, $(du -k "$package" | cut -f1) KiB; needs $(dpkg-deb -f "$package" Depends)"
  echo "deb: for processors with all of $arch; install it with: apt-get install ./$package"
done
