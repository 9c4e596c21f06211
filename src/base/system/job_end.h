// Ends processes of this host that do not end by themselves. An abort goes through the network, where it may get stuck:
// a launcher waits for daemons on hosts that are cut off, and a stopped rank takes no signal but SIGKILL.
#pragma once

#include <sys/types.h>

#include <vector>

namespace megatron {

/// Starts a child that outlives this process and has none of its files: once the last of `processes` is gone it ends;
/// after `seconds` it kills what is left of them. Processes of other programs than this one and its launcher must not
/// be among them.
void kill_later(const std::vector<pid_t>& processes, double seconds);

/// Leaves the code with which the job is aborted for scripts/launch.sh, whose mpirun may not live to return it: in the
/// file MEGATRON_ABORTED_FILE. The first rank's stays. Nothing without the script, or on another host than its own.
void leave_exit_code(int exit_code);

/// Whether the process runs the same file as this one: false where numbers of processes mean others (containers).
bool runs_this_program(pid_t process);

}  // namespace megatron
