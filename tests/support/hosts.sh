#!/usr/bin/env bash
# Runs COMMAND on the first of HOSTS hosts that this machine pretends to be: network namespaces with names of their own
# (node1, node2, ...) on one bridge, and MPIRUN, with which scripts/launch.sh starts RANKS ranks on each.
# Usage: tests/support/hosts.sh HOSTS RANKS CONTROL COMMAND...; hosts.sh --check: whether they can be made here.
#
# `touch CONTROL/cut_node2` takes that host's link down. Everything runs in a process namespace that ends with COMMAND,
# and all else with it; before that the script waits for the programs to end by themselves, and names those that do not.
set -euo pipefail

as_root=()
((EUID == 0)) || as_root=(--user --map-root-user)
isolated=(unshare "${as_root[@]}" --net --uts --mount --pid --fork --kill-child --mount-proc)

if [[ ${1:-} == --check ]]; then
  command -v ip nsenter unshare mpirun > /dev/null && [[ $(mpirun --version) == *'Open MPI) 4.'* ]] &&
    "${isolated[@]}" bash -c 'ip link add bridge0 type bridge && ip link add port1 type veth peer name eth0' 2> /dev/null
  exit
fi
if [[ $1 != --inside ]]; then
  folder=$(mktemp -d /tmp/hosts.XXXXXX)  # short: Open MPI's sockets are in it
  trap 'rm -rf "$folder"' EXIT
  TMPDIR=$folder "${isolated[@]}" "$0" --inside "$folder" "$@" || exit
  exit 0
fi

folder=$2 hosts=$3 ranks=$4 control=$5
shift 5
declare -a holders
in_host() {  # NUMBER COMMAND...
  nsenter --target "${holders[$1]}" --net --uts -- "${@:2}"
}
ip link set lo up
ip link add bridge0 type bridge
ip link set bridge0 up
list=
for ((host = 1; host <= hosts; ++host)); do
  unshare --net --uts sleep infinity &
  holders[host]=$!
  while [[ $(readlink "/proc/$!/ns/net") == "$(readlink /proc/self/ns/net)" || $(< "/proc/$!/comm") != sleep ]]; do
    sleep 0.02
  done
  ip link add "port$host" type veth peer name eth0 netns "$!"
  ip link set "port$host" master bridge0 up
  in_host "$host" bash -c "hostname node$host; ip link set lo up; ip address add 10.77.0.$host/24 dev eth0
    ip link set eth0 up"
  list+=${list:+,}node$host:$ranks
done

printf '#!/bin/bash\nholders=(0 %s)\nhost=${1#node}\nshift\n' "${holders[*]}" > "$folder/rsh"
printf 'exec nsenter --target "${holders[host]}" --net --uts -- bash -c "cd %q; $*"\n' "$PWD" >> "$folder/rsh"
printf '#!/bin/bash\nexec mpirun --host %s --mca plm_rsh_agent %s/rsh --mca btl tcp,self,vader %s "$@"\n' "$list" "$folder" \
  '--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca pml ob1' > "$folder/mpirun"
chmod +x "$folder/rsh" "$folder/mpirun"

while sleep 0.05; do
  for ((host = 1; host <= hosts; ++host)); do
    if [[ -e $control/cut_node$host ]]; then
      in_host "$host" ip link set eth0 down
      mv "$control/cut_node$host" "$control/was_cut_node$host"
    fi
  done
done &

code=0
in_host 1 env MPIRUN="$folder/mpirun" OMPI_MCA_mpi_yield_when_idle=1 "$@" || code=$?
for ((waited = 0; waited < 600; ++waited)); do
  left=$(ps -eo comm= | grep -E '^(megatron_|mpirun|orted)' || true)
  [[ -n $left ]] || exit "$code"
  sleep 0.1
done
echo "hosts: still there a minute after the end: ${left//$'\n'/, }" >&2
exit "$code"
