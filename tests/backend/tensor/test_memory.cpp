#include "backend/tensor/memory.h"
#include "support/catch.h"

#include <cstdlib>
#include <utility>

using namespace megatron;

namespace {

class CountingAllocator final : public Allocator {
 public:
  void* allocate(std::size_t bytes) override {
    live_bytes += bytes;
    return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  void deallocate(void* memory, std::size_t bytes) noexcept override {
    live_bytes -= bytes;
    std::free(memory);
  }
  std::size_t live_bytes = 0;
};

/// Uses an arena as a step might: nested scopes, odd sizes, several types.
void play(Arena& arena) {
  (void)arena.allocate("hidden", {3, 5, 7}, DType::f32);
  {
    ArenaScope scope(arena);
    (void)arena.allocate("scores", {1, 1000}, DType::f64);
    (void)arena.allocate("mask", {33}, DType::u8);
  }
  (void)arena.allocate("ids", {1}, DType::i32);
  (void)arena.allocate("nothing", {0, 4}, DType::f32);
}

}  // namespace

TEST_CASE("a buffer frees what it owns, once, and moves") {
  CountingAllocator allocator;
  {
    Buffer a(allocator, 1000);
    CHECK(allocator.live_bytes == 1000);
    Buffer b = std::move(a);
    CHECK(b.bytes() == 1000);
    CHECK(a.data() == nullptr);
    Buffer c(allocator, 24);
    c = std::move(b);
    CHECK(c.bytes() == 1000);
  }
  CHECK(allocator.live_bytes == 0);
}

TEST_CASE("tensors outside their buffer are refused") {
  CountingAllocator allocator;
  const Buffer buffer(allocator, 64);
  CHECK(buffer.tensor({8}, DType::f32, 32).data() == buffer.data() + 32);
  CHECK_THROWS_AS(buffer.tensor({9}, DType::f32, 32), Error);
}

TEST_CASE("a sizing arena predicts the real one to the byte") {
  Arena sizing("step");
  play(sizing);
  CHECK(sizing.sizing());

  CountingAllocator allocator;
  const Buffer buffer(allocator, sizing.high_water());
  Arena real("step", buffer);
  CHECK_FALSE(real.sizing());
  play(real);
  CHECK(real.used() == sizing.used());
  CHECK(real.high_water() == sizing.high_water());
  CHECK(real.high_water() == 448 + 8000 + 64);
  CHECK(real.used() == 448 + 64);
}

TEST_CASE("an allocation that does not fit names arena, tensor and sizes") {
  CountingAllocator allocator;
  const Buffer buffer(allocator, 128);
  Arena arena("slot 3", buffer);
  (void)arena.allocate("first", {16}, DType::f32);
  CHECK_NOTHROW(arena.allocate("second", {16}, DType::f32));
  CHECK_THROWS_WITH(arena.allocate("third", {2, 8}, DType::f32),
                    Contains("slot 3") && Contains("third") && Contains("[2, 8]") && Contains("128"));
}

TEST_CASE("memory given back is given out again") {
  CountingAllocator allocator;
  const Buffer buffer(allocator, 256);
  Arena arena("scratch", buffer);
  const Tensor kept = arena.allocate("kept", {16}, DType::f32);
  const std::size_t mark = arena.used();
  const Tensor first = arena.allocate("first", {16}, DType::f32);
  arena.rewind(mark);
  const Tensor second = arena.allocate("second", {16}, DType::f32);
  CHECK(first.data() == second.data());
  CHECK(second.data() != kept.data());
  CHECK(arena.high_water() == 128);
  CHECK_THROWS_AS(arena.rewind(1000), Error);
  arena.reset();
  CHECK(arena.used() == 0);
  CHECK(arena.high_water() == 128);
}

TEST_CASE("tensors of a sizing arena are present, and distinct") {
  Arena arena("dry");
  const Tensor a = arena.allocate("a", {4}, DType::f32), b = arena.allocate("b", {4}, DType::f32);
  CHECK_FALSE(a.empty());
  CHECK(a.data() != b.data());
}
