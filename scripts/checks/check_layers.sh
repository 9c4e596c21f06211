#!/usr/bin/env bash
# Checks that includes only point downward. Usage: scripts/checks/check_layers.sh [--self-test]
#
# Prints `file:line: what is wrong` for every violation and ends with 1 if there is one. The rules:
#   - src/FLOOR/LAYER includes its own headers and those of the layers named next to it below, nothing else of ours;
#   - our headers are included as "floor/layer/file.h", from src/ on (cuda/ files as "cuda/file.h");
#   - <mpi.h> in src/distributed/comm and in mains (tests/support, tests/*/main.cpp); <hdf5.h> in src/data/hdf5
#     and in tests, which damage files on purpose; CUDA's own in cuda/, and in tests/emulated_cuda, which has others;
#     CLD2's in src/data/cleaning/language.cpp;
#     Catch2's in tests/support/catch.h, whose names all tests use, as `Catch::` has other ones in each version.
# --self-test breaks every rule in a scratch tree and expects to be told so.
set -euo pipefail

# FLOOR/LAYER: the layers that it may include in addition to itself. `all` is for the top. All may include core.
layers='
base/core:
base/text:
base/system:         text
base/terminal:       system

backend/tensor:
backend/ops:         tensor
backend/cpu:         system tensor ops
cuda:                tensor ops comm

distributed/comm:     text system tensor
distributed/parallel: tensor ops comm
distributed/process:  text system ops comm

config/schema:       text
config/rules:        text schema
config/parse:        text schema rules

models/batch:        tensor
models/layers:       tensor ops comm parallel batch
models/attention:    tensor ops comm parallel batch layers
models/experts:      tensor ops comm parallel batch layers
models/families:     tensor ops comm parallel schema rules batch layers attention experts

data/unicode:        text
data/tokenizer:      text system unicode
data/tokenizer_kinds: text system unicode tokenizer
data/tokenizer_training: text unicode tokenizer tokenizer_kinds
data/evaluation_tasks:     text
data/finetuning:     text system evaluation_tasks
data/cleaning:       text unicode
data/duplicates:     text system tensor comm cleaning
data/hdf5:           system tensor
data/shards:         text system hdf5 tokenizer tokenizer_kinds
data/samples:        text system tensor batch tokenizer shards finetuning
data/preprocess:     text system comm tokenizer tokenizer_kinds shards samples
data/indexed:        text system shards preprocess
data/cleaning_steps: text system comm schema parse tokenizer tokenizer_kinds preprocess cleaning duplicates

checkpoint/store:       text system tensor ops comm parallel hdf5 tokenizer
checkpoint/safetensors: text system store
checkpoint/hugging_face: text system tensor schema rules parse tokenizer tokenizer_kinds shards samples store safetensors step datasets decoding

training/optimizer:   text tensor ops comm parallel schema parse store
training/pipeline:    tensor ops comm parallel schema rules batch layers families
training/diagnostics: system comm ops parallel store optimizer
training/datasets:    text system comm schema rules tokenizer tokenizer_kinds evaluation_tasks finetuning shards samples store
training/step:        text system tensor ops cpu comm parallel schema rules parse batch layers families tokenizer tokenizer_kinds evaluation_tasks finetuning shards samples store optimizer datasets pipeline diagnostics cuda
training/loop:        text system ops comm parallel process schema rules families tokenizer evaluation_tasks samples store optimizer diagnostics step datasets metrics reports dry_run

inference/decoding:    system batch tensor evaluation_tasks comm ops parallel schema rules parse layers families pipeline store step datasets
inference/generation: text system terminal tensor comm schema tokenizer tokenizer_kinds hdf5 finetuning samples store decoding

planning/dry_run:     text system comm ops parallel process schema rules families pipeline samples store optimizer step datasets metrics
planning/layout_search:      text system comm ops schema rules parse families pipeline step metrics dry_run
planning/new_input:   text system terminal schema rules parse shards step datasets dry_run layout_search
planning/bench:       text system batch comm ops process schema rules layers families pipeline step decoding dry_run layout_search

monitoring/plots:     text
monitoring/metrics:   text system terminal process store plots
monitoring/reports:   text system terminal process schema parse pipeline store plots metrics

programs:             all
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
        name = word[1]
        sub(/^.*\//, "", name)
        known[word[1]] = 1
        allowed[word[1], name] = allowed[word[1], "core"] = 1
        for (j = 2; j <= words; j++) if (word[j] != "") allowed[word[1], word[j]] = 1
      }
    }

    FNR == 1 {
      split(FILENAME, part, "/")
      layer = part[1]
      if (layer == "src") layer = part[2] == "programs" ? part[2] : part[2] "/" part[3]
      in_tests = layer == "tests"
      is_main = FILENAME ~ /^tests\/(support\/.*|.*\/main)\.(cpp|h)$/
      if (!in_tests && !(layer in known))
        report("layer " layer " is not in the table of scripts/checks/check_layers.sh: add it with what it may include")
    }

    /^[ \t]*#[ \t]*include[ \t]*["<]/ {
      ours = index($0, "\"") > 0 && (index($0, "<") == 0 || index($0, "\"") < index($0, "<"))
      header = $0
      sub(/^[^"<]*["<]/, "", header)
      sub(/[">].*$/, "", header)
      slash = match(header, /\/[^\/]*$/)
      target = slash ? substr(header, 1, slash - 1) : ""
      target_name = target
      sub(/^.*\//, "", target_name)

      if (header ~ /(^|\/)mpi\.h$/ && layer != "distributed/comm" && !is_main)
        report("<mpi.h> belongs to src/distributed/comm and to mains of tests; use distributed/comm/communicator.h")
      if (header ~ /(^|\/)(hdf5|hdf5_hl|H5[A-Za-z]*)\.h$/ && layer != "data/hdf5" && !in_tests)
        report("<" header "> belongs to src/data/hdf5; use its headers")
      if (header ~ /^cld2\// && FILENAME != "src/data/cleaning/language.cpp")
        report("<" header "> belongs to src/data/cleaning/language.cpp; use data/cleaning/language.h")
      if (header ~ /^catch2\// && FILENAME != "tests/support/catch.h")
        report("<" header "> belongs to tests/support/catch.h; include that")
      if (header ~ /^(cuda[A-Za-z_]*\.h|cuda_[a-z0-9_]+\.h|cublas.*\.h|cudnn.*\.h|nccl.*\.h|nvtx.*|nvToolsExt.*|curand.*|cub\/.*|thrust\/.*|cooperative_groups.*)$/ \
          && layer != "cuda" && FILENAME !~ /^tests\/emulated_cuda\//)
        report("<" header "> belongs to cuda/")

      if (header ~ /(^|\/)\.\.?\//)
        report("relative include \"" header "\": write it from src/ on, \"floor/layer/file.h\"")
      else if (ours && !slash && !in_tests)
        report("include \"" header "\" names no layer: write it from src/ on, \"floor/layer/file.h\"")
      else if (!in_tests && (target in known) && layer in known && !((layer, target_name) in allowed) && !((layer, "all") in allowed))
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
  mkdir -p "$root"/src/{base/core,backend/tensor,backend/ops,distributed/comm,models/layers,data/cleaning,data/hdf5,data/shards,data/extra,programs} \
    "$root"/cuda "$root"/tests/{comm,layers}
  printf '#pragma once\n#include <vector>\n' >"$root/src/base/core/error.h"
  printf '#include "base/core/error.h"\n#include "models/layers/linear.h"\n' >"$root/src/backend/tensor/upward.cpp"
  printf '#include "models/layers/linear.h"\n#include "distributed/parallel/parameter.h"\n#include "data/shards/shard.h"\n' \
    >"$root/src/models/layers/sideways.cpp"
  printf '#include <mpi.h>\n' >"$root/src/distributed/comm/allowed.cpp"
  printf '\n  #  include <mpi.h>\n' >"$root/src/models/layers/mpi.cpp"
  printf '#include <hdf5.h>\n' >"$root/src/data/hdf5/allowed.cpp"
  printf '#include <hdf5.h>\n' >"$root/src/data/shards/hdf5.cpp"
  printf '#include <cld2/public/compact_lang_det.h>\n' | tee "$root/src/data/cleaning/language.cpp" >"$root/src/data/cleaning/other.cpp"
  printf '#include <cuda_runtime.h>\n' >"$root/cuda/allowed.cu"
  printf '#include <cuda_runtime.h>\n#include "cuda/kernels.h"\n' >"$root/src/backend/ops/cuda.cpp"
  printf '#include "../base/error.h"\n#include "local.h"\n' >"$root/src/backend/ops/relative.cpp"
  printf '#include "base/core/error.h"\n' >"$root/src/data/extra/unknown.cpp"
  printf '#include "models/layers/linear.h"\n#include "data/shards/shard.h"\n' >"$root/src/programs/megatron_all.cpp"
  printf '#include <mpi.h>\n' >"$root/tests/comm/main.cpp"
  printf '#include "models/layers/linear.h"\n#include <mpi.h>\n' >"$root/tests/layers/linear.cpp"
  printf '#include <catch2/catch.hpp>\nusing Catch::Approx;\n' >"$root/tests/layers/catch.cpp"

  local status=0
  found=$(check "$root") || status=$?
  found=$(cut -d: -f1,2 <<<"$found")
  expected='src/backend/ops/cuda.cpp:1
src/backend/ops/cuda.cpp:2
src/backend/ops/relative.cpp:1
src/backend/ops/relative.cpp:2
src/backend/tensor/upward.cpp:2
src/data/cleaning/other.cpp:1
src/data/extra/unknown.cpp:1
src/data/shards/hdf5.cpp:1
src/models/layers/mpi.cpp:2
src/models/layers/sideways.cpp:3
tests/layers/catch.cpp:1
tests/layers/catch.cpp:2
tests/layers/linear.cpp:2'
  if [[ $found != "$expected" ]] || ((status != 1)); then
    echo "layers: the self-test failed with status $status; expected (<) and found (>):" >&2
    diff <(echo "$expected") <(echo "$found") >&2 || true
    return 1
  fi
  echo "layers: the self-test found every planted violation"
}

case "${1:-}" in
  --self-test) self_test ;;
  "") check "$(cd "$(dirname "$0")/../.." && pwd)" && echo "layers: all includes point downward" ;;
  *) echo "usage: scripts/checks/check_layers.sh [--self-test]" >&2; exit 2 ;;
esac
