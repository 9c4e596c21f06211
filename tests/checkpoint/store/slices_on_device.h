// Slices of host memory, and the same on a device whose memory is not the host's, one buffer a tensor.
#pragma once

#include <deque>
#include <vector>

#include "backend/tensor/memory.h"
#include "distributed/parallel/parameter.h"

namespace megatron::test {

class SlicesOnDevice {
 public:
  /// Copies them there. Both must outlive this.
  SlicesOnDevice(const std::vector<TensorSlice>& home, Device& device) : device_(device), home_(home), there_(home) {
    each([&](Tensor& there, const Tensor& host) {
      there = memory_.emplace_back(device_, host.bytes()).tensor(host.shape(), host.dtype());
      device_.copy_to_device(there.data(), host.data(), host.bytes());
    });
  }
  const std::vector<TensorSlice>& there() const { return there_; }

  /// Copies them back.
  void fetch() {
    each([&](Tensor& there, const Tensor& host) { device_.copy_to_host(host.data(), there.data(), there.bytes()); });
  }
  /// Overwrites what is there.
  void scribble() {
    each([&](Tensor& there, const Tensor&) {
      const std::vector<char> noise(there.bytes(), 'x');
      device_.copy_to_device(there.data(), noise.data(), noise.size());
    });
  }

 private:
  template <class Body>
  void each(const Body& body) {
    for (std::size_t i = 0; i < home_.size(); ++i) {
      body(there_[i].value, home_[i].value);
      for (std::size_t k = 0; k < home_[i].states.size(); ++k) {
        body(there_[i].states[k].numbers, home_[i].states[k].numbers);
      }
    }
  }

  Device& device_;
  const std::vector<TensorSlice>& home_;
  std::vector<TensorSlice> there_;
  std::deque<Buffer> memory_;
};

}  // namespace megatron::test
