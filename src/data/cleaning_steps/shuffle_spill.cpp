#include "data/cleaning_steps/shuffle_spill.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "base/system/regular_file.h"
#include "data/cleaning_steps/rank_messages.h"

namespace megatron {

namespace {

constexpr std::uint64_t kMostWaiting = kBucketBytes, kMostBuckets = 1 << 16;

/// In front of each line.
struct Entry {
  std::uint64_t key, number, bytes;
};

Entry entry_at(std::string_view entries, std::size_t at) {
  Entry entry;
  std::memcpy(&entry, entries.data() + at, sizeof entry);
  return entry;
}

std::uint64_t bucket_of(std::uint64_t key, std::uint64_t buckets) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(key) * buckets) >> 64);
}

}  // namespace

ShuffleSpill::ShuffleSpill(Communicator& world, const std::string& folder, std::uint64_t bytes,
                           std::uint64_t bucket_bytes)
    : world_(world),
      folder_(folder, fmt::format("shuffle-{}", world.rank())),
      buckets_(std::clamp<std::uint64_t>(bytes / bucket_bytes, 1, kMostBuckets)),
      round_(static_cast<std::size_t>(world.size())) {}

ShuffleSpill::~ShuffleSpill() {
  for (const Bucket& bucket : buckets_) XXH3_freeState(bucket.hash);
}

std::string ShuffleSpill::path_of(std::uint64_t bucket) const {
  return fmt::format("{}/{:05}", folder_.path(), bucket);
}

void ShuffleSpill::add(std::uint64_t key, std::uint64_t number, std::string_view line) {
  const Entry entry{key, number, line.size()};
  std::string& part = round_[bucket_of(key, buckets()) % round_.size()];
  part.append(reinterpret_cast<const char*>(&entry), sizeof entry).append(line);
}

void ShuffleSpill::end_round() {
  const std::vector<std::string> parts = exchange_bytes(world_, round_);
  for (std::string& part : round_) part.clear();
  for (const std::string& part : parts) append(part);
  if (waiting_ > kMostWaiting) flush_all();
}

void ShuffleSpill::append(std::string_view entries) {
  for (std::size_t at = 0; at < entries.size();) {
    const Entry entry = entry_at(entries, at);
    const std::size_t bytes = sizeof entry + entry.bytes;
    buckets_[bucket_of(entry.key, buckets())].waiting.append(entries.substr(at, bytes));
    waiting_ += bytes;
    at += bytes;
  }
}

void ShuffleSpill::flush_all() {
  for (std::uint64_t bucket = 0; bucket < buckets(); ++bucket) flush(bucket);
  waiting_ = 0;
}

void ShuffleSpill::flush(std::uint64_t number) {
  Bucket& bucket = buckets_[number];
  if (bucket.waiting.empty()) return;
  if (bucket.hash == nullptr) {
    bucket.hash = XXH3_createState();
    XXH3_64bits_reset(bucket.hash);
  }
  XXH3_64bits_update(bucket.hash, bucket.waiting.data(), bucket.waiting.size());
  append_to_file(path_of(number), bucket.waiting);
  bucket.bytes += bucket.waiting.size();
  bucket.waiting = {};
}

std::string ShuffleSpill::take(std::uint64_t number, std::uint64_t& lines) {
  Bucket& bucket = buckets_.at(number);
  std::string entries;
  if (bucket.bytes > 0) {
    const RegularFile file(path_of(number), ErrorKind::filesystem);
    verify(file.bytes() == bucket.bytes, ErrorKind::filesystem, "{}: has {} bytes instead of the {} that were written",
           file.path(), file.bytes(), bucket.bytes);
    entries.resize(bucket.bytes);
    file.read(0, entries.data(), entries.size());
    verify(XXH3_64bits(entries.data(), entries.size()) == XXH3_64bits_digest(bucket.hash), ErrorKind::filesystem,
           "{}: is not what was written there; the disk may be damaged", file.path());
    remove_quietly(file.path());
  }
  entries += bucket.waiting;
  bucket.waiting = {};
  struct Place {
    std::uint64_t key, number;
    std::size_t at;
  };
  std::vector<Place> order;
  for (std::size_t at = 0; at < entries.size();) {
    const Entry entry = entry_at(entries, at);
    order.push_back({entry.key, entry.number, at});
    at += sizeof entry + entry.bytes;
  }
  std::sort(order.begin(), order.end(),
            [](const Place& a, const Place& b) { return a.key != b.key ? a.key < b.key : a.number < b.number; });
  std::string text;
  text.reserve(entries.size() - order.size() * sizeof(Entry));
  for (const Place& place : order) {
    text.append(entries, place.at + sizeof(Entry), entry_at(entries, place.at).bytes);
  }
  lines = order.size();
  return text;
}

}  // namespace megatron
