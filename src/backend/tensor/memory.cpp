#include "backend/tensor/memory.h"

#include <new>
#include <utility>

#include "base/core/philox.h"

namespace megatron {

namespace {
constexpr std::size_t kAlignment = 64;
std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Sizing tensors get distinct non-null addresses in a terabyte of their arena's own, where nothing is mapped: "present"
// and "absent" stay apart, tensors of two arenas never seem to overlap, and a dereference faults at once.
std::byte* sizing_address(const std::string& arena, std::size_t offset) {
  return reinterpret_cast<std::byte*>((hash_name(arena) << 40 | std::uint64_t{1} << 63) + kAlignment + offset);
}
class HostMemory final : public Allocator {
 public:
  void* allocate(std::size_t bytes) override { return ::operator new (bytes, std::align_val_t{kAlignment}); }
  void deallocate(void* memory, std::size_t) noexcept override {
    ::operator delete (memory, std::align_val_t{kAlignment});
  }
};
}  // namespace

Allocator& host_memory() {
  static HostMemory memory;
  return memory;
}

Buffer::Buffer(Allocator& allocator, std::size_t bytes)
    : allocator_(&allocator), data_(static_cast<std::byte*>(allocator.allocate(bytes))), bytes_(bytes) {}

Buffer::Buffer(Buffer&& other) noexcept
    : allocator_(std::exchange(other.allocator_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) allocator_->deallocate(data_, bytes_);
}

Tensor Buffer::tensor(Shape shape, DType type, std::size_t offset) const {
  internal_check(offset + static_cast<std::size_t>(shape.elements()) * size_of(type) <= bytes_,
                 "tensor outside its buffer", offset, shape, bytes_);
  return {data_ + offset, shape, type};
}

Arena::Arena(std::string name, const Buffer& buffer)
    : name_(std::move(name)), base_(buffer.data()), capacity_(buffer.bytes()) {}

Tensor Arena::allocate(const char* what, Shape shape, DType type) {
  const std::size_t bytes = round_up(static_cast<std::size_t>(shape.elements()) * size_of(type));
  if (!sizing() && used_ + bytes > capacity_) {
    fail(ErrorKind::internal, "arena '{}' is full: '{}' {} needs {} bytes, {} of {} are used", name_, what,
         shape.to_string(), bytes, used_, capacity_);
  }
  std::byte* address = sizing() ? sizing_address(name_, used_) : base_ + used_;
  used_ += bytes;
  if (used_ > high_water_) high_water_ = used_;
  return {address, shape, type};
}

void Arena::rewind(std::size_t used) {
  internal_check(used <= used_, "arena rewound forward", used, used_);
  used_ = used;
}

}  // namespace megatron
