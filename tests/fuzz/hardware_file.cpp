// Hardware files: refused with all that is wrong, or a machine whose text is read as the same machine.
#include "fuzz/fuzz.h"
#include "planning/layout_search/hardware.h"

using namespace megatron;

#ifdef MEGATRON_FUZZ_PARTS
namespace megatron {

// The program's list belongs to its planner.
const std::vector<ShippedFile>& shipped_hardware() {
  static const std::vector<ShippedFile> none;
  return none;
}

}  // namespace megatron
#endif

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::allow({ErrorKind::configuration}, [&] {
    const Hardware hardware = parse_hardware(text, "file.toml");
    const std::string printed = print_hardware(hardware, "a comment");
    fuzz::require(print_hardware(parse_hardware(printed, "printed.toml"), "a comment") == printed,
                  "what is printed is not read as what it was printed from");
  });
  return 0;
}
