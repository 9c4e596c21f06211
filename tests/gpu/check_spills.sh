#!/usr/bin/env bash
# Registers that nvcc spills to memory in the attention kernels, as it reports them for the H100's family: none in the
# plain forms, at most 16 bytes in those with a bias of distances, 64 in the others (cuda/attention_problem.cuh, Form).
# Usage: check_spills.sh NVCC SOURCE
set -euo pipefail
nvcc=$1 source=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for file in attention_forward attention_backward_tiles; do
  "$nvcc" -std=c++20 -O3 -DNDEBUG -arch=sm_90 --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1 -I"$source" -I"$source/src" \
    -cubin -Xptxas -v -o "$folder/$file.cubin" "$source/cuda/$file.cu" 2>"$folder/$file.log" &
done
wait
for file in attention_forward attention_backward_tiles; do
  [[ -s $folder/$file.cubin ]] || { cat "$folder/$file.log" >&2; exit 1; }
done

# A mangled name has its form as "FormE0E" (plain), 1 (general), 2 (biased) or 3 (capped).
cat "$folder"/*.log | awk '
  /Compiling entry function/ { match($0, /FormE[0-9]E/); form = RSTART ? substr($0, RSTART + 5, 1) : ""; name = $0 }
  /bytes spill stores/ && form != "" {
    match($0, /[0-9]+ bytes spill stores/); bytes = substr($0, RSTART) + 0
    ++kernels[form]
    if (bytes > worst[form]) worst[form] = bytes
    most = form == 0 ? 0 : form == 2 ? 16 : 64
    if (bytes > most) { print bytes " bytes are spilled, " most " are allowed: " name; bad = 1 }
    form = ""
  }
  END {
    for (form = 0; form < 4; ++form) {
      printf "form %d: %d kernels, at most %d bytes spilled\n", form, kernels[form], worst[form]
      if (kernels[form] < 6) { print "too few kernels were found: has the report another form?"; bad = 1 }
    }
    exit bad
  }'
