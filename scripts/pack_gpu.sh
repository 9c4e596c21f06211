#!/usr/bin/env bash
# Builds the programs with the CUDA backend, its tests and its benchmarks for any x86-64 processor with AVX2, and packs
# them with the libraries that they need: for a GPU machine with a driver and CUDA's libraries but none of the packages
# of scripts/setup.sh. Usage: scripts/pack_gpu.sh [FILE.tar.xz] (default: $BUILD/gpu_pack.tar.xz)
#
# There:  tar xf gpu_pack.tar.xz && cd gpu_pack && scripts/gpu_session.sh 550      (all of docs/gpu_validation.md)
#         ./run ./megatron_train --version      (./run COMMAND: with the pack's libraries. One rank, without mpirun)
# From the environment: BUILD (build-gpu), MEGATRON_ARCH (x86-64-v3), MEGATRON_GPUS (90-real, the H100's family;
# 80-real: A100's), JOBS, CMAKE_FLAGS, MOST_MIB (64): what the pack and the sources may have together, for machines that take no more.
set -euo pipefail
cd "$(dirname "$0")/.."

export BUILD=${BUILD:-build-gpu}
build=$BUILD
file=$(realpath -m "${1:-$build/gpu_pack.tar.xz}")
tests=(test_cuda_checks test_cuda_device test_cuda_ops test_nccl test_cuda_training bench_cuda_ops)
scripts=(gpu_session.sh gpu_test.sh gpu_parity.py gpu_report.py bench/bench_pytorch_gpu.py bench/pytorch_gpt.py)
programs=(src/programs/megatron_*.cpp)
programs=("${programs[@]##*/}")
programs=("${programs[@]%.cpp}")

MEGATRON_ARCH=${MEGATRON_ARCH:-x86-64-v3} MEGATRON_CUDA=1 \
  CMAKE_FLAGS="-DMEGATRON_LINKS=OFF -DCMAKE_CUDA_ARCHITECTURES=${MEGATRON_GPUS:-90-real} ${CMAKE_FLAGS:-}" \
  scripts/build.sh "${programs[@]}" "${tests[@]}"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pack=$folder/gpu_pack
mkdir -p "$pack/build/tests/gpu" "$pack/lib/openmpi" "$pack/lib/pmix" "$pack/scripts/bench"

cp "$build/libmegatron_cuda.so" "$pack/build/"
for program in "${programs[@]}" "${tests[@]/#/tests/gpu/}"; do
  [[ -x $build/$program ]] || { echo "pack: $build/$program is not there" >&2; exit 1; }
  cp "$build/$program" "$pack/build/$program"
  strip --strip-debug "$pack/build/$program"
done
for program in "${programs[@]}"; do ln -s "build/$program" "$pack/"; done
for script in "${scripts[@]}"; do cp "scripts/$script" "$pack/scripts/$script"; done
cp -r inputs "$pack/"
git describe --always --dirty >"$pack/commit" 2>/dev/null || echo unknown >"$pack/commit"

# Open MPI and PMIx load parts of themselves by name.
libraries=$(dirname "$(ldconfig -p | awk '/libmpi\.so/ { print $NF; exit }')")
cp -L "$libraries"/openmpi/lib/openmpi*/*.so "$pack/lib/openmpi/" 2>/dev/null || true
cp -L "$libraries"/pmix*/lib/pmix/*.so "$pack/lib/pmix/" 2>/dev/null || true

# Everything that they are linked with but what every Linux, or CUDA, has in its own versions.
leave='^(linux-vdso|ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libcuda|libcudart|libcublas|libcublasLt|libnccl|libmegatron_cuda)(-|\.|$)'
{ find "$pack" -type f \( -name '*.so*' -o -perm -u+x \) -exec ldd {} + 2>/dev/null || true; } |  # not of scripts
  awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
  while read -r name place; do
    [[ $name =~ $leave ]] || cp -L "$place" "$pack/lib/$name"
  done

cat >"$pack/run" <<'RUN'
#!/usr/bin/env bash
# Runs a command with the libraries of this folder, and CUDA's of this machine: those of the toolkit, else of Python's.
here=$(cd "$(dirname "$0")" && pwd)
cuda=$(ls -d "${CUDA_HOME:-/usr/local/cuda}"/lib64 2>/dev/null)
python=$(python3 -c 'import glob, site; print(":".join(glob.glob(site.getsitepackages()[0] + "/nvidia/*/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=$here/lib:$cuda:$python${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OMPI_MCA_mca_base_component_path=$here/lib/openmpi PMIX_MCA_mca_base_component_path=$here/lib/pmix
export OMPI_MCA_ess_singleton_isolated=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec "$@"
RUN
chmod +x "$pack/run"
tar -C "$folder" -cf - gpu_pack | xz -T0 -6 >"$file"

mebibytes() { awk '{ sum += $1 } END { printf "%d", sum / 1048576 + 1 }'; }
packed=$(stat -c %s "$file" | mebibytes)
sources=$(git ls-files -z 2>/dev/null | xargs -0r stat -c %s 2>/dev/null | mebibytes)
echo "pack: $file: ${#programs[@]} programs, ${#tests[@]} tests and benchmarks, $packed MiB ($(du -sm "$pack" | cut -f1) unpacked); with the sources $((packed + sources)) MiB"
((packed + sources <= ${MOST_MIB:-64})) ||
  { echo "pack: more than ${MOST_MIB:-64} MiB: build for fewer GPUs (GPUS=90-real), or raise MOST_MIB" >&2; exit 1; }
