// Device: where tensors live and how bytes get there. Nothing above ops/ asks which device it is, and only the device's
// own operations, copies and communicators follow a pointer into its memory: it need not be the host's.
//
// One thread at a time uses a device: its rank's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/tensor/memory.h"

namespace megatron {

class Ops;

/// A point in one of a device's queues. A small value: nothing is to be given back, however old it is. The default one
/// waits for nothing and is always complete.
struct Ticket {
  std::uint32_t queue = 0;   ///< the device's own number of it
  std::uint64_t number = 0;  ///< in the order of the queue, from 1; 0: no work at all
};

/// A device works while the host does something else. There are three queues, each with its own order:
///
///   operations    all verbs of Ops, copy_within(), fills of communicators: in the order in which they were called
///   copies out    start_copy_to_host()
///   copies in     start_copy_to_device()
///
/// Tickets order the queues. A ticket is a point in a queue: a copy names the ticket that it waits for on the device,
/// and order_after() makes operations that are called from then on wait for one. Nothing else orders queues, and
/// nothing here but wait(), synchronize(), allocations and the synchronous copies makes the host wait. So a steady step
/// runs as one list of operations with concurrent copies:
///
///   Ticket written = device.mark();                                // after the operations so far
///   Ticket out = device.start_copy_to_host(host, x, n, written);   // later operations may run during it, not write x
///   device.wait(out);                                              // the host may read `host` now
///   Ticket in = device.start_copy_to_device(y, host, n, free);     // free: a mark after the last reader of y
///   device.order_after(in);                                        // operations from here on see it
///
/// Host memory of asynchronous copies comes from pinned() and stays untouched until the copy's ticket is complete. On a
/// device whose work is done when a call returns (the CPU) all tickets are complete from the start.
class Device : public Allocator {
 public:
  virtual std::string description() const = 0;  ///< one line for the banner: model, cores or memory
  /// Name of the memory: ranks of one host with equal names share it. The GPU's UUID; empty: the host's own memory.
  virtual std::string identity() const { return {}; }
  /// Bytes that new allocations can still get, those of all users of the memory together; nothing where it is not
  /// known.
  virtual std::optional<std::size_t> free_bytes() const = 0;
  /// Whether the host may follow pointers into allocate()'s memory: then communicators of the host move its tensors.
  virtual bool is_host_memory() const = 0;
  /// Host memory that copies to and from the device are fast with, and asynchronous at all. Lives as long as the
  /// device.
  virtual Allocator& pinned() = 0;

  /// Synchronous, for what is rare: after all operations so far, and done on return. Any host memory.
  virtual void copy_to_device(void* device, const void* host, std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, std::size_t bytes) = 0;
  /// Between two places on the device, as an operation among the others.
  virtual void copy_within(void* to, const void* from, std::size_t bytes) = 0;

  /// After all operations called so far.
  virtual Ticket mark() = 0;
  /// Copies that start when `after` is complete and every earlier copy in the same direction; the ticket is complete
  /// when the bytes are there.
  virtual Ticket start_copy_to_host(void* host, const void* device, std::size_t bytes, Ticket after) = 0;
  virtual Ticket start_copy_to_device(void* device, const void* host, std::size_t bytes, Ticket after) = 0;
  /// Operations that are called from now on start when `ticket` is complete. The host does not wait.
  virtual void order_after(Ticket ticket) = 0;
  virtual bool complete(Ticket ticket) = 0;  ///< without waiting; may be asked again and again
  virtual void wait(Ticket ticket) = 0;      ///< the host waits

  virtual void synchronize() = 0;  ///< waits for everything that was started; not in a steady step
};

/// A device with its operations. The ops must not outlive the device.
struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;

  Backend();
  Backend(std::unique_ptr<Device> device, std::unique_ptr<Ops> ops);
  Backend(Backend&&) noexcept;
  Backend& operator=(Backend&&) noexcept;
  ~Backend();
};

}  // namespace megatron
