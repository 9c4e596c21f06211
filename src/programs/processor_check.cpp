// The first thing every program does: a CPU that lacks instructions the program was compiled for, or a limit on the
// stack that is too small, gets a message and exit code 2, instead of dying of SIGILL or SIGSEGV somewhere later.
//
// Runs before our other constructors, and is itself compiled for any x86-64. So it calls functions of C alone: an
// inline function or template of C++ could be merged with a copy that was compiled for the newer CPU.
#include "programs/processor_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __SSE3__
#error "this file must be compiled for any x86-64: with -march=x86-64"
#endif

namespace {

/// Most ranks find the same: rank 0 says it at once, the others give it the time to end the job.
[[noreturn]] void refuse(const char* why) {
  // The closest launcher's word counts: under mpirun in a Slurm job all ranks of a node may share one SLURM_PROCID.
  const char* rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) rank = getenv("PMIX_RANK");
  if (rank == nullptr) rank = getenv("SLURM_PROCID");
  if (rank != nullptr && *rank != '0') sleep(3);
  fprintf(stderr, "error: %s %s\n", program_invocation_name, why);
  _exit(2);
}

[[gnu::constructor(101)]] void check_processor() {  // 101: before those without a number
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < 1 << 20) {
    refuse("needs a stack of 1 MiB, and the limit here is lower: ulimit -s 8192");
  }
#ifdef __x86_64__
  char missing[512] = "", why[1024];
  const bool* used = megatron::built_with;
  __builtin_cpu_init();
#define CHECK_FEATURE(NAME, MACRO) \
  if (*used++ && __builtin_cpu_supports(NAME) == 0) strcat(missing, " " NAME);
  MEGATRON_CPU_FEATURES(CHECK_FEATURE)
  if (*missing == 0) return;
  snprintf(why, sizeof why,
           "was built for other CPUs (ARCH=%s); this one lacks%s.\nBuild it on the kind of machine that it will run "
           "on, or for all of them: make ARCH=x86-64-v3 (any CPU with AVX2), make ARCH=x86-64 (any at all)",
           megatron::built_for, missing);
  refuse(why);
#endif
}

}  // namespace
