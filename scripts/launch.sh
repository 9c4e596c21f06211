#!/usr/bin/env bash
# Starts COMMAND on RANKS MPI ranks of this machine. Usage: scripts/launch.sh RANKS COMMAND [ARGUMENT...]
#
# The one place that knows Open MPI's flags for a laptop, a container or a CI machine. On a cluster use slurm/.
# The launcher replaces this shell, so signals sent to this process reach it: SIGUSR1 makes the trainer save and stop
# (exit code 75); SIGTERM and SIGINT do as well, but then the launcher itself returns 1.
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

# --oversubscribe: more ranks than cores is fine (idle ranks then yield).  --bind-to none: nobody is pinned to a core
# that another job also uses.  odls_base_sigkill_timeout: after SIGTERM or SIGINT the ranks get a minute to save before
# they are killed; Open MPI's own default is one second.
exec "${MPIRUN:-mpirun}" -np "$ranks" --oversubscribe --bind-to none --mca odls_base_sigkill_timeout 60 "$@"
