// Preloaded into a program, a library that adopts the user's locale for the whole process, as toolkits and plug-ins do.
#include <clocale>
#include <locale>
#include <stdexcept>

namespace {

struct Adopted {
  Adopted() {
    std::setlocale(LC_ALL, "");
    try {
      std::locale::global(std::locale(""));
    } catch (const std::runtime_error&) {  // not all of its categories are there
    }
  }
} adopted;

}  // namespace
