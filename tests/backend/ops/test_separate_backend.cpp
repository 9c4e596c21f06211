// The double that stands in for a GPU catches what it is there to catch: the host in the device's memory, and what is
// not ordered.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <vector>

#include "support/catch.h"
#include "support/separate_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// The signal that ends a process that does this, 0 if none.
int signal_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int number : {SIGSEGV, SIGBUS}) std::signal(number, SIG_DFL);  // Catch's own would report it
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

struct Fixture {
  explicit Fixture(Copies copies)
      : backend(make_separate_backend(copies)),
        device(*backend.device),
        memory(device, 4096),
        pinned(device.pinned(), 4096),
        x(memory.tensor({8}, DType::f32)),
        y(memory.tensor({8}, DType::f32, 1024)),
        host(reinterpret_cast<float*>(pinned.data())) {}
  float read(ConstTensor values) {
    float first = 0;
    device.copy_to_host(&first, values.data(), sizeof first);
    return first;
  }

  Backend backend;
  Device& device;
  Buffer memory, pinned;
  Tensor x, y;
  float* host;
};

}  // namespace

TEST_CASE("separate: the host cannot touch device memory but operations can", "[separate]") {
  Fixture f(Copies::late);
  f.backend.ops->fill(f.x, 3);
  CHECK(f.read(f.x) == 3);
  float read = 0;
  f.backend.ops->fill(f.x, 4);
  f.backend.ops->read(f.x.slice(0, 7, 1), &read);
  CHECK(read == 4);
  CHECK(signal_of([] {}) == 0);
  CHECK(signal_of([&] { (void)*static_cast<volatile float*>(f.x.data()); }) == SIGSEGV);
  CHECK(signal_of([&] { *static_cast<volatile float*>(f.y.data()) = 1; }) == SIGSEGV);
  CHECK(signal_of([&] {
          f.device.synchronize();
          (void)*static_cast<volatile float*>(f.x.data());
        }) == SIGSEGV);
}

TEST_CASE("separate: a copy to the host is there when its ticket is complete", "[separate]") {
  Fixture f(Copies::late);
  f.backend.ops->fill(f.x, 3);
  const Ticket out = f.device.start_copy_to_host(f.host, f.x.data(), sizeof(float), f.device.mark());
  CHECK(*f.host != 3);
  CHECK_FALSE(f.device.complete(out));
  f.device.wait(out);
  CHECK(f.device.complete(out));
  CHECK(*f.host == 3);
  CHECK(f.device.complete({}));
}

TEST_CASE("separate: only early copies overtake and only unrelated operations", "[separate]") {
  for (const Copies copies : {Copies::early, Copies::late}) {
    Fixture f(copies);
    *f.host = 5;
    f.backend.ops->fill(f.x, 1);
    const Ticket filled = f.device.mark();
    f.backend.ops->copy(f.x, f.y);  // reads x, which the copy below writes
    f.device.order_after(f.device.start_copy_to_device(f.x.data(), f.host, sizeof(float), filled));
    CHECK(f.read(f.y) == (copies == Copies::early ? 5 : 1));
    CHECK(f.read(f.x) == 5);

    Fixture ordered(copies);
    *ordered.host = 5;
    ordered.backend.ops->fill(ordered.x, 1);
    ordered.backend.ops->copy(ordered.x, ordered.y);
    const Ticket read = ordered.device.mark();
    ordered.device.order_after(
        ordered.device.start_copy_to_device(ordered.x.data(), ordered.host, sizeof(float), read));
    CHECK(ordered.read(ordered.y) == 1);
    CHECK(ordered.read(ordered.x) == 5);
  }
}

TEST_CASE("separate: operations not told to wait may come before a copy", "[separate]") {
  Fixture f(Copies::late);
  *f.host = 5;
  f.backend.ops->fill(f.x, 1);
  const Ticket in = f.device.start_copy_to_device(f.x.data(), f.host, sizeof(float), f.device.mark());
  f.backend.ops->copy(f.x, f.y);
  CHECK(f.read(f.y) == 1);
  f.device.order_after(in);
  f.backend.ops->copy(f.x, f.y);
  CHECK(f.read(f.y) == 5);
}

TEST_CASE("separate: only operations ordered after a late copy come after it", "[separate]") {
  Fixture f(Copies::late);
  f.backend.ops->fill(f.x, 1);
  Ticket out = f.device.start_copy_to_host(f.host, f.x.data(), sizeof(float), f.device.mark());
  f.backend.ops->fill(f.x, 2);
  f.device.wait(out);
  CHECK(*f.host == 2);
  out = f.device.start_copy_to_host(f.host, f.x.data(), sizeof(float), f.device.mark());
  f.device.order_after(out);
  f.backend.ops->fill(f.x, 3);
  f.device.wait(out);
  CHECK(*f.host == 2);
  CHECK(f.read(f.x) == 3);
}
