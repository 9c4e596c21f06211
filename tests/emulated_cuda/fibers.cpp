#include "fibers.h"

#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#if !defined(__x86_64__)
#error "fibers are switched by a few x86-64 instructions; build with -DMEGATRON_EMULATED_CUDA=OFF on other CPUs"
#endif

// switch_fiber(from, to): keeps the stack pointer in *from and continues at `to`; the registers that a call preserves
// lie on the stacks.
asm(R"(
.text
.globl emulated_cuda_switch_fiber
.type emulated_cuda_switch_fiber, @function
emulated_cuda_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_cuda_switch_fiber, . - emulated_cuda_switch_fiber
)");
extern "C" void emulated_cuda_switch_fiber(void** from, void* to);

namespace emulated_cuda {

namespace {

constexpr std::size_t kStackBytes = 256 << 10;
constexpr int kWarp = 32;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "emulated CUDA: %s\n", what);
  std::abort();
}

/// All who are expected come; then the generation is another.
struct Barrier {
  int expected = 0, arrived = 0;
  std::uint64_t generation = 0;
  bool flag = false, any = false;
};

struct Warp {
  Barrier barrier;
  std::byte slots[2][kWarp][kSlotBytes];
};

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

struct Fiber {
  std::byte* stack = nullptr;
  void* stack_pointer = nullptr;
  uint3 index{};
  int lane = 0;
  Warp* warp = nullptr;
  bool done = false;
  const Barrier* waits_at = nullptr;
  std::uint64_t waits_out = 0;  ///< this generation
  std::vector<Copy> copies;
  std::deque<std::vector<Copy>> groups;
};

struct Machine {
  std::vector<Fiber> fibers;
  std::vector<std::unique_ptr<Warp>> warps;
  Barrier block_barrier;
  std::vector<std::byte> shared;
  std::byte* shared_aligned = nullptr;
  dim3 grid, block;
  uint3 block_index{};
  Fiber* running = nullptr;
  void* scheduler = nullptr;
  const std::function<void()>* thread = nullptr;

  ~Machine() {
    for (Fiber& fiber : fibers) munmap(fiber.stack, kStackBytes);
  }
};

Machine& machine() {
  thread_local Machine instance;
  return instance;
}

void yield() {
  Machine& m = machine();
  emulated_cuda_switch_fiber(&m.running->stack_pointer, m.scheduler);
}

void arrive(Barrier& barrier, bool flag = false) {
  barrier.any = barrier.any || flag;
  if (++barrier.arrived == barrier.expected) {
    barrier.arrived = 0;
    barrier.flag = barrier.any;
    barrier.any = false;
    ++barrier.generation;
    return;
  }
  Fiber& fiber = *machine().running;
  fiber.waits_at = &barrier;
  fiber.waits_out = barrier.generation;
  yield();
  fiber.waits_at = nullptr;
}

void fiber_main() {
  Machine& m = machine();
  (*m.thread)();
  m.running->done = true;
  yield();
  give_up("a thread that has ended was run");
}

void prepare(Fiber& fiber) {
  if (fiber.stack == nullptr) {
    void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) give_up("no memory for a thread's stack");
    fiber.stack = static_cast<std::byte*>(memory);
  }
  // Six registers, the address to return to, and one word, so that the stack is aligned as after a call.
  auto** top = reinterpret_cast<void**>(fiber.stack + kStackBytes) - 8;
  std::memset(static_cast<void*>(top), 0, 8 * sizeof(void*));
  top[6] = reinterpret_cast<void*>(&fiber_main);
  fiber.stack_pointer = top;
  fiber.done = false;
  fiber.waits_at = nullptr;
  fiber.copies.clear();
  fiber.groups.clear();
}

bool environment_says(const char* variable, std::string_view value) {
  const char* text = std::getenv(variable);
  return text != nullptr && text == value;
}

bool backwards() {
  static const bool result = environment_says("MEGATRON_EMULATED_ORDER", "backwards");
  return result;
}

void land(const Copy& copy) {
  if (copy.from == nullptr) {
    std::memset(copy.to, 0, copy.bytes);
  } else {
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

void run_block(Machine& m, std::size_t threads) {
  m.block_barrier = {.expected = static_cast<int>(threads)};
  for (std::size_t w = 0; w * kWarp < threads; ++w) {
    m.warps[w]->barrier = {.expected = static_cast<int>(std::min<std::size_t>(kWarp, threads - w * kWarp))};
  }
  for (std::size_t i = 0; i < threads; ++i) prepare(m.fibers[i]);
  std::memset(m.shared.data(), 0xFF, m.shared.size());
  for (std::size_t left = threads; left > 0;) {
    bool ran = false;
    for (std::size_t i = 0; i < threads; ++i) {
      Fiber& fiber = m.fibers[backwards() ? threads - 1 - i : i];
      if (fiber.done || (fiber.waits_at != nullptr && fiber.waits_at->generation == fiber.waits_out)) continue;
      ran = true;
      m.running = &fiber;
      emulated_cuda_switch_fiber(&m.scheduler, fiber.stack_pointer);
      if (fiber.done) --left;
    }
    if (!ran) give_up("threads wait at a barrier, or for lanes of their warp, that others never come to");
  }
  m.running = nullptr;
}

}  // namespace

const uint3& current_thread() {
  return machine().running->index;
}
const uint3& current_block() {
  return machine().block_index;
}
const dim3& block_extent() {
  return machine().block;
}
const dim3& grid_extent() {
  return machine().grid;
}
int lane() {
  return machine().running->lane;
}

void synchronize_block() {
  arrive(machine().block_barrier);
}
bool any_of_block(bool flag) {
  Barrier& barrier = machine().block_barrier;
  arrive(barrier, flag);
  const bool result = barrier.flag;
  arrive(barrier);  // no next flag before all have read this one
  return result;
}
void synchronize_warp() {
  arrive(machine().running->warp->barrier);
}

Slots lay_down(const void* value, std::size_t bytes, void (*complete)(Slots)) {
  Fiber& fiber = *machine().running;
  // By turns: no lane is at the next exchange but one before all have read this one.
  std::byte(*slots)[kSlotBytes] = fiber.warp->slots[fiber.warp->barrier.generation % 2];
  std::memcpy(slots[fiber.lane], value, bytes);
  const Barrier& barrier = fiber.warp->barrier;
  if (complete != nullptr && barrier.arrived + 1 == barrier.expected) complete(slots);
  arrive(fiber.warp->barrier);
  return slots;
}

void check_mask(unsigned mask) {
  const Warp& warp = *machine().running->warp;
  const unsigned all = warp.barrier.expected == kWarp ? ~0u : (1u << warp.barrier.expected) - 1;
  if ((mask & all) != all) give_up("an exchange between some lanes of a warp only");
}

bool copies_land_early() {
  static const bool result = environment_says("MEGATRON_EMULATED_COPIES", "early");
  return result;
}

void copy_later(void* to, const void* from, std::size_t bytes) {
  const Copy copy{to, from, bytes};
  if (copies_land_early()) return land(copy);
  machine().running->copies.push_back(copy);
}
void commit_copies() {
  Fiber& fiber = *machine().running;
  fiber.groups.push_back(std::move(fiber.copies));
  fiber.copies.clear();
}
void wait_for_copies(int groups_left) {
  Fiber& fiber = *machine().running;
  while (static_cast<int>(fiber.groups.size()) > groups_left) {
    for (const Copy& copy : fiber.groups.front()) land(copy);
    fiber.groups.pop_front();
  }
}

std::byte* dynamic_shared_memory() {
  return machine().shared_aligned;
}

void run(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes, const std::function<void()>& thread) {
  Machine& m = machine();
  if (m.running != nullptr) give_up("a kernel launches a kernel");
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 ||
      dynamic_shared_bytes > shared_bytes_per_block()) {
    give_up("a launch that no GPU would accept");
  }
  if (m.fibers.size() < threads) m.fibers.resize(threads);
  while (m.warps.size() * kWarp < threads) m.warps.push_back(std::make_unique<Warp>());
  m.shared.resize(dynamic_shared_bytes + 128);
  m.shared_aligned = m.shared.data() + (128 - reinterpret_cast<std::uintptr_t>(m.shared.data()) % 128);
  m.grid = grid;
  m.block = block;
  m.thread = &thread;
  for (std::size_t i = 0; i < threads; ++i) {
    Fiber& fiber = m.fibers[i];
    const auto n = static_cast<unsigned>(i);
    fiber.index = {n % block.x, n / block.x % block.y, n / block.x / block.y};
    fiber.lane = static_cast<int>(i % kWarp);
    fiber.warp = m.warps[i / kWarp].get();
  }
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        m.block_index = {x, y, z};
        run_block(m, threads);
      }
    }
  }
}

}  // namespace emulated_cuda
