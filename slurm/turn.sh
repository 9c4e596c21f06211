#!/bin/bash
# One turn of a training job: starts the ranks, and decides what becomes of the job when they have ended. For batch
# scripts. Every line: slurm/README.md. Usage: slurm/turn.sh [SRUN_OPTION...] -- PROGRAM [ARGUMENT...]
set -uo pipefail

launch=(srun --mpi=pmix --kill-on-bad-exit=1 --wait=60)
while [[ ${1:---} != -- ]]; do
  launch+=("$1")
  shift
done
shift
if (($# < 2)); then
  echo "usage: sbatch slurm/train.sbatch INPUT.toml [--set key=value]..." >&2
  exit 2
fi
[[ -z ${SLURM_CPUS_PER_TASK:-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

echo "== job $SLURM_JOB_ID, restart ${SLURM_RESTART_COUNT:-0}, on $SLURM_JOB_NODELIST at $(date --iso-8601=seconds)"

config=$("${launch[@]}" --nodes=1 --ntasks=1 --ntasks-per-node=1 "$@" --print-config) || exit
directory=$(awk '/^\[/ { table = $1 } table == "[run]" && sub(/^directory = "/, "") { sub(/"$/, ""); print }' <<< "$config")

newest_step() {
  local folder newest=0
  for folder in "$directory"/checkpoints/step_*; do
    [[ $folder =~ /step_([0-9]+)$ ]] && ((10#${BASH_REMATCH[1]} > newest)) && newest=$((10#${BASH_REMATCH[1]}))
  done
  echo "$newest"
}

before=$(newest_step)
status=0
"${launch[@]}" "$@" || status=$?
after=$(newest_step)

# 75: stopped early, with a good checkpoint. 0: done. Everything else is an error that trying again will not cure.
((status == 75)) || exit "$status"
if [[ -e $directory/STOP ]]; then
  echo "== $directory/STOP is there: not requeued; remove it and submit again to go on"
elif ((after <= before)); then
  echo "== this turn gained no step ($before before, $after now): not requeued; the time limit must leave room for" \
    "starting, a step and a save"
elif [[ ${MEGATRON_REQUEUE:-yes} == no ]]; then
  echo "== stopped at step $after: another job goes on"
else
  echo "== stopped at step $after: back to the queue"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
