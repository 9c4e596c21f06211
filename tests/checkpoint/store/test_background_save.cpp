// Background saves: the same bytes as foreground saves at the moment they were started; and what is left when they
// fail, or are not waited for. A slow disk: another thread holds the HDF5 lock.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <thread>

#include "backend/ops/backends.h"
#include "base/core/timers.h"
#include "checkpoint/store/files.h"
#include "checkpoint/store/finish_save.h"
#include "checkpoint/store/layouts.h"
#include "checkpoint/store/manifest.h"
#include "checkpoint/store/rank_file.h"
#include "checkpoint/store/slices_on_device.h"
#include "data/hdf5/hdf5_file.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/file_size_limit.h"
#include "support/separate_backend.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// Saves `generation` while `meanwhile` runs on every rank; returns rank 0's report.
SaveReport save_beside(const std::string& run, const Layout& layout, int generation, const StatesOf& states = 2,
                       const std::function<void(Communicator&, BackgroundSave&)>& meanwhile = nullptr,
                       std::int64_t keep_last = 0) {
  SaveReport result;
  run_as_threads(static_cast<int>(layout.size()), [&](Communicator& world) {
    const SliceMemory memory(kWideTensors, layout[static_cast<std::size_t>(world.rank())], states, generation);
    Backend backend = make_separate_backend();
    SlicesOnDevice owned(memory.slices(), *backend.device);
    BackgroundSave save(world, *backend.device, snapshot_bytes(owned.there()));
    save.start(run, state_at(generation), owned.there(), {.keep_last = keep_last});
    save.wait_until_copied();
    owned.scribble();
    if (meanwhile) meanwhile(world, save);
    if (!save.under_way()) return;
    internal_check(save.step() == generation, "a save of another step");
    const SaveReport report = finish(save);
    internal_check(!save.under_way(), "a save that is done and under way");
    if (world.rank() == 0) result = report;
  });
  return result;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The multiplications of a step on 128 tokens, which is few for 25 million weights: forward and both gradients.
class ShortStep {
 public:
  ShortStep(Ops& ops, ConstTensor weight) : ops_(ops), weight_(weight) {}
  void play() const {
    ops_.matmul({.a = x_, .b = weight_, .transpose_b = true, .c = y_});
    ops_.matmul({.a = y_, .b = weight_, .c = x_gradient_});
    ops_.matmul({.a = y_, .b = x_, .transpose_a = true, .c = weight_gradient_});
  }

 private:
  static constexpr std::int64_t kTokens = 128;
  Tensor make(std::int64_t rows, std::int64_t columns) {
    std::vector<float>& numbers = memory_.emplace_back(static_cast<std::size_t>(rows * columns));
    return {numbers.data(), {rows, columns}, DType::f32};
  }

  Ops& ops_;
  ConstTensor weight_;
  std::deque<std::vector<float>> memory_;
  const std::int64_t rows_ = weight_.shape()[0], columns_ = weight_.shape()[1];
  Tensor x_ = make(kTokens, columns_), x_gradient_ = make(kTokens, columns_), y_ = make(kTokens, rows_),
         weight_gradient_ = make(rows_, columns_);
};

}  // namespace

TEST_CASE("background save: writes a foreground save's bytes as of its start", "[checkpoint][fault-26]") {
  const TemporaryFolder folder;
  std::mt19937 random(7);
  const int ranks = GENERATE(1, 3), moments = GENERATE(0, 2);
  CAPTURE(ranks, moments);
  const Layout layout = random_partition(kWideTensors, ranks, random);
  const SaveReport expected = save_as(folder.file("foreground"), kWideTensors, layout, 5, 0, moments);
  const SaveReport report = save_beside(folder.file("background"), layout, 5, moments);
  CHECK(report.path == folder.file("background/checkpoints/step_00000005"));
  CHECK(report.bytes == expected.bytes);
  CHECK(report.warnings.empty());
  require_same_files(report.path, expected.path);
  CHECK(contents_of(folder.file("background/checkpoints/latest")) == "step_00000005\n");
}

TEST_CASE("background save: host memory may change once the writer has copied it", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<GlobalTensor> tensors{{"weight", {2'000, 1'000}}};  // 24 MB: no thread copies them in no time
  const Layout layout = split_along(tensors, 1, 0);
  const SaveReport expected = save_as(folder.file("foreground"), tensors, layout, 1);
  run_as_threads(1, [&](Communicator& world) {
    const SliceMemory memory(tensors, layout[0], 2, 1);
    Backend backend = make_cpu_backend();
    BackgroundSave save(world, *backend.device, snapshot_bytes(memory.slices()));
    save.wait_until_copied();  // no save has started
    CHECK(save.seconds_waited() == 0);
    save.start(folder.file("run"), state_at(1), memory.slices());
    save.wait_until_copied();
    CHECK_FALSE(save.copying());
    for (const TensorSlice& slice : memory.slices()) {
      for (const char* last_first : {"v", "m"}) {
        const Tensor numbers = numbers_of(slice.states, last_first);
        std::memset(numbers.data(), 'x', numbers.bytes());
      }
      std::memset(slice.value.data(), 'x', slice.value.bytes());
    }
    require_same_files(finish(save).path, expected.path);
  });
}

TEST_CASE("background save: no wait once copied and none for an abandoned one", "[checkpoint]") {
  const TemporaryFolder folder;
  const std::vector<GlobalTensor> tensors{{"weight", {2'000, 1'000}}};
  const Layout layout = split_along(tensors, 1, 0);
  const bool separate = GENERATE(false, true);
  run_as_threads(1, [&](Communicator& world) {
    Backend backend = separate ? make_separate_backend() : make_cpu_backend();
    {
      const SliceMemory memory(tensors, layout[0], 2, 1);
      const SlicesOnDevice owned(memory.slices(), *backend.device);
      BackgroundSave save(world, *backend.device, snapshot_bytes(owned.there()));
      save.start(folder.file("run"), state_at(1), owned.there());
      while (save.copying()) {  // asking is enough: a device's copy is seen to be complete
        save.working();
        std::this_thread::yield();
      }
      save.wait_until_copied();
      CHECK(save.seconds_waited() == 0);
      finish(save);
      CHECK_FALSE(save.working());
      save.start(folder.file("run"), state_at(2), owned.there());
    }
    clean_checkpoints(folder.file("run"));
  });
  CHECK(names_in(folder.file("run/checkpoints")) == std::vector<std::string>{"latest", "step_00000001"});
  CHECK(load_newest(folder.file("run"), tensors, layout).wrong == 0);
}

TEST_CASE("background save: valid once all ranks wrote and no caller waits", "[checkpoint][fault-26]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const Layout layout = split_along(kWideTensors, 2, 0);
  save_as(run, kWideTensors, layout, 1);
  std::optional<Hdf5Lock> slow_disk;
  run_as_threads(1, [&](Communicator& world) {
    const Layout one = split_along(kWideTensors, 1, 0);
    const SliceMemory memory(kWideTensors, one[0], 2, 2);
    Backend backend = make_separate_backend();
    BackgroundSave save(world, *backend.device, snapshot_bytes(memory.slices()));
    SlicesOnDevice owned(memory.slices(), *backend.device);
    slow_disk.emplace();
    save.start(run, state_at(2), owned.there());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(save.working());
    CHECK(names_in(run + "/checkpoints") == std::vector<std::string>{".tmp_step_00000002", "latest", "step_00000001"});
    slow_disk.reset();
    for (int step = 0; save.working() && step < 20000; ++step)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK_FALSE(save.working());
    CHECK(names_in(run + "/checkpoints").front() == ".tmp_step_00000002");  // written, not agreed on
    CHECK_FALSE(save.advance().has_value());
    CHECK(finish(save).path == run + "/checkpoints/step_00000002");
  });
  CHECK(load_newest(run, kWideTensors, layout).step == 2);
}

TEST_CASE("background save: its seconds exclude other work", "[checkpoint]") {
  const TemporaryFolder folder;
  const double start = Timers::steady_seconds();
  double other_work = 0;
  const SaveReport report = save_beside(folder.file("run"), split_along(kWideTensors, 2, 0), 1, 2,
                                        [&](Communicator& world, BackgroundSave& save) {
                                          while (save.working())
                                            std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                          world.any_rank(false);  // all have written
                                          const double written = Timers::steady_seconds();
                                          std::this_thread::sleep_for(std::chrono::milliseconds(500));
                                          if (world.rank() == 0) other_work = Timers::steady_seconds() - written;
                                        });
  CHECK(report.seconds > 0);
  CHECK(report.seconds <= Timers::steady_seconds() - start - other_work);
}

TEST_CASE("background save: a failed writer fails all and the old save stays", "[checkpoint][fault-26][fault-45]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  // Rank 1 has the matrix, 29 KB, the others a part of the bias.
  Layout layout(3);
  layout[1].push_back({0, {{0, 0}, {60, 40}}, 0, 2400});
  layout[0].push_back({1, {{0}, {4}}, 0, 4});
  layout[2].push_back({1, {{4}, {5}}, 0, 5});
  save_as(run, kWideTensors, layout, 1);
  std::atomic<int> failed = 0, written = 0;
  {
    const FileSizeLimit limit(8000);
    save_beside(run, layout, 2, 2, [&](Communicator& world, BackgroundSave& save) {
      while (save.working()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::string file = run + "/checkpoints/.tmp_step_00000002/" + rank_file_name(world.rank());
      if (error_of([&] { read_slice_table(file, world.rank(), 2); }).kind() == ErrorKind::internal) ++written;
      const Error error = error_of([&] { finish(save); });
      const bool named = std::string(error.what()).find("rank_00001.h5") != std::string::npos;
      if (error.kind() == ErrorKind::filesystem && named && !save.under_way()) ++failed;
    });
  }
  CHECK(written == 2);  // the others had nothing to complain of
  CHECK(failed == 3);
  CHECK(names_in(run + "/checkpoints") == std::vector<std::string>{"latest", "step_00000001"});
  CHECK(load_newest(run, kWideTensors, layout).wrong == 0);
  save_beside(run, layout, 3, 2, nullptr, 1);
  CHECK(names_in(run + "/checkpoints") == std::vector<std::string>{"latest", "step_00000003"});
  CHECK(load_newest(run, kWideTensors, layout).wrong == 0);
}

TEST_CASE("a save that is not waited for ends at once and leaves no checkpoint", "[checkpoint][fault-26]") {
  const TemporaryFolder folder;
  const std::string run = folder.file("run");
  const Layout layout = split_along(kWideTensors, 1, 0);
  save_as(run, kWideTensors, layout, 1);
  run_as_threads(1, [&](Communicator& world) {
    const SliceMemory memory(kWideTensors, layout[0], 2, 2);
    Backend backend = make_cpu_backend();
    std::atomic<bool> holds = false, leaving = false;
    std::thread slow_disk([&] {
      const auto lock = lock_hdf5();
      holds = true;
      while (!leaving) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // by then the save is no longer waited for
    });
    while (!holds) std::this_thread::yield();
    {
      BackgroundSave save(world, *backend.device, snapshot_bytes(memory.slices()));
      save.start(run, state_at(2), memory.slices());
      leaving = true;
    }
    slow_disk.join();
    // The writer had everything before it, and has written no numbers any more.
    const std::string left = run + "/checkpoints/.tmp_step_00000002/" + rank_file_name(0);
    CHECK(file_bytes(left) < static_cast<std::int64_t>(snapshot_bytes(memory.slices()) / 3));
  });
  const Loaded loaded = load_newest(run, kWideTensors, layout);
  CHECK(loaded.step == 1);
  CHECK(loaded.wrong == 0);
  CHECK(loaded.warnings.empty());
  save_beside(run, layout, 2);
  CHECK(names_in(run + "/checkpoints") == std::vector<std::string>{"latest", "step_00000001", "step_00000002"});
}

TEST_CASE("who waits for the HDF5 lock gets it next, whatever its holder wants", "[hdf5]") {
  std::atomic<bool> stop = false, started = false;
  std::atomic<int> holds = 0;
  std::thread greedy([&] {
    while (!stop) {
      const auto lock = lock_hdf5();
      const auto nested = lock_hdf5();
      ++holds;
      started = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  while (!started) std::this_thread::yield();
  for (int turn = 0; turn < 20; ++turn) {
    const int before = holds;
    const auto lock = lock_hdf5();
    CHECK(holds - before <= 2);  // the one that it found, and one that slipped in before it had asked
  }
  stop = true;
  greedy.join();
}

// By hand: test_store '[.speed]'. In the folder that TMPDIR names.
TEST_CASE("background save: how long training waits compared with foreground", "[.speed]") {
  const TemporaryFolder folder;
  const int threads = GENERATE(1, 2);
  const std::vector<GlobalTensor> tensors{{"weight", {25'000, 1'000}}};
  const SliceMemory memory(tensors, split_along(tensors, 1, 0)[0], 2, 1);
  run_as_threads(1, [&](Communicator& world) {
    Backend backend = make_cpu_backend(threads);
    BackgroundSave save(world, *backend.device, snapshot_bytes(memory.slices()));
    const auto seconds_of = [](const std::function<void()>& work) {
      const double start = Timers::steady_seconds();
      work();
      return Timers::steady_seconds() - start;
    };
    const ShortStep step(*backend.ops, Tensor(memory.slices()[0].value.data(), tensors[0].shape, DType::f32));
    std::vector<double> foreground, stall, alone, shared;
    for (int round = 1; round <= 7; ++round) {
      foreground.push_back(seconds_of([&] {
        save_checkpoint(world, folder.file("run"), state_at(2 * round), memory.slices(), *backend.device,
                        {.keep_last = 1});
      }));
      alone.push_back(seconds_of([&] { step.play(); }));
      stall.push_back(seconds_of(
          [&] { save.start(folder.file("run"), state_at(2 * round + 1), memory.slices(), {.keep_last = 1}); }));
      shared.push_back(seconds_of([&] { step.play(); }));
      stall.back() += seconds_of([&] { save.wait_until_copied(); });
      while (save.under_way()) {
        while (save.working()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        stall.back() += seconds_of([&] { save.advance(); });
      }
    }
    const double whole = median(foreground), waited = median(stall);
    std::printf(
        "300 MB, %d threads: foreground %.3f s, training waits for the background %.4f s, %.1f %%; a step of %.3f s "
        "takes %.3f s with the copy and the writer\n",
        threads, whole, waited, 100 * waited / whole, median(alone), median(shared));
    CHECK(waited < 0.1 * whole);
  });
}
