#!/bin/bash
# Submits a job JOBS times, each to start when the one before has ended: for sites that do not allow requeueing.
#   slurm/chain.sh 5 [SBATCH_OPTION...] slurm/train.sbatch inputs/demo.toml [--set key=value]...
# Those left over after the training is complete say "already complete" and end at once. Every line: slurm/README.md.
set -euo pipefail

if (($# < 3)) || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: slurm/chain.sh JOBS [SBATCH_OPTION...] slurm/train.sbatch INPUT.toml [--set key=value]..." >&2
  exit 2
fi
jobs=$1
shift

export MEGATRON_REQUEUE=no
before=()
for ((i = 1; i <= jobs; ++i)); do
  id=$(sbatch --parsable --no-requeue "${before[@]}" "$@")
  id=${id%%;*}
  before=("--dependency=afterany:$id")
  echo "$id"
done
