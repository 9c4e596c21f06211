#include "data/samples/sample_order.h"

#include "base/core/error.h"
#include "base/core/philox.h"
#include "base/text/text.h"

namespace megatron {

namespace {

constexpr std::uint32_t kRounds = 6;

/// One pass of the Feistel network over 2 · half_bits bits.
std::uint64_t encipher(std::uint64_t value, int half_bits, std::uint64_t key) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits, right = value & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mixed = philox4x32({static_cast<std::uint32_t>(right), round, 0, 0}, key)[0];
    const std::uint64_t next = left ^ (mixed & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

std::uint64_t permute(std::uint64_t index, std::uint64_t size, std::uint64_t key) {
  internal_check(index < size && size <= std::uint64_t{1} << 62, "permutation index out of range", index, size);
  int half_bits = 1;
  while (std::uint64_t{1} << (2 * half_bits) < size) ++half_bits;
  do {
    index = encipher(index, half_bits, key);
  } while (index >= size);
  return index;
}

SampleOrder::SampleOrder(std::int64_t sequence_length) : sequence_length_(static_cast<std::uint64_t>(sequence_length)) {
  internal_check(sequence_length > 0, "sequence length must be positive", sequence_length);
}

EpochOrder::EpochOrder(std::uint64_t first_token, std::uint64_t tokens, std::int64_t sequence_length,
                       std::uint64_t seed, Kind kind)
    : SampleOrder(sequence_length), first_token_(first_token), seed_(seed), kind_(kind) {
  samples_per_epoch_ = tokens == 0 ? 0 : (tokens - 1) / sequence_length_;
  verify(samples_per_epoch_ > 0, ErrorKind::data,
         "{} tokens do not make one sample of {} + 1 tokens; give this part of the data more documents (data.split) or "
         "shorten model.sequence_length",
         tokens, sequence_length);
}

std::string EpochOrder::description() const {
  return fmt::format("epoch: {} per pass", counted(static_cast<std::int64_t>(samples_per_epoch_), "sample"));
}

std::uint64_t EpochOrder::first_token_of(std::uint64_t sample) const {
  const std::uint64_t epoch = sample / samples_per_epoch_;
  std::uint64_t place = sample % samples_per_epoch_;
  if (kind_ == Kind::shuffled) {
    place = permute(place, samples_per_epoch_, random_key(seed_, epoch, hash_name("data.order = epoch")));
  }
  return first_token_ + place * sequence_length_;
}

void EpochOrder::locate(std::uint64_t sample, std::vector<TokenRange>& ranges) const {
  ranges.assign(1, {first_token_of(sample), sequence_length_ + 1});
}

}  // namespace megatron
