#!/usr/bin/env bash
# Packs what was built, with the libraries it needs, for a GPU machine that has a driver and CUDA's libraries but none of
# the packages of scripts/setup.sh. Usage: scripts/pack_gpu.sh [FILE.tar.xz] (default: $BUILD/gpu_pack.tar.xz)
#
# There:  tar xf gpu_pack.tar.xz && cd gpu_pack && ./run scripts/gpu_test.sh      (./run COMMAND: with its libraries)
#         ./run ./megatron_bench --version     ./run build/tests/gpu/bench_cuda_ops gpt2_124m
# One rank, without mpirun. Build for the processor of that machine: make ARCH=x86-64-v3 CUDA=1.
# From the environment: BUILD (build).
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD:-build}
file=$(realpath -m "${1:-$build/gpu_pack.tar.xz}")
[[ -e $build/libmegatron_cuda.so ]] || { echo "pack: no CUDA backend in $build; make CUDA=1 builds it" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pack=$folder/gpu_pack
mkdir -p "$pack/build/tests/gpu" "$pack/lib/openmpi" "$pack/lib/pmix" "$pack/scripts"

cp "$build"/libmegatron_cuda.so "$pack/build/"
for program in "$build"/megatron_* "$build"/tests/gpu/{test_,bench_}*; do
  [[ -f $program && -x $program ]] || continue
  cp "$program" "$pack/${program/#$build/build}"
  strip --strip-debug "$pack/${program/#$build/build}"
done
for program in "$pack"/build/megatron_*; do
  [[ -f $program ]] && ln -s "build/$(basename "$program")" "$pack/"
done
cp scripts/gpu_test.sh scripts/bench_pytorch_gpu.py scripts/pytorch_gpt.py "$pack/scripts/"
cp -r inputs "$pack/"

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
echo "pack: $file, $(du -m "$file" | cut -f1) MiB ($(du -sm "$pack" | cut -f1) unpacked)"
