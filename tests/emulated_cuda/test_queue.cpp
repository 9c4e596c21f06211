// CudaQueue's numbers when their events have been used again.
#include "cuda/cuda_device.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("queue: a message waits for its own point or is refused") {
  CudaDevice device(0);
  CudaQueue messages;
  const Ticket early = device.mark();
  for (std::uint64_t i = 1; i < CudaQueue::kEvents; ++i) (void)device.mark();
  CHECK_NOTHROW(device.start_stream_after(messages, early));
  (void)device.mark();  // records the event of `early` anew
  require_error(ErrorKind::internal, {"too many operations late"}, [&] { device.start_stream_after(messages, early); });
  device.wait(device.mark());
  CHECK_NOTHROW(device.start_stream_after(messages, early));  // complete, hence no longer late
}
