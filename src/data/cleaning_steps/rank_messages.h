// Bytes of any length between the ranks of a job. Collective; a message may have up to 2 GiB.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/comm/communicator.h"

namespace megatron {

/// Every rank's value, by rank. Whole numbers arrive exactly up to 2^53.
std::vector<double> numbers_of_all(Communicator& world, double mine);
/// Gives `to[rank]` to each rank, and returns what each rank had for this one.
std::vector<std::string> exchange_bytes(Communicator& world, const std::vector<std::string>& to);
/// Hands every rank's bytes to rank 0, which calls take(bytes) for each piece of them, by rank and in their order; it
/// holds one piece of kPieceBytes at a time. take() must not throw.
void collect(Communicator& world, std::string_view mine, const std::function<void(std::string_view)>& take);

inline constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

}  // namespace megatron
