// A program whose processor check asks for what no CPU has. Says so if anything of it runs all the same.
#include <cstdio>

namespace {
struct Global {
  Global() { std::puts("a constructor ran"); }
} const global;
}  // namespace

int main() {
  std::puts("main ran");
  return 0;
}
