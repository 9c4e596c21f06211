// The first thing every program does: a CPU that lacks instructions the program was compiled for, or a limit on the
// stack that is too small, gets a message and exit code 2, instead of dying of SIGILL or SIGSEGV somewhere later.
//
// Runs before all constructors, ours and the libraries' (.preinit_array), and is itself compiled for any x86-64. So it
// calls the kernel and nothing else: an inline function or template of the standard library could be merged with a copy
// that was compiled for the newer CPU. CMake says what was compiled for: MEGATRON_ARCH, the -march in words, and
// MEGATRON_FEATURES, the names below that it implies, separated by blanks.
#include <cpuid.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#ifdef __SSE3__
#error "this file must be compiled for any x86-64: with -march=x86-64"
#endif

namespace {

enum Register { eax, ebx, ecx, edx };

// State that the operating system must save for each task: vector registers of 32 and of 64 bytes, the second 16
// general ones.
constexpr unsigned kAvxState = 0x6, kAvx512State = 0xE6, kApxState = 0x80000;

struct Feature {
  const char* name;  // in lower case, the compiler's macro for it: sse4.1 is __SSE4_1__
  unsigned leaf, subleaf;
  Register where;
  int bit;
  unsigned state;
};

// CPUID, as in Intel's and AMD's manuals. Only what compilers use by themselves (a program built on
// AMD's runs on Intel's without sse4a).
constexpr Feature kFeatures[] = {
    {"sse3", 1, 0, ecx, 0, 0},
    {"ssse3", 1, 0, ecx, 9, 0},
    {"fma", 1, 0, ecx, 12, kAvxState},
    {"sse4.1", 1, 0, ecx, 19, 0},
    {"sse4.2", 1, 0, ecx, 20, 0},
    {"movbe", 1, 0, ecx, 22, 0},
    {"popcnt", 1, 0, ecx, 23, 0},
    {"avx", 1, 0, ecx, 28, kAvxState},
    {"f16c", 1, 0, ecx, 29, kAvxState},
    {"bmi", 7, 0, ebx, 3, 0},
    {"avx2", 7, 0, ebx, 5, kAvxState},
    {"bmi2", 7, 0, ebx, 8, 0},
    {"avx512f", 7, 0, ebx, 16, kAvx512State},
    {"avx512dq", 7, 0, ebx, 17, kAvx512State},
    {"avx512ifma", 7, 0, ebx, 21, kAvx512State},
    {"avx512cd", 7, 0, ebx, 28, kAvx512State},
    {"avx512bw", 7, 0, ebx, 30, kAvx512State},
    {"avx512vl", 7, 0, ebx, 31, kAvx512State},
    {"avx512vbmi", 7, 0, ecx, 1, kAvx512State},
    {"avx512vbmi2", 7, 0, ecx, 6, kAvx512State},
    {"gfni", 7, 0, ecx, 8, 0},
    {"avx512vnni", 7, 0, ecx, 11, kAvx512State},
    {"avx512bitalg", 7, 0, ecx, 12, kAvx512State},
    {"avx512vpopcntdq", 7, 0, ecx, 14, kAvx512State},
    {"avx512fp16", 7, 0, edx, 23, kAvx512State},
    {"avxvnni", 7, 1, eax, 4, kAvxState},
    {"avx512bf16", 7, 1, eax, 5, kAvx512State},
    {"avxifma", 7, 1, eax, 23, kAvxState},
    {"apx_f", 7, 1, edx, 21, kApxState},
    {"lzcnt", 0x80000001, 0, ecx, 5, 0},
    {"xop", 0x80000001, 0, ecx, 11, kAvxState},
    {"fma4", 0x80000001, 0, ecx, 16, kAvxState},
    {"tbm", 0x80000001, 0, ecx, 21, 0},
};

/// The states of a task that the operating system saves (XCR0).
unsigned saved_state() {
  unsigned registers[4] = {};
  __get_cpuid(1, &registers[eax], &registers[ebx], &registers[ecx], &registers[edx]);
  if ((registers[ecx] >> 27 & 1) == 0) return 0;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool present(const Feature& feature, unsigned state) {
  unsigned registers[4] = {};
  if (__get_cpuid_count(feature.leaf, feature.subleaf, &registers[eax], &registers[ebx], &registers[ecx],
                        &registers[edx]) == 0) {
    return false;
  }
  return (registers[feature.where] >> feature.bit & 1) != 0 && (state & feature.state) == feature.state;
}

/// Whether the list of words begins with this one.
bool begins_with(const char* list, const char* word) {
  while (*word != 0 && *list == *word) ++list, ++word;
  return *word == 0 && (*list == 0 || *list == ' ');
}

/// A word that is not in the table counts as missing: table and CMakeLists.txt have to agree.
bool present(const char* list, unsigned state) {
  for (const Feature& feature : kFeatures) {
    if (begins_with(list, feature.name)) return present(feature, state);
  }
  return false;
}

/// A text of bounded length, written in one piece so that those of several ranks do not mix.
struct Message {
  char text[2048];
  unsigned long size = 0;
  void add(const char* more) {
    while (*more != 0 && size < sizeof text) text[size++] = *more++;
  }
  void add_word(const char* more) {
    while (*more != 0 && *more != ' ' && size < sizeof text) text[size++] = *more++;
  }
};

/// Most ranks find the same: rank 0 says it at once, the others give it the time to end the job.
bool first_rank(char** environment) {
  // The closest launcher's word counts: under mpirun in a Slurm job all ranks of a node may share one SLURM_PROCID.
  constexpr const char* launchers[] = {"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "SLURM_PROCID="};
  for (const char* const launcher : launchers) {
    for (char** entry = environment; *entry != nullptr; ++entry) {
      const char *rank = launcher, *variable = *entry;
      while (*rank != 0 && *variable == *rank) ++variable, ++rank;
      if (*rank == 0) return variable[0] == '0';
    }
  }
  return true;
}

[[noreturn]] void refuse(const Message& message, char** environment) {
  if (!first_rank(environment)) {
    const timespec three_seconds{3, 0};
    nanosleep(&three_seconds, nullptr);
  }
  (void)!write(2, message.text, message.size);
  _exit(2);
}

void check_stack(int, char** arguments, char** environment) {
  constexpr rlim_t least = 1 << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= least) return;
  Message message;
  message.add("error: ");
  if (arguments[0] != nullptr) message.add(arguments[0]);
  message.add(" needs a stack of 1 MiB, and the limit here is lower: ulimit -s 8192\n");
  refuse(message, environment);
}

void check_processor(int, char** arguments, char** environment) {
  const unsigned state = saved_state();
  Message message;
  message.add("error: ");
  if (arguments[0] != nullptr) message.add(arguments[0]);
  message.add(" was built for other CPUs (ARCH=" MEGATRON_ARCH "); this one lacks");
  bool complete = true;
  for (const char* word = MEGATRON_FEATURES; *word != 0;) {
    if (!present(word, state)) {
      complete = false;
      message.add(" ");
      message.add_word(word);
    }
    while (*word != 0 && *word != ' ') ++word;
    while (*word == ' ') ++word;
  }
  if (complete) return;
  message.add(
      ".\nBuild it on the kind of machine that it will run on, or for all of them: make ARCH=x86-64-v3 (any CPU with "
      "AVX2), make ARCH=x86-64 (any at all)\n");
  refuse(message, environment);
}

using Check = void (*)(int, char**, char**);
[[gnu::section(".preinit_array"), gnu::used]] const Check kChecks[] = {check_stack, check_processor};

}  // namespace
