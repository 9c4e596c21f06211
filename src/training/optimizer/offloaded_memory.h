// OffloadedMemory: where the part of an optimizer's state lives that its device does not hold. Operations of the device
// follow pointers into it as into the device's own.
#pragma once

#include <cstdint>

#include "backend/tensor/tensor.h"

namespace megatron {

class OffloadedMemory {
 public:
  virtual ~OffloadedMemory() = default;
  /// All of it: zeros, aligned to 64 bytes at least.
  virtual std::byte* data() = 0;
  virtual std::size_t bytes() const = 0;
  /// The most elements that may be in use at a time; 0: any number.
  virtual std::int64_t elements_at_a_time() const { return 0; }
  /// Before the next operation reads these numbers, or, with `write`, reads and writes them. Throws Error(filesystem)
  /// where a disk fails.
  enum class Access { read, write };
  virtual void use(const Tensor& numbers, Access access) { (void)numbers, (void)access; }
  /// None are in use from here on.
  virtual void rest() {}
  /// An update is next; its first numbers may be read in the background until use().
  virtual void expect_update() {}
};

}  // namespace megatron
