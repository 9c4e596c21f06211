// Who owns memory: Buffer (one allocation) and Arena (a bump allocator over one, or a sizing arena over none).
//
// Nothing is allocated inside a steady training step: arenas are sized by a dry run of the same code with a sizing
// arena, allocated once, and reset or rewound afterwards.
#pragma once

#include <cstddef>
#include <string>

#include "backend/tensor/tensor.h"

namespace megatron {

/// Where a Buffer's memory comes from: the host or a device.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least 64-byte aligned, contents undefined. Throws Error if there is not enough.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory, std::size_t bytes) noexcept = 0;
};

/// The host's ordinary memory. What is not touched does not become resident.
Allocator& host_memory();

/// Owns one allocation. Movable, not copyable. The allocator must outlive it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Allocator& allocator, std::size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// A contiguous tensor at `offset` bytes; it must fit.
  Tensor tensor(Shape shape, DType type, std::size_t offset = 0) const;

 private:
  Allocator* allocator_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A stack of named allocations in memory that a Buffer owns. Not thread-safe; one per user.
///
/// A sizing arena (default constructor) has no memory and no limit: its tensors must not be dereferenced, only its high
/// water is of interest. Both kinds round each allocation up to 64 bytes, so that they agree to the byte.
class Arena {
 public:
  explicit Arena(std::string name) : name_(std::move(name)) {}  ///< sizing
  Arena(std::string name, const Buffer& buffer);                ///< real; the buffer must outlive the arena

  /// `what` appears in the error when the arena is full (an internal error: arenas are sized by the same code).
  Tensor allocate(const char* what, Shape shape, DType type);

  std::size_t used() const { return used_; }
  std::size_t high_water() const { return high_water_; }
  bool sizing() const { return base_ == nullptr; }
  const std::string& name() const { return name_; }

  void rewind(std::size_t used);  ///< gives back everything allocated after used() was this
  void reset() { rewind(0); }

 private:
  std::string name_;
  std::byte* base_ = nullptr;
  std::size_t capacity_ = 0, used_ = 0, high_water_ = 0;
};

/// Rewinds an arena at the end of a scope: the lifetime of temporaries.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), used_(arena.used()) {}
  ~ArenaScope() { arena_.rewind(used_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  std::size_t used_;
};

}  // namespace megatron
