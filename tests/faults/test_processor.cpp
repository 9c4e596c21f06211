// Programs on a CPU that lacks what they were compiled for. The check is the programs' own, linked into a program that
// asks for all features it knows, among them xop, which no CPU has since 2017.
#include <map>
#include <sstream>

#include "faults/runs.h"
#include "support/catch.h"

TEST_CASE("a stack that is too small is refused with what to do") {
  for (const Command& program : {Command{train_program(), "--version"}, Command{checkpoint_program(), "--help"}}) {
    Command limited = {"bash", "-c", "ulimit -s 64; exec \"$@\"", "bash"};
    limited.insert(limited.end(), program.begin(), program.end());
    const Finished refused = run_command(limited, 10);
    INFO(refused.err);
    CHECK(refused.code == 2);
    CHECK(mentions(refused.err, "needs a stack of 1 MiB, and the limit here is lower: ulimit -s 8192"));
    limited[2] = "ulimit -s 1024; exec \"$@\"";
    CHECK(run_command(limited, 10).code == 0);
  }
}

#ifdef MEGATRON_NEVER_STARTS

namespace {

bool cpu_has(const std::string& flag) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags")) return (line + " ").find(" " + flag + " ") != std::string::npos;
  }
  return false;
}

void require_refusal(const Finished& finished) {
  INFO(finished.err);
  CHECK(finished.code == 2);
  CHECK(mentions(finished.err, "was built for other CPUs (ARCH=never)"));
  CHECK(mentions(finished.err, cpu_has("xop") ? " avx512f" : " xop"));
  CHECK(mentions(finished.err, "make ARCH=x86-64-v3"));
  CHECK(finished.out.find(" ran") == std::string::npos);
}

}  // namespace

TEST_CASE("processor: a wrong CPU is refused before the program's code runs") {
  require_refusal(run_command({MEGATRON_NEVER_STARTS}, 10));
}

TEST_CASE("the same under the launcher: its exit code, and one message") {
  const Finished finished = run_command(launched(3, {MEGATRON_NEVER_STARTS}), 30);
  require_refusal(finished);
  CHECK(finished.err.find("this one lacks") == finished.err.rfind("this one lacks"));
}

TEST_CASE("processor: finds all instructions that the kernel lists for this CPU") {
  const Finished finished = run_command({MEGATRON_NEVER_STARTS}, 10);
  INFO(finished.err);
  const std::string before = "this one lacks ", after = ".\nBuild it";
  const std::size_t first = finished.err.find(before), last = finished.err.find(after);
  REQUIRE((first != std::string::npos && last != std::string::npos));
  // Where Linux has another name than the compilers.
  const std::map<std::string, std::string> linux_names = {
      {"sse3", "pni"},
      {"sse4.1", "sse4_1"},
      {"sse4.2", "sse4_2"},
      {"bmi", "bmi1"},
      {"avx512vbmi2", "avx512_vbmi2"},
      {"avx512vnni", "avx512_vnni"},
      {"avx512bitalg", "avx512_bitalg"},
      {"avx512vpopcntdq", "avx512_vpopcntdq"},
      {"avx512bf16", "avx512_bf16"},
      {"avx512fp16", "avx512_fp16"},
      {"avxvnni", "avx_vnni"},
  };
  std::istringstream missing(finished.err.substr(first, last - first).substr(before.size() - 1));
  for (std::string name; missing >> name;) {
    CAPTURE(name);
    const auto other = linux_names.find(name);
    CHECK_FALSE(cpu_has(other == linux_names.end() ? name : other->second));
  }
}

#endif
