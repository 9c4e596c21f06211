#!/usr/bin/env bash
# Starts COMMAND on RANKS MPI ranks of this machine. Usage: scripts/launch.sh RANKS COMMAND [ARGUMENT...]
#
# The one place that knows Open MPI's flags for a laptop, a container or a CI machine. On a cluster use slurm/.
#
# Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 to this script all ask the ranks to save and stop (exit code 75); a second signal
# ends them (128 + its number). After they have saved and stopped, a second one is ignored, and a third ends them. The script stays between the signals and the launcher
# because mpirun itself cannot wait: after SIGTERM, and after any rank's death, it sleeps without passing on output and
# then kills, for as long as odls_base_sigkill_timeout says, twice. Long enough for a save would mean minutes for every
# error.
#
# The ranks get every signal as SIGUSR1; the file MEGATRON_SIGNAL_FILE, made then, says which one it was. Rank 0 keeps in
# MEGATRON_SAVED_FILE what is saved, in words. A rank that aborts the job leaves the exit code in MEGATRON_ABORTED_FILE,
# if it runs on this host. MEGATRON_TERMINAL is the number of columns of the terminal that shows their output; not set if there is none.
#
# A job that does not end well ends with one line of this script: which rank, on which host, by what, and from where the
# same command continues. It replaces Open MPI's own paragraphs; everything else that it or the ranks print stays.
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

# Keeps what Open MPI says about the end of the job, for last_words: the first fact of each kind.
keep() {  # KIND TEXT
  [[ -e $folder/$1 ]] || printf '%s\n' "$2" > "$folder/$1"
}

# Passes lines on, as they come, without what Open MPI says about ranks that have ended with an error.
without_mpi_paragraphs() {
  local line ruler='' dropping=no ended=
  local first='^(Primary job +terminated normally, but|(mpirun|prterun) (detected|noticed) that |MPI_ABORT was invoked on rank '
  first+='|prterun has exited due to process rank .* calling$'
  first+='|(ORTE|PRTE) has lost communication with a remote daemon)'
  local killed='^(mpirun|prterun) noticed that process rank ([0-9]+) with PID [0-9]+ on node ([^ ]+) exited on( signal ([0-9]+))?'
  local signalled='^signal ([0-9]+) '  # Open MPI 5 breaks the line there
  local lost='^  Remote daemon: .* on node ([^ ]+)$'
  local logged='^\[[^]]+\] .*(ORTE_ERROR_LOG|PMIX ERROR): (.*) in file (.*/)?([^/ ]+) at line [0-9]+$'
  local gathered='^\[[^]]+\] ([0-9]+ more process(es)? ha(s|ve) sent help message |Set MCA parameter "orte_base_help_agg)'
  # Reading another rank's memory fails like this where that rank is gone (errno 3): a consequence, not the cause.
  local gone='^\[[^]]+\] (Read|Wrote) -?[0-9]+, expected [0-9]+, errno = 3$'
  local more='^(a non-zero exit code\. Per user-direction|the job to be terminated\. The first process to do so was:'
  more+='| +Process name: \[| +Exit code: +[0-9]+$|with errorcode -?[0-9]+\.$|NOTE: invoking MPI_ABORT causes'
  more+='| +Proc: \[\[| +Errorcode: -?[0-9]+$|"abort"\. This may have caused other processes'
  more+='|terminated by signals sent by (mpirun|prterun) |thus causing the job to be terminated\. The first process'
  more+='|You may or may not see output from other|exactly when Open MPI kills them\.$'
  more+='|  (HNP daemon   |Remote daemon): |This is usually due to either a failure of the TCP network$'
  more+='|connection to the node, or possibly an internal|the daemon itself\. We cannot recover'
  more+='|therefore will terminate the job\.$|$)'
  trap '' INT TERM HUP USR1
  while IFS= read -r line; do
    if [[ $line =~ ^(.*)-{74}$ ]]; then
      if [[ $dropping == no && -n $ruler ]]; then printf '%s\n' "$ruler"; fi
      if [[ -n ${BASH_REMATCH[1]} ]]; then printf '%s\n' "${BASH_REMATCH[1]}"; fi  # last words without a line end
      # It may be the first line of a paragraph: the next one decides.
      if [[ $dropping == no ]]; then ruler=${line: -74}; else dropping=no; fi
      continue
    fi
    [[ $line =~ ^mpirun:\ Forwarding\ signal\ [0-9]+\ to\ job$ || $line =~ $gathered || $line =~ $gone ]] && continue
    if [[ $line =~ $logged ]]; then
      keep complaint "${BASH_REMATCH[2]} (${BASH_REMATCH[4]})"
      continue
    fi
    if [[ -n $ruler && $line =~ $first ]]; then
      ruler='' dropping=yes
      [[ $line == ORTE* || $line == PRTE* ]] || keep rank_ended yes
      ended=
      if [[ $line =~ $killed ]]; then
        ended="${BASH_REMATCH[*]:2:2}"
        [[ -z ${BASH_REMATCH[5]} ]] || keep killed "$ended ${BASH_REMATCH[5]}"
      fi
      continue
    fi
    if [[ $dropping == yes && -n $ended && $line =~ $signalled ]]; then
      keep killed "$ended ${BASH_REMATCH[1]}"
      ended=
      continue
    fi
    if [[ $dropping == yes && $line =~ $lost ]]; then keep lost "${BASH_REMATCH[1]}"; fi
    [[ -z $ruler ]] || printf '%s\n' "$ruler"
    ruler=''
    [[ $dropping == yes && $line =~ $more ]] || printf '%s\n' "$line"
  done
  [[ -z $ruler ]] || printf '%s\n' "$ruler"
  [[ -z $line ]] || printf '%s\n' "$line"  # a last line without an end, after which ours begin
}

folder=$(mktemp -d "${TMPDIR:-/tmp}/megatron_launch.XXXXXXXX")
trap 'rm -rf "$folder"' EXIT
export MEGATRON_SIGNAL_FILE=$folder/signal MEGATRON_SAVED_FILE=$folder/saved MEGATRON_ABORTED_FILE=$folder/aborted
# Processes that the system has ended for lack of memory, so far.
memory_kills() { awk '/^oom_kill / { print $2 }' /proc/vmstat 2> /dev/null || true; }
memory_kills_before=$(memory_kills)

signals=0
ignored=no
has_stopped() { [[ $(sed -n 2p "$MEGATRON_SAVED_FILE" 2> /dev/null) == stopped ]]; }
job=
ended_by=
stop() {  # EXIT_CODE SIGNAL
  signals=$((signals + 1))
  [[ -n $job ]] || exit "$1"
  if ((signals == 1)); then
    (set -o noclobber && echo "$2" > "$MEGATRON_SIGNAL_FILE") 2> /dev/null || true
    kill -USR1 "$job" 2> /dev/null || true
  elif ((signals > 2)) || ! has_stopped; then
    ended_by=$1
    kill -TERM "$job" 2> /dev/null || true
  else
    ignored=yes
  fi
}
trap 'stop 130 SIGINT' INT
trap 'stop 143 SIGTERM' TERM
trap 'stop 129 SIGHUP' HUP
trap 'stop 138 SIGUSR1' USR1

# The last line, on how the job has ended. Exit codes: docs/reference.md.
last_words() {  # EXIT_CODE
  local rank host signal by saved=
  [[ ! -s $MEGATRON_SAVED_FILE ]] || saved="; $(head -n 1 "$MEGATRON_SAVED_FILE")"
  local kinds=([1]='a defect, or out of memory' [2]=configuration [3]=data [4]=checkpoint [5]=numerics [6]=communication
    [7]=filesystem)
  if (($1 == 75)); then
    echo "launch: the job stopped early and has a checkpoint (exit code 75); the same command continues it"
  elif [[ -n $ended_by ]]; then
    echo "launch: the job was ended by a second signal, without saving (exit code $1)$saved"
  elif [[ -e $folder/killed ]]; then
    read -r rank host signal < "$folder/killed"
    by=SIG$(kill -l "$signal")
    if [[ $signal == 9 && $host == "$(hostname 2> /dev/null)" ]]; then  # of other hosts nothing is known here
      [[ $(memory_kills) == "$memory_kills_before" ]] && by+=', from outside' || by+=', by the system: out of memory'
    fi
    echo "launch: rank $rank on $host was ended by $by (exit code $1)$saved"
  elif [[ -e $folder/lost ]]; then
    echo "launch: the host $(< "$folder/lost") is lost: it, its network or Open MPI's daemon there is down" \
      "(exit code $1)$saved"
  elif [[ -e $folder/rank_ended ]] && (($1 > 128 && $1 < 193)); then  # Open MPI does not always say which rank
    echo "launch: a rank was ended by SIG$(kill -l $(($1 - 128))) (exit code $1)$saved"
  elif [[ -e $folder/rank_ended || -s $folder/aborted ]]; then
    case $1 in 1 | 6 | 7) ;; *) saved= ;; esac  # other errors come again
    echo "launch: the job ended with exit code $1${kinds[$1]:+ (${kinds[$1]})}; the first error is above$saved"
  elif (($1 >= 2 && $1 <= 7)); then
    echo "launch: the job ended with exit code $1 (${kinds[$1]}); the first error is above$saved"
  elif (($1 > 128 && $1 < 193)); then
    echo "launch: mpirun itself was ended by SIG$(kill -l $(($1 - 128))) (exit code $1)$saved"
  else
    echo "launch: Open MPI could not start the job, or has lost it (exit code $1)$(
      [[ ! -e $folder/complaint ]] || echo ": $(< "$folder/complaint")"); its own messages are above, if it gave any$saved"
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
# that another job also uses.  set -m: a separate process group, so that a terminal's Ctrl-C comes here only. Not for
# longer: with it, wait would return when the job is suspended. (wait -f would not, but bash 5.2 reads memory there that
# it has freed, and then may wait without end.)
set -m
"$mpirun" -np "$ranks" --oversubscribe --bind-to none "$@" <&"$input" 2>&"$errors" {errors}>&- &
job=$!
set +m
exec {errors}>&-

while true; do
  seen=$signals
  code=0
  { wait "$job" || code=$?; } 2> /dev/null  # bash would say "Killed" itself; stop() runs in here and cannot print
  [[ $ignored == no ]] || echo "launch: the run has saved and is ending; one more signal ends it at once" >&2
  ignored=no
  ((seen == signals)) || continue  # a signal has ended the waiting, not the job
  ((code == 0 || code == 75)) || code=${ended_by:-$code}
  wait "$filter" 2> /dev/null || true  # all that was printed is out
  # Open MPI may not live to return the code of an abort, or return another one.
  if [[ -s $folder/aborted && ! -e $folder/killed && ! -e $folder/lost && -z $ended_by ]]; then
    code=$(< "$folder/aborted")
  fi
  ((code == 0)) || last_words "$code" >&2
  exit "$code"
done
