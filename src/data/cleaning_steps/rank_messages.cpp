#include "data/cleaning_steps/rank_messages.h"

#include <algorithm>

namespace megatron {

namespace {

constexpr int kExchanged = 41, kCollected = 42;  // channels

ConstTensor bytes_of(std::string_view text) {
  return {text.data(), Shape{static_cast<std::int64_t>(text.size())}, DType::u8};
}

Tensor room_of(std::string& text, std::size_t bytes) {
  text.resize(bytes);
  return {text.data(), Shape{static_cast<std::int64_t>(bytes)}, DType::u8};
}

}  // namespace

std::vector<double> numbers_of_all(Communicator& world, double mine) {
  std::vector<double> numbers(static_cast<std::size_t>(world.size()));
  numbers[static_cast<std::size_t>(world.rank())] = mine;
  world.all_reduce_values(numbers, kReport);
  return numbers;
}

std::vector<std::string> exchange_bytes(Communicator& world, const std::vector<std::string>& to) {
  const auto ranks = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
  std::vector<double> sent, received(ranks);
  for (const std::string& text : to) sent.push_back(static_cast<double>(text.size()));
  const Shape all{static_cast<std::int64_t>(ranks)};
  world.all_to_all({sent.data(), all, DType::f64}, {received.data(), all, DType::f64}, kReport);
  std::vector<std::string> from(ranks);
  std::vector<Pending> pending;
  for (std::size_t other = 0; other < ranks; ++other) {
    const auto bytes = static_cast<std::size_t>(received[other]);
    if (other == rank || bytes == 0) continue;
    pending.push_back(world.start_receive(room_of(from[other], bytes), static_cast<int>(other), kExchanged, kReport));
  }
  for (std::size_t other = 0; other < ranks; ++other) {
    if (other == rank || to[other].empty()) continue;
    pending.push_back(world.start_send(bytes_of(to[other]), static_cast<int>(other), kExchanged, kReport));
  }
  from[rank] = to[rank];
  for (Pending& one : pending) one.wait();
  return from;
}

void collect(Communicator& world, std::string_view mine, const std::function<void(std::string_view)>& take) {
  const std::vector<double> sizes = numbers_of_all(world, static_cast<double>(mine.size()));
  if (world.rank() > 0) {
    for (std::size_t at = 0; at < mine.size(); at += kPieceBytes) {
      world.start_send(bytes_of(mine.substr(at, kPieceBytes)), 0, kCollected, kReport).wait();
    }
    return;
  }
  take(mine);
  std::string piece;
  for (int rank = 1; rank < world.size(); ++rank) {
    auto left = static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]);
    for (; left > 0; left -= piece.size()) {
      world.start_receive(room_of(piece, std::min(left, kPieceBytes)), rank, kCollected, kReport).wait();
      take(piece);
    }
  }
}

}  // namespace megatron
