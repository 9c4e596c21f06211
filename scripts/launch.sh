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
#
# The ranks get every signal as SIGUSR1; the file MEGATRON_SIGNAL_FILE, made then, says which one it was.
# MEGATRON_TERMINAL is the number of columns of the terminal that shows their output; not set if there is none.
#
# A job that does not end well ends with one line of this script. Open MPI's own paragraphs about it are left out;
# everything else that it or the ranks print stays.
set -euo pipefail

if (($# < 2)) || ! [[ $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: scripts/launch.sh RANKS COMMAND [ARGUMENT...]" >&2
  exit 2
fi
ranks=$1
shift

mpirun=${MPIRUN:-mpirun}
if ! command -v -- "$mpirun" > /dev/null; then
  echo "launch: $mpirun: not found; install Open MPI (Debian: apt-get install openmpi-bin), load its module, or name an" \
    "mpirun in MPIRUN" >&2
  exit 127
fi
if ! command -v -- "$1" > /dev/null; then
  echo "launch: $1: no such program; build it first: make" >&2
  exit 127
fi

# Containers usually run everything as root; mpirun wants to be told twice that this is meant.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# A container's system-call filter may forbid one process to read another's memory, which Open MPI finds out only when
# it tries, message by message. With a filter and without the capability for it, go through shared memory instead.
filtered=$(awk '/^Seccomp:/ { print $2 }' /proc/self/status)
capabilities=$(awk '/^CapEff:/ { print $2 }' /proc/self/status)
if [[ ${filtered:-0} == 2 ]] && (((16#${capabilities:-0} >> 19 & 1) == 0)); then  # 19: CAP_SYS_PTRACE
  export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}
fi

# mpirun gives each rank a new terminal, so that they cannot see whether there is one.
unset MEGATRON_TERMINAL
if [[ -t 1 && -t 2 ]]; then
  size=$(stty size <&2 2> /dev/null || true)
  export MEGATRON_TERMINAL=${size#* }
  [[ $MEGATRON_TERMINAL =~ ^[1-9] ]] || MEGATRON_TERMINAL=80
fi

# Passes lines on, as they come, without what Open MPI says about ranks that have ended with an error.
without_mpi_paragraphs() {
  local line ruler='' dropping=no
  local first='^(Primary job +terminated normally, but|mpirun (detected|noticed) that |MPI_ABORT was invoked on rank )'
  local more='^(a non-zero exit code\. Per user-direction|the job to be terminated\. The first process to do so was:'
  more+='| +Process name: \[\[| +Exit code: +[0-9]+$|with errorcode -?[0-9]+\.$|NOTE: invoking MPI_ABORT causes'
  more+='|You may or may not see output from other|exactly when Open MPI kills them\.$|$)'
  trap '' INT TERM HUP USR1
  while IFS= read -r line; do
    if [[ $line =~ ^(.*)-{74}$ ]]; then
      if [[ $dropping == no && -n $ruler ]]; then printf '%s\n' "$ruler"; fi
      if [[ -n ${BASH_REMATCH[1]} ]]; then printf '%s\n' "${BASH_REMATCH[1]}"; fi  # last words without a line end
      # It may be the first line of a paragraph: the next one decides.
      if [[ $dropping == no ]]; then ruler=${line: -74}; else dropping=no; fi
      continue
    fi
    [[ $line =~ ^mpirun:\ Forwarding\ signal\ [0-9]+\ to\ job$ ]] && continue
    if [[ -n $ruler && $line =~ $first ]]; then
      ruler='' dropping=yes
      continue
    fi
    [[ -z $ruler ]] || printf '%s\n' "$ruler"
    ruler=''
    [[ $dropping == yes && $line =~ $more ]] || printf '%s\n' "$line"
  done
  [[ -z $ruler ]] || printf '%s\n' "$ruler"
  [[ -z $line ]] || printf '%s' "$line"
}

signals=0
job=
ended_by=
export MEGATRON_SIGNAL_FILE=${TMPDIR:-/tmp}/megatron_launch.$$.$RANDOM$RANDOM
trap 'rm -f "$MEGATRON_SIGNAL_FILE"' EXIT
stop() {  # EXIT_CODE SIGNAL
  signals=$((signals + 1))
  [[ -n $job ]] || exit "$1"
  if ((signals == 1)); then
    (set -o noclobber && echo "$2" > "$MEGATRON_SIGNAL_FILE") 2> /dev/null || true
    kill -USR1 "$job" 2> /dev/null || true
  else
    ended_by=$1
    kill -TERM "$job" 2> /dev/null || true
  fi
}
trap 'stop 130 SIGINT' INT
trap 'stop 143 SIGTERM' TERM
trap 'stop 129 SIGHUP' HUP
trap 'stop 138 SIGUSR1' USR1

# The last line, on how the job has ended. Exit codes: docs/reference.md.
last_words() {  # EXIT_CODE
  local kinds=([1]='a defect, or out of memory' [2]=configuration [3]=data [4]=checkpoint [5]=numerics [6]=communication
    [7]=filesystem)
  if (($1 == 75)); then
    echo "launch: the job stopped early and has a checkpoint (exit code 75); the same command continues it"
  elif [[ -n $ended_by ]]; then
    echo "launch: the job was ended by a second signal, without saving (exit code $1)"
  elif (($1 > 128 && $1 < 193)); then
    echo "launch: the job was ended by SIG$(kill -l $(($1 - 128))) (exit code $1)"
  else
    echo "launch: the job ended with exit code $1${kinds[$1]:+ (${kinds[$1]})}; the first error is above"
  fi
}

exec {errors}> >(without_mpi_paragraphs >&2)
filter=$!

# A program that answers requests reads them; another one must not take what a loop of the caller reads.
exec {input}< /dev/null
for word in "$@"; do
  if [[ $word == --serve-stdio ]]; then exec {input}<&0; fi
done

# --oversubscribe: more ranks than cores is fine (idle ranks then yield).  --bind-to none: no rank is pinned to a core
# that another job also uses.  set -m: a separate process group, so that a terminal's Ctrl-C comes here only.
set -m
"$mpirun" -np "$ranks" --oversubscribe --bind-to none "$@" <&"$input" 2>&"$errors" {errors}>&- &
job=$!
exec {errors}>&-

while true; do
  seen=$signals
  code=0
  wait -f "$job" || code=$?  # -f: to its end; a job that is only suspended has not ended
  ((seen == signals)) || continue  # a signal has ended the waiting, not the job
  ((code == 0 || code == 75)) || code=${ended_by:-$code}
  wait "$filter" 2> /dev/null || true  # all that was printed is out
  ((code == 0)) || last_words "$code" >&2
  exit "$code"
done
