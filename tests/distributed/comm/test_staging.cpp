// How much reductions hold of what others sent, by size and ranks, and that buffers are what was planned and no more.
#include "distributed/comm/counting_communicator.h"
#include "distributed/comm/staging.h"
#include "support/catch.h"

using namespace megatron;

TEST_CASE("a reduction holds the other ranks' shares of the chunks in flight") {
  // Whole, to all ranks: 100 floats from three others.
  CHECK(all_reduce_need(100, 4, 4).bytes() == 1216);  // 1200, in blocks of 64
  // One chunk of a million floats over two ranks: the other's half.
  CHECK(all_reduce_need(1 << 20, 4, 2).bytes() == 2 << 20);
  // More: two chunks in flight, however large the tensor.
  CHECK(all_reduce_need((1 << 20) + 1, 4, 2).bytes() == 4 << 20);
  CHECK(all_reduce_need(std::int64_t{1} << 40, 4, 2).bytes() == 4 << 20);
  // A slice is rounded up to whole elements: 349526 floats from two others.
  CHECK(all_reduce_need(1 << 20, 4, 3).bytes() == (349526 * 2 * 4 + 63) / 64 * 64);
  CHECK(reduce_scatter_need(1 << 20, 4, 4).bytes() == 2 * 3 << 20);
  CHECK(reduce_scatter_need(1000, 4, 4).bytes() == 12032);
  // Small tensors are cut up where those of all ranks would not fit a chunk.
  CHECK(goes_whole(16 << 10, 256));
  CHECK_FALSE(goes_whole(16 << 10, 257));
  CHECK(all_reduce_need(4096, 4, 257).bytes() == 256 * 16 * 4);
}

TEST_CASE("a group of any size never holds more than four chunks") {
  for (const int ranks : {2, 3, 7, 8, 64, 1000, 4096}) {
    for (const std::int64_t elements : {1, 100, 5000, 1 << 20, 100 << 20}) {
      for (const StagingNeed& need : {all_reduce_need(elements, 4, ranks), reduce_scatter_need(elements, 4, ranks)}) {
        CAPTURE(ranks, elements);
        CHECK(need.chunks <= 2);
        CHECK(need.chunk_bytes <= static_cast<std::size_t>(kChunkBytes + 4 * ranks + 64));
      }
    }
  }
}

TEST_CASE("staging: an all-to-all chunk holds whole parts or a piece of a part") {
  CHECK(all_to_all_chunk_elements(1, 4) == kPeersPerChunk);
  CHECK(all_to_all_chunk_elements(1 << 18, 4) == 1 << 20);
  CHECK(all_to_all_chunk_elements((1 << 18) + 1, 4) == 3 * ((1 << 18) + 1));
  CHECK(all_to_all_chunk_elements(1 << 20, 4) == 1 << 20);
  CHECK(all_to_all_chunk_elements((1 << 20) + 1, 4) == 1 << 20);
  CHECK(all_to_all_chunk_elements(std::int64_t{1} << 40, 1) == 4 << 20);
  for (std::int64_t part = 1; part < 3 << 20; part += 1 + part / 7) {
    CHECK(all_to_all_chunk_elements(part, 4) * 4 <= kChunkBytes);
  }
}

TEST_CASE("counting communicators plan the buffers of what is in flight together") {
  std::vector<float> memory(10 << 20);
  const auto tensor = [&](std::int64_t elements) { return Tensor(memory.data(), {elements}, DType::f32); };
  CountingCommunicator group(0, 2);
  CHECK(group.staging_plan().bytes() == 0);
  group.all_reduce(tensor(1000), kPassedOn);
  group.broadcast(tensor(1 << 20), 0, kPassedOn);
  group.all_to_all(tensor(1 << 20), Tensor(memory.data() + (1 << 20), {1 << 20}, DType::f32),
                   kPassedOn);  // holds nothing
  CHECK(group.staging_plan().reductions.count == 1);
  CHECK(group.staging_plan().reductions.bytes_each == 4032);
  {
    Pending a = group.start_all_reduce(tensor(10), kPassedOn),
            b = group.start_reduce_scatter(tensor(4 << 20), tensor(2 << 20), kPassedOn),
            c = group.start_all_reduce(tensor(10), kPassedOn);
    for (Pending* pending : {&a, &b, &c}) pending->wait();
  }
  CHECK(group.staging_plan().reductions.count == 2);  // the third waits for its turn
  CHECK(group.staging_plan().reductions.bytes_each == 4 << 20);
}

TEST_CASE("what is planned for a tensor is enough for every smaller one") {
  for (const int ranks : {2, 3, 8, 200, 300}) {
    std::size_t most = 0;
    for (std::int64_t elements = 1; elements < 3 << 20; elements += 1 + elements / 16) {
      CAPTURE(ranks, elements);
      const std::size_t need = all_reduce_need(elements, 4, ranks).bytes();
      most = std::max(most, need);
      CHECK(most <= most_for_all_reduces(elements, 4, ranks));
    }
  }
  CHECK(all_reduce_need(4096, 4, 8).bytes() > all_reduce_need(5000, 4, 8).bytes());  // there is a difference
  CHECK(most_for_all_reduces(5000, 4, 8) == all_reduce_need(4096, 4, 8).bytes());
}

TEST_CASE("staging: buffers are reused and grow unless reserved") {
  Staging staging;
  std::byte* first = staging.take(100);
  CHECK(staging.take(50) != first);
  CHECK(staging.bytes() == 150);
  staging.give_back(first);
  CHECK(staging.take(100) == first);
  CHECK(staging.bytes() == 150);
  CHECK_THROWS(staging.reserve({2, 4096}));  // in use

  Staging reserved;
  reserved.reserve({2, 4096});
  CHECK(reserved.bytes() == 8192);
  std::byte* buffer = reserved.take(4096);
  reserved.give_back(buffer);
  CHECK(reserved.take(10) == buffer);
  CHECK(reserved.bytes() == 8192);
}
