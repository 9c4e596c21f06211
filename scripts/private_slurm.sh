#!/usr/bin/env bash
# A private Slurm on this machine: one controller, one node that pretends 8 CPUs, everything in one folder, to try
# job files out. Usage:
#   scripts/private_slurm.sh start [FOLDER]    then: export SLURM_CONF=FOLDER/slurm.conf; sbatch, squeue, scancel ...
#   scripts/private_slurm.sh stop [FOLDER]
#   scripts/private_slurm.sh run COMMAND...    in a new folder, for as long as COMMAND runs; ends with its exit code
# FOLDER: /tmp/private_slurm_USER by default; new or empty, since stop removes it with all that is in it; short, since
# sockets lie in it, and of the local disk.
# Needs slurmctld, slurmd and munged (Debian: slurm-wlm munge); ends with 77 and a reason where it cannot be.
#
# It touches nothing outside the folder: own configuration, ports, munge key and socket; a Slurm that is installed and
# running keeps running. It is for one user alone (root or not), without accounting, cgroups or binding to cores.
set -euo pipefail

readonly node_cpus=${NODE_CPUS:-8}

cannot() {
  echo "private_slurm: skipped: $*" >&2
  exit 77
}

listening() {  # whether something answers on a local port
  (: < "/dev/tcp/127.0.0.1/$1") 2> /dev/null
}

# Two neighbouring ports that no process listens on, below the range that the kernel hands out by itself.
free_ports() {
  local port attempt
  for attempt in {1..50}; do
    port=$((20000 + (RANDOM + attempt) % 10000))
    if ! listening "$port" && ! listening $((port + 1)); then
      echo "$port"
      return
    fi
  done
  cannot "no free ports between 20000 and 30000"
}

check_can_run() {
  local program
  for program in munged slurmctld slurmd srun sbatch scontrol; do
    command -v "$program" > /dev/null ||
      cannot "$program is not installed (Debian: apt install slurm-wlm munge)"
  done
}

write_configuration() {
  local port host user
  port=$(free_ports)
  host=$(hostname -s)
  user=$(id -un)
  # cred_expire: how long a credential lives, and how long a requeued job must wait; 120 seconds otherwise.
  # config_overrides: believe the CPUs below, not the machine. linuxproc: a step's processes are found by their parents.
  # KillWait, UnkillableStepTimeout: seconds from SIGTERM to SIGKILL, and to giving a node up.
  cat > "$folder/slurm.conf" << END
ClusterName=private
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=5,sched_interval=5,sched_min_interval=1000000
SlurmdParameters=config_overrides
ReturnToService=2
OverTimeLimit=0
KillWait=5
UnkillableStepTimeout=30
MinJobAge=3600
SwitchType=switch/none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$node_cpus RealMemory=65536 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
}

refuse() {
  echo "private_slurm: $*" >&2
  exit 1
}

# /tmp is shared by all users, and the default folder's name can be guessed.
check_own() {
  [[ -d $folder && ! -L ${folder%/} && -O $folder ]] || refuse "$folder is no folder of your own; name another"
}

# A folder that start has made: only such a one may be removed.
is_ours() {
  [[ -e $folder/munge.key ]] && grep -q '^ClusterName=private$' "$folder/slurm.conf" 2> /dev/null
}

# The daemons go into the background by themselves and leave their process numbers in the folder.
start() {
  check_can_run
  local contents
  # Made first and looked at then: no other job can slip another in between.
  [[ -e $folder || -L $folder ]] || (umask 077 && mkdir -p -- "$folder")
  check_own
  contents=$(ls -A -- "$folder")
  ! is_ours || refuse "$folder is in use; stop it first"
  [[ -z $contents ]] || refuse "$folder is not empty, and stop would remove it; name a new folder"
  chmod 700 -- "$folder"
  folder=$(cd -- "$folder" && pwd)
  ((${#folder} <= 80)) || cannot "$folder: too long a name for a socket in it"
  mkdir -p "$folder/state" "$folder/spool"
  trap 'stop' ERR
  (umask 077 && head -c 1024 /dev/urandom > "$folder/munge.key")
  write_configuration
  export SLURM_CONF=$folder/slurm.conf
  local log=$folder/start.log
  {
    munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
      --log-file="$folder/munged.log" --seed-file="$folder/munged.seed" &&
      slurmctld -f "$SLURM_CONF" && slurmd -f "$SLURM_CONF"
  } > "$log" 2>&1 || give_up "the daemons do not start: $(tail -n 3 "$log" | tr '\n' ' ')"
  local waited
  for ((waited = 0; waited < 300; ++waited)); do
    [[ $(sinfo --noheader --format=%t 2> /dev/null) == idle ]] && return
    sleep 0.1
  done
  give_up "the node does not come up: $(tail -q -n 2 "$folder"/slurm*.log | tr '\n' ' ')"
}

give_up() {
  stop
  cannot "$@"
}

# Ends the jobs, then the daemons, by their own process numbers, and removes the folder.
stop() {
  trap - ERR
  [[ -e $folder/slurm.conf ]] || refuse "nothing is running in $folder"
  check_own
  is_ours || refuse "$folder was not made by private_slurm.sh start: left as it is"
  export SLURM_CONF=$folder/slurm.conf
  local waited pid_file pid
  if timeout 5 scancel --full --signal=KILL --user="$(id -un)" 2> /dev/null; then
    timeout 5 scancel --user="$(id -un)" 2> /dev/null || true
    for ((waited = 0; waited < 100; ++waited)); do
      [[ -n $(timeout 5 squeue --noheader 2> /dev/null) ]] || break
      sleep 0.1
    done
  fi
  for pid_file in slurmd slurmctld munged; do
    [[ -r $folder/$pid_file.pid ]] || continue
    pid=$(< "$folder/$pid_file.pid")
    kill "$pid" 2> /dev/null || continue
    for ((waited = 0; waited < 100; ++waited)); do
      kill -0 "$pid" 2> /dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2> /dev/null || true
  done
  rm -rf "$folder"
}

end_run() {
  local code=$?
  trap - EXIT
  trap '' INT TERM HUP
  [[ -z $child ]] || kill "$child" 2> /dev/null || true
  ! is_ours || stop
  [[ -z $child ]] || wait "$child" || true
  rm -rf "$folder"
  exit "$code"
}

PATH=$PATH:/usr/sbin:/sbin
mode=${1:-}
shift || true
case $mode in
  start)
    folder=${1:-/tmp/private_slurm_$(id -un)}
    start
    echo "export SLURM_CONF=$folder/slurm.conf"
    ;;
  stop)
    folder=${1:-/tmp/private_slurm_$(id -un)}
    stop
    ;;
  run)
    (($# > 0)) || { echo "usage: scripts/private_slurm.sh run COMMAND..." >&2; exit 2; }
    folder=$(mktemp -d /tmp/slurm_XXXXXX)
    child=
    trap end_run EXIT
    trap 'exit 130' INT TERM HUP
    start
    "$@" &  # in the background of this script, which could not hear a signal before the end of a command in front
    child=$!
    code=0
    wait "$child" || code=$?
    child=
    exit "$code"
    ;;
  *)
    echo "usage: scripts/private_slurm.sh start [FOLDER] | stop [FOLDER] | run COMMAND..." >&2
    exit 2
    ;;
esac
