// Preloaded into a program, a look at its log when a checkpoint's folder is about to get its name: a line "NAME said"
// or "NAME unsaid" in the file $MEGATRON_WATCHED_OUT, by whether $MEGATRON_WATCHED_LOG has the line "saved NAME".
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int rename(const char* from, const char* to) noexcept {
  using Rename = int (*)(const char*, const char*);
  static const auto real = reinterpret_cast<Rename>(::dlsym(RTLD_NEXT, "rename"));
  const char *const log = std::getenv("MEGATRON_WATCHED_LOG"), *const out = std::getenv("MEGATRON_WATCHED_OUT");
  if (log != nullptr && out != nullptr && std::strstr(from, "/.tmp_step_") != nullptr) {
    std::ifstream file(log);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const bool said = text.find(std::string("saved ") + to) != std::string::npos;
    std::ofstream(out, std::ios::app) << to << (said ? " said" : " unsaid") << '\n';
  }
  return real(from, to);
}
