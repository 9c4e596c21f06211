#!/usr/bin/env bash
# Starts COMMAND on RANKS MPI ranks of this machine. Usage: scripts/launch.sh RANKS COMMAND [ARGUMENT...]
#
# The one place that knows Open MPI's flags for a laptop, a container or a CI machine. On a cluster use slurm/.
#
# Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 to this script all ask the ranks to save and stop (exit code 75); a second signal
# ends them (128 + its number, unless they had stopped by then). The script stays between the signals and the launcher
# because mpirun itself cannot wait: after SIGTERM, and after any rank's death, it sleeps without passing on output and
# then kills, for as long as odls_base_sigkill_timeout says, twice. Long enough for a save would mean minutes for every
# error.
set -euo pipefail

if (($# < 2)) || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: scripts/launch.sh RANKS COMMAND [ARGUMENT...]" >&2
  exit 2
fi
ranks=$1
shift

# Containers usually run everything as root; mpirun wants to be told twice that this is meant.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# A container's system-call filter may forbid one process to read another's memory, which Open MPI finds out only when
# it tries, message by message. With a filter and without the capability for it, go through shared memory instead.
filtered=$(awk '/^Seccomp:/ { print $2 }' /proc/self/status)
capabilities=$(awk '/^CapEff:/ { print $2 }' /proc/self/status)
if [[ ${filtered:-0} == 2 ]] && (((16#${capabilities:-0} >> 19 & 1) == 0)); then  # 19: CAP_SYS_PTRACE
  export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
fi

signals=0
job=
ended_by=
stop() {  # EXIT_CODE
  signals=$((signals + 1))
  [[ -n $job ]] || exit "$1"
  if ((signals == 1)); then
    kill -USR1 "$job" 2> /dev/null || true
  else
    ended_by=$1
    kill -TERM "$job" 2> /dev/null || true
  fi
}
trap 'stop 130' INT
trap 'stop 143' TERM
trap 'stop 129' HUP
trap 'stop 138' USR1

# --oversubscribe: more ranks than cores is fine (idle ranks then yield).  --bind-to none: nobody is pinned to a core
# that another job also uses.  set -m: a process group of its own, so that a terminal's Ctrl-C comes here only.
set -m
"${MPIRUN:-mpirun}" -np "$ranks" --oversubscribe --bind-to none "$@" < /dev/null &
job=$!

while true; do
  seen=$signals
  code=0
  wait -f "$job" || code=$?  # -f: to its end; a job that is only suspended has not ended
  ((seen == signals)) || continue  # a signal has ended the waiting, not the job
  ((code == 0 || code == 75)) && exit "$code"
  exit "${ended_by:-$code}"
done
