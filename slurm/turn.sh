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
for argument; do
  if [[ $argument == --fresh ]]; then
    echo "== --fresh would start over in every turn of this job: name another run.directory instead" >&2
    exit 2
  fi
done
[[ -z ${SLURM_CPUS_PER_TASK:-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

echo "== job $SLURM_JOB_ID, restart ${SLURM_RESTART_COUNT:-0}, on $SLURM_JOB_NODELIST at $(date --iso-8601=seconds)"

config=$("${launch[@]}" --nodes=1 --ntasks=1 --ntasks-per-node=1 "$@" --print-config) || exit
directory=$(awk '/^\[/ { table = $1 } table == "[run]" && sub(/^directory = "/, "") { sub(/"$/, ""); print }' <<< "$config")
if [[ -z $directory || $directory == *\\* ]]; then
  echo "== run.directory = \"$directory\": under turn.sh a name without quotes, backslashes and control characters" >&2
  exit 2
fi

# Name and time of each complete checkpoint. That of step 0 is no progress.
checkpoints() {
  stat --format='%n %y' "$directory"/checkpoints/step_*/manifest.json 2> /dev/null | grep -v '/step_00000000/' |
    LC_ALL=C sort
}

before=$(checkpoints)
status=0
"${launch[@]}" "$@" || status=$?
gained=$(LC_ALL=C comm -13 <(echo "$before") <(checkpoints) | tail -n 1)
[[ $gained =~ /step_0*([0-9]+)/manifest.json\ [^/]*$ ]] && step=${BASH_REMATCH[1]}

# 75: stopped early, with a good checkpoint. 0: done. Everything else is an error: a mistake (2 to 5), which trying again
# does not cure, or a failure, after which a person may.
if ((status != 75)); then
  if ((status == 1 || status > 5)) && [[ $(checkpoints | tail -n 1) =~ /step_0*([0-9]+)/manifest ]]; then
    echo "== ended with exit code $status; step ${BASH_REMATCH[1]} is saved: submitted again, the job continues from it"
  fi
  exit "$status"
fi
if [[ -e $directory/STOP ]]; then
  echo "== $directory/STOP is there: not requeued; remove it and submit again to continue"
elif [[ -z $gained ]]; then
  echo "== this turn gained nothing, no step and no evaluation: not requeued; the time limit must leave room for" \
    "starting, a step and a save"
elif [[ ${MEGATRON_REQUEUE:-yes} == no ]]; then
  echo "== stopped at step $step: another job continues"
else
  echo "== stopped at step $step: back to the queue"  # said before: requeueing ends this script
  scontrol requeue "$SLURM_JOB_ID" ||
    echo "== scontrol requeue failed (see above): the job ends here; submit it again to continue"
fi
exit "$status"
