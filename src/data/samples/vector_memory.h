// The memory of vectors that grew while files were read, and then stay as they are for the whole run.
#pragma once

#include <cstddef>
#include <vector>

namespace megatron {

/// With what they have in reserve.
template <class... T>
std::size_t held_bytes(const std::vector<T>&... vectors) {
  return (std::size_t{0} + ... + (vectors.capacity() * sizeof(T)));
}

template <class... T>
void give_back_reserve(std::vector<T>&... vectors) {
  (vectors.shrink_to_fit(), ...);
}

}  // namespace megatron
