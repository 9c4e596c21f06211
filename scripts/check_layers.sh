#!/usr/bin/env bash
# Checks that includes only point downward. Usage: scripts/check_layers.sh [--self-test]
#
# Prints `file:line: what is wrong` for every violation and ends with 1 if there is one. The rules:
#   - src/LAYER includes its own headers and those of the layers named next to it below, nothing else of ours;
#   - our headers are included as "layer/file.h", from src/ on (cuda/ files also as "cuda/file.h");
#   - <mpi.h> in src/comm and in mains (tests/support, tests/*/main.cpp); <hdf5.h> in src/hdf5
#     and in tests, which damage files on purpose; CUDA's own in cuda/, and in tests/emulated_cuda, which has others;
#     libsentencepiece's in src/tokenizer/sentence_piece_library.cpp; Catch2's in tests/support/catch.h, whose names
#     all tests use, as `Catch::` has other ones in each version.
# --self-test breaks every rule in a scratch tree and expects to be told so.
set -euo pipefail

# layer: what it may include in addition to itself. `all` is for the top. All may include base.
layers='
base:
text:
system:      text
tensor:
batch:       tensor
ops:         tensor
cpu:         system tensor ops
comm:        text system tensor
parallel:    tensor ops comm
config:      text
nn:          tensor batch ops comm parallel
model:       tensor batch ops comm parallel nn config
pipeline:    tensor batch ops comm parallel nn model config
optim:       tensor ops comm parallel
characters:  text
tokenizer:   text system characters
tokenizer_training: text characters tokenizer
evaluation:  text
examples:    text system evaluation
hdf5:        system tensor
data:        text system tensor batch tokenizer hdf5 examples
preprocess:  text system tokenizer data
checkpoint:  text system tensor ops comm parallel hdf5 tokenizer
formats:     text system data preprocess checkpoint
plots:       text
job:         text system ops comm
diagnostics: system comm ops optim parallel checkpoint
monitor:     text system job checkpoint plots
train:       text system tensor batch ops cpu comm parallel config nn model pipeline optim tokenizer evaluation examples data checkpoint diagnostics cuda
inference:   system batch tensor evaluation comm ops parallel config nn model pipeline checkpoint train
interop:     system tensor config tokenizer data checkpoint formats train inference
generation:  text system tensor comm config tokenizer hdf5 examples data checkpoint inference
plan:        text system comm ops config model pipeline data checkpoint job monitor train
report:      text system config pipeline checkpoint job plots monitor
planner:     text system comm config ops model pipeline monitor train plan
wizard:      text system config data train plan planner generation
run:         text system ops comm config model tokenizer evaluation data checkpoint diagnostics job monitor report train plan
bench:       text system batch comm ops config nn model pipeline job train inference plan planner
programs:    all
cuda:        tensor ops comm
'

# check ROOT: prints the violations below ROOT, ends with 1 if there are any.
check() {
  local root=$1 files
  files=$(cd "$root" && find src cuda tests -type f \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.c' \) 2>/dev/null | LC_ALL=C sort)
  [[ -n $files ]] || { echo "layers: no sources below $root" >&2; return 2; }
  # shellcheck disable=SC2086
  (cd "$root" && awk -v table="$layers" '
    function report(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; violations++ }

    BEGIN {
      rows = split(table, row, "\n")
      for (i = 1; i <= rows; i++) {
        words = split(row[i], word, /[: ]+/)
        if (word[1] == "") continue
        known[word[1]] = 1
        allowed[word[1], word[1]] = allowed[word[1], "base"] = 1
        for (j = 2; j <= words; j++) if (word[j] != "") allowed[word[1], word[j]] = 1
      }
    }

    FNR == 1 {
      split(FILENAME, part, "/")
      layer = part[1] == "src" ? part[2] : part[1]
      in_tests = layer == "tests"
      is_main = FILENAME ~ /^tests\/(support\/.*|.*\/main)\.(cpp|h)$/
      if (!in_tests && !(layer in known))
        report("layer " layer " is not in the table of scripts/check_layers.sh: add it with what it may include")
    }

    /^[ \t]*#[ \t]*include[ \t]*["<]/ {
      ours = index($0, "\"") > 0 && (index($0, "<") == 0 || index($0, "\"") < index($0, "<"))
      header = $0
      sub(/^[^"<]*["<]/, "", header)
      sub(/[">].*$/, "", header)
      slash = index(header, "/")
      target = slash ? substr(header, 1, slash - 1) : ""

      if (header ~ /(^|\/)mpi\.h$/ && layer != "comm" && !is_main)
        report("<mpi.h> belongs to src/comm and to mains of tests; use comm/communicator.h")
      if (header ~ /(^|\/)(hdf5|hdf5_hl|H5[A-Za-z]*)\.h$/ && layer != "hdf5" && !in_tests)
        report("<" header "> belongs to src/hdf5; use its headers")
      if (header ~ /^sentencepiece_[a-z]*\.h$/ && FILENAME != "src/tokenizer/sentence_piece_library.cpp")
        report("<" header "> belongs to src/tokenizer/sentence_piece_library.cpp")
      if (header ~ /^catch2\// && FILENAME != "tests/support/catch.h")
        report("<" header "> belongs to tests/support/catch.h; include that")
      if (header ~ /^(cuda[A-Za-z_]*\.h|cuda_[a-z0-9_]+\.h|cublas.*\.h|cudnn.*\.h|nccl.*\.h|nvtx.*|nvToolsExt.*|curand.*|cub\/.*|thrust\/.*|cooperative_groups.*)$/ \
          && layer != "cuda" && FILENAME !~ /^tests\/emulated_cuda\//)
        report("<" header "> belongs to cuda/")

      if (header ~ /(^|\/)\.\.?\//)
        report("relative include \"" header "\": write it from src/ on, \"layer/file.h\"")
      else if (ours && !slash && !in_tests)
        report("include \"" header "\" names no layer: write it from src/ on, \"layer/file.h\"")
      else if (!in_tests && (target in known) && layer in known && !((layer, target) in allowed) && !((layer, "all") in allowed))
        report(layer " may not include " target " (\"" header "\")")
    }

    /(^|[^A-Za-z0-9_:])Catch::/ && !is_main { report("Catch:: belongs to tests/support/catch.h; use its names") }

    END { exit violations > 0 }
  ' $files)
}

# self_test: a scratch tree with one violation of each rule, and one file without.
self_test() {
  local root found expected
  root=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$root'" EXIT
  mkdir -p "$root"/src/{base,tensor,comm,nn,ops,hdf5,data,extra,programs} "$root"/cuda "$root"/tests/{comm,nn}
  printf '#pragma once\n#include <vector>\n' >"$root/src/base/error.h"
  printf '#include "base/error.h"\n#include "nn/linear.h"\n' >"$root/src/tensor/upward.cpp"
  printf '#include "nn/linear.h"\n#include "parallel/parameter.h"\n#include "data/shard.h"\n' >"$root/src/nn/sideways.cpp"
  printf '#include <mpi.h>\n' >"$root/src/comm/allowed.cpp"
  printf '\n  #  include <mpi.h>\n' >"$root/src/nn/mpi.cpp"
  printf '#include <hdf5.h>\n' >"$root/src/hdf5/allowed.cpp"
  printf '#include <hdf5.h>\n' >"$root/src/data/hdf5.cpp"
  printf '#include <sentencepiece_processor.h>\n' >"$root/src/data/pieces.cpp"
  printf '#include <cuda_runtime.h>\n' >"$root/cuda/allowed.cu"
  printf '#include <cuda_runtime.h>\n#include "cuda/kernels.h"\n' >"$root/src/ops/cuda.cpp"
  printf '#include "../base/error.h"\n#include "local.h"\n' >"$root/src/ops/relative.cpp"
  printf '#include "base/error.h"\n' >"$root/src/extra/unknown.cpp"
  printf '#include "nn/linear.h"\n#include "data/shard.h"\n' >"$root/src/programs/megatron_all.cpp"
  printf '#include <mpi.h>\n' >"$root/tests/comm/main.cpp"
  printf '#include "nn/linear.h"\n#include <mpi.h>\n' >"$root/tests/nn/linear.cpp"
  printf '#include <catch2/catch.hpp>\nusing Catch::Approx;\n' >"$root/tests/nn/catch.cpp"

  local status=0
  found=$(check "$root") || status=$?
  found=$(cut -d: -f1,2 <<<"$found")
  expected='src/data/hdf5.cpp:1
src/data/pieces.cpp:1
src/extra/unknown.cpp:1
src/nn/mpi.cpp:2
src/nn/sideways.cpp:3
src/ops/cuda.cpp:1
src/ops/cuda.cpp:2
src/ops/relative.cpp:1
src/ops/relative.cpp:2
src/tensor/upward.cpp:2
tests/nn/catch.cpp:1
tests/nn/catch.cpp:2
tests/nn/linear.cpp:2'
  if [[ $found != "$expected" ]] || ((status != 1)); then
    echo "layers: the self-test failed with status $status; expected (<) and found (>):" >&2
    diff <(echo "$expected") <(echo "$found") >&2 || true
    return 1
  fi
  echo "layers: the self-test found every planted violation"
}

case "${1:-}" in
  --self-test) self_test ;;
  "") check "$(cd "$(dirname "$0")/.." && pwd)" && echo "layers: all includes point downward" ;;
  *) echo "usage: scripts/check_layers.sh [--self-test]" >&2; exit 2 ;;
esac
