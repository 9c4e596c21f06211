// The safetensors reader on a file of any bytes: whatever the header claims, only Error(checkpoint), and tensors that
// it lets through can be read to their last element.
#include "checkpoint/safetensors/safetensors.h"

#include "fuzz/fuzz.h"

using namespace megatron;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::ScratchFile scratch({reinterpret_cast<const char*>(data), size});
  fuzz::allow({ErrorKind::checkpoint}, [&] {
    const SafetensorsFile file(scratch.path());
    std::int64_t bytes = 0;
    for (const auto& [name, entry] : file.tensors()) {
      bytes += entry.bytes;
      const std::int64_t elements = entry.elements(), count = std::min<std::int64_t>(elements, 1 << 12);
      std::vector<float> numbers(static_cast<std::size_t>(count));
      fuzz::allow({ErrorKind::checkpoint}, [&, tensor = entry] {  // dtypes that cannot be read
        file.read(tensor, 0, numbers);
        file.read(tensor, elements - count, numbers);
      });
    }
    fuzz::require(bytes <= static_cast<std::int64_t>(size), "tensors larger than their file");
  });
  return 0;
}
