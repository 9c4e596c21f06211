// Tests of the parts of the offline tools: checkpoints streamed into other layouts, and comparisons across layouts.
#include <array>
#include <cmath>
#include <cstring>

#include "checkpoint/store/difference.h"
#include "checkpoint/store/layouts.h"
#include "checkpoint/store/new_checkpoint.h"
#include "checkpoint/store/tensor_slices.h"
#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/open_checkpoint.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

SliceLayout layout_of(const std::vector<GlobalTensor>& tensors, const Layout& layout) {
  return [=](int rank) {
    std::vector<TensorSlice> slices;
    for (const Part& part : layout[static_cast<std::size_t>(rank)]) {
      const GlobalTensor& tensor = tensors[static_cast<std::size_t>(part.tensor)];
      slices.push_back({tensor.name, tensor.shape, part.box, part.first, part.count});
    }
    return slices;
  };
}

/// A checkpoint whose numbers are `change`d after they are written: by name, flat index, kind of number.
std::string save_numbers(const std::string& run, const std::function<float(int tensor, int element, int kind)>& number,
                         const TrainingState& state = state_at(4)) {
  run_as_threads(1, [&](Communicator& world) {
    std::deque<std::vector<float>> memory;
    std::vector<TensorSlice> slices;
    for (int tensor = 0; tensor < 2; ++tensor) {
      TensorSlice slice{tensor == 0 ? "first" : "second", {5}, {{0}, {5}}, 0, 5, {}, {{"m", {}}, {"v", {}}}};
      int kind = 0;
      for_each_tensor(slice, [&](Tensor& target) {
        std::vector<float>& numbers = memory.emplace_back();
        for (int i = 0; i < 5; ++i) numbers.push_back(number(tensor, i, kind));
        target = Tensor(numbers.data(), {5}, DType::f32);
        ++kind;
      });
      slices.push_back(slice);
    }
    CpuDevice device;
    save_checkpoint(world, run, state, slices, device);
  });
  return run + "/checkpoints/" + fmt::format("step_{:08d}", state.step);
}

}  // namespace

TEST_CASE("tools: a reshaped checkpoint has the bytes of that layout's own save", "[checkpoint]") {
  std::mt19937 random(7);
  const auto tensors = some_tensors();
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    const StatesOf states = round % 4 < 3 ? StatesOf(round % 4) : StatesOf(states_by_shape);
    const TemporaryFolder folder;
    const Layout from = random_partition(tensors, 1 + round % 5, random), to = random_partition(tensors, 3, random);
    const std::string saved = save_as(folder.file("from"), tensors, from, 6, 0, states).path;
    const std::string expected = save_as(folder.file("to"), tensors, to, 6, 0, states).path;
    const CheckpointReader source = open_alone(saved);
    verify_coverage(source);
    const NewCheckpointReport report = rewrite_checkpoint(source, folder.file("cut/"), 3, layout_of(tensors, to));
    require_same_files(folder.file("cut"), expected);
    std::int64_t bytes = 0;
    for (const std::string& name : names_in(expected)) {
      bytes += static_cast<std::int64_t>(std::filesystem::file_size(expected + "/" + name));
    }
    CHECK(report.bytes == bytes);
    CHECK(report.files + 1 == static_cast<int>(names_in(expected).size()));
    CHECK(load_named(folder.file("cut"), tensors, split_along(tensors, 2, 1), states).wrong == 0);
  }
}

TEST_CASE("tensors larger than the buffer pass through it in parts", "[checkpoint]") {
  const std::vector<GlobalTensor> tensors{{"large", {3000, 3001}}, {"small", {3}}};
  const TemporaryFolder folder;
  const std::string saved = save_as(folder.file("from"), tensors, split_along(tensors, 2, 1), 5, 0, 0).path;
  const Layout whole = split_along(tensors, 1, 0);
  const std::string expected = save_as(folder.file("to"), tensors, whole, 5, 0, 0).path;
  const CheckpointReader source = open_alone(saved);
  rewrite_checkpoint(source, folder.file("cut"), 1, layout_of(tensors, whole));
  require_same_files(folder.file("cut"), expected);
  CHECK(compare_tensors(source, open_alone(expected), true)[0].equal());
}

TEST_CASE("a target that cannot be is refused before anything is written", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const CheckpointReader source = open_alone(save_as(folder.file("run"), tensors, split_along(tensors, 2, 0), 6).path);
  const SliceLayout layout = layout_of(tensors, split_along(tensors, 1, 0));
  require_error(ErrorKind::configuration, {"is there already"},
                [&] { rewrite_checkpoint(source, folder.file("run"), 1, layout); });
  require_error(ErrorKind::configuration, {"another step", "6"},
                [&] { rewrite_checkpoint(source, folder.file("step_00000007"), 1, layout); });
  CHECK(names_in(folder.path()) == std::vector<std::string>{"run"});
  // The right step's name, in folders that are made for it.
  rewrite_checkpoint(source, folder.file("new/checkpoints/step_00000006"), 1, layout);
  CHECK(load_newest(folder.file("new"), tensors, split_along(tensors, 2, 1)).wrong == 0);
}

TEST_CASE("a source that is damaged on the way leaves no target", "[checkpoint][fault-23]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const std::string saved = save_as(folder.file("run"), tensors, split_along(tensors, 3, 0), 6).path;
  const CheckpointReader source = open_alone(saved);
  std::filesystem::remove(saved + "/rank_00001.h5");
  const std::string left = folder.file(".making_cut.0123abcd.tmp");  // by a tool that died
  std::filesystem::create_directory(left);
  write_file(left + "/rank_00000.h5", "half a file");
  CHECK_THROWS_AS(rewrite_checkpoint(source, folder.file("cut"), 1, layout_of(tensors, split_along(tensors, 1, 0))),
                  Error);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"run"});
}

TEST_CASE("tools: a tool and a saving run keep each other's unfinished work", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const Layout one = split_along(tensors, 1, 0);
  const std::string saved = save_as(folder.file("source"), tensors, one, 6).path;
  const CheckpointReader source = open_alone(saved);
  const std::string steps = folder.file("run/checkpoints"), target = steps + "/step_00000006";
  std::filesystem::create_directories(steps);
  for (const char* name : {"/.tmp_step_00000006", "/.old_step_00000006"}) std::filesystem::copy(saved, steps + name);
  rewrite_checkpoint(source, target, 1, layout_of(tensors, one));
  CHECK(names_in(steps) == std::vector<std::string>{".old_step_00000006", ".tmp_step_00000006", "step_00000006"});
  for (const char* name : {"/.tmp_step_00000006", "/.old_step_00000006"}) require_same_files(saved, steps + name);

  std::filesystem::remove_all(target);
  std::filesystem::remove_all(steps + "/.old_step_00000006");  // the run would put it back at the target
  const TensorSlice whole = slices_in(kValues, whole_tensors(source))[0];
  const std::vector<float> numbers(static_cast<std::size_t>(whole.count), 1.0f);
  const auto make = [&](const std::function<void(const std::string& pending)>& meanwhile) {
    write_new_checkpoint(
        target, source.state(), 1,
        [&](int) {
          return NewRankFile{{whole},
                             [&](const std::string&, std::int64_t) { return std::span<const float>(numbers); }};
        },
        meanwhile);
  };
  make([&](const std::string&) { clean_checkpoints(folder.file("run")); });  // the run has started
  CHECK(names_in(steps) == std::vector<std::string>{"step_00000006"});

  std::filesystem::remove_all(target);
  const Error error =
      error_of([&] { make([&](const std::string&) { save_as(folder.file("run"), tensors, one, 6); }); });
  CHECK(error.kind() == ErrorKind::filesystem);
  CHECK_THAT(error.what(), Contains("put in place " + target));
  CHECK(names_in(steps) == std::vector<std::string>{"latest", "step_00000006"});
  require_same_files(saved, target);  // the run's
}

TEST_CASE("a layout that leaves elements out is not committed", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const CheckpointReader source = open_alone(save_as(folder.file("run"), tensors, split_along(tensors, 1, 0), 6).path);
  Layout layout = split_along(tensors, 2, 0);
  layout[1].pop_back();
  layout[0].pop_back();
  layout[0].push_back({5, {{0}, {0}}, 0, 0});
  layout[1][0].count -= 1;
  CHECK_THROWS_AS(rewrite_checkpoint(source, folder.file("cut"), 2, layout_of(tensors, layout)), Error);
  CHECK(names_in(folder.path()) == std::vector<std::string>{"run"});
}

TEST_CASE("the comparison names what differs, and by how much", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto number = [](int tensor, int element, int kind) {
    return static_cast<float>(100 * tensor + 10 * kind + element);
  };
  const std::string a = save_numbers(folder.file("a"), number);
  const std::string b = save_numbers(folder.file("b"), [&](int tensor, int element, int kind) {
    const float same = number(tensor, element, kind);
    if (tensor == 1 && kind == 0 && element >= 3) return same + (element == 3 ? -0.5f : 0.25f);
    if (tensor == 0 && kind == 2 && element == 4) return NAN;
    if (tensor == 0 && kind == 1 && element == 0) return -same - 10 + 10;  // 10 becomes -10
    return same;
  });
  const auto differences = compare_tensors(open_alone(a), open_alone(b), true);
  REQUIRE(differences.size() == 2);
  CHECK(differences[0].name == "first");
  REQUIRE(differences[0].numbers.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(differences[0].numbers[i].dataset == std::array{"value", "m", "v"}[i]);
    CHECK(differences[0].numbers[i].differing == std::array{0, 1, 1}[i]);
    CHECK(differences[1].numbers[i].differing == std::array{2, 0, 0}[i]);
  }
  CHECK(differences[0].numbers[0].largest == 0);
  CHECK(differences[0].numbers[1].largest == 20);
  CHECK(std::isnan(differences[0].numbers[2].largest));
  CHECK(differences[1].numbers[0].largest == 0.5);
  CHECK_FALSE(differences[0].equal());
  CHECK_FALSE(differences[1].equal());

  const auto values = compare_tensors(open_alone(a), open_alone(b), false);
  CHECK(values[0].equal());  // its moments alone differ
  CHECK_FALSE(values[1].equal());
  const auto front = compare_tensors(open_alone(a), open_alone(b), false, {{"second", 3}});
  CHECK(front[1].equal());  // its elements from 3 on differ
  CHECK(front[1].elements == 3);
  CHECK(compare_tensors(open_alone(a), open_alone(b), false, {{"second", 4}})[1].differing() == 1);
  for (const TensorDifference& same : compare_tensors(open_alone(a), open_alone(a), true)) CHECK(same.equal());
}

TEST_CASE("save: parameters that are not finite are refused with 5", "[checkpoint][fault-66]") {
  const TemporaryFolder folder;
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const Error error = error_of([&] {
      save_numbers(folder.file("a"), [&](int tensor, int element, int kind) {
        return tensor == 1 && element == 3 && kind == 0 ? bad : 0.0f;
      });
    });
    CHECK(error.exit_code() == 5);
    CHECK_THAT(error.what(), Contains("no longer finite") && Contains("second"));
    CHECK(names_in(folder.file("a/checkpoints")).empty());
  }
}

TEST_CASE("tools: comparison tells minus zero from zero and equal NaNs are equal", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto number = [](int, int element, int kind) { return kind > 0 && element == 1 ? NAN : 0.0f; };
  const std::string a = save_numbers(folder.file("a"), number);
  const std::string b = save_numbers(folder.file("b"), [&](int tensor, int element, int kind) {
    return element == 2 ? -0.0f : number(tensor, element, kind);
  });
  const auto differences = compare_tensors(open_alone(a), open_alone(b), true);
  REQUIRE(differences[0].numbers.size() == 3);
  for (const NumberDifference& each : differences[0].numbers) {
    CHECK(each.largest == 0);
    CHECK(each.differing == 1);
  }
}

TEST_CASE("steps, facts, shapes and missing tensors are differences too", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  auto others = tensors;
  others[0].shape = {33, 9};
  others[1].name = "renamed";
  const auto a = open_alone(save_as(folder.file("a"), tensors, split_along(tensors, 2, 0), 6).path);
  const auto b = open_alone(save_as(folder.file("b"), others, split_along(others, 3, 0), 7, 0, 0).path);
  const std::vector<std::string> weights = other_differences(a, b, false);
  REQUIRE(weights.size() == 3);
  CHECK_THAT(weights[0], Contains("embedding.weight") && Contains("33, 8") && Contains("33, 9"));
  CHECK_THAT(weights[1], Contains("layers.0.norm.weight") && Contains("only in " + a.path()));
  CHECK_THAT(weights[2], Contains("renamed") && Contains("only in " + b.path()));
  const std::vector<std::string> all = other_differences(a, b, true);
  REQUIRE(all.size() == 7);
  CHECK_THAT(all[3], Contains("optimizer states: m, v and none"));
  CHECK_THAT(all[4], Contains("step: 6 and 7"));
  CHECK(compare_tensors(a, b, true).size() == tensors.size() - 2);
  CHECK(other_differences(a, a, true).empty());
}

TEST_CASE("tools: comparison tells other states, and compares common ones", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const Layout layout = split_along(tensors, 2, 0);
  const auto reversed = [](const std::string& tensor) {
    return tensor == "one" ? std::vector<std::string>{"momentum"} : states_by_shape(tensor);
  };
  const auto a = open_alone(save_as(folder.file("a"), tensors, layout, 6, 0, states_by_shape).path);
  const auto b = open_alone(save_as(folder.file("b"), tensors, layout, 6, 0, StatesOf(+reversed)).path);
  const auto c = open_alone(save_as(folder.file("c"), tensors, layout, 6).path);
  CHECK(other_differences(a, b, true) == std::vector<std::string>{"optimizer states of tensor one: none and momentum"});
  CHECK(other_differences(a, c, true) == std::vector<std::string>{"optimizer states: m, momentum, v and m, v"});
  CHECK(other_differences(a, c, false).empty());
  for (const TensorDifference& tensor : compare_tensors(a, c, true)) {
    CAPTURE(tensor.name);
    CHECK(tensor.equal());
    CHECK(tensor.numbers.size() == (states_by_shape(tensor.name).size() == 2 ? 3 : 1));
  }
  for (const TensorDifference& tensor : compare_tensors(a, b, true)) {
    CHECK(tensor.numbers.size() == 1 + states_by_shape(tensor.name).size());
  }
}

TEST_CASE("of the rest of the state those keys are compared that are asked for", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto number = [](int, int element, int) { return static_cast<float>(element); };
  TrainingState state = state_at(4);
  state.extra = {{"updates", 4}, {"loss_scaler", {{"scale", 1024}, {"good_steps", 4}}}, {"config", "one"}};
  const CheckpointReader a = open_alone(save_numbers(folder.file("a"), number, state));
  state.extra = {{"updates", 3}, {"loss_scaler", {{"scale", 512}, {"good_steps", 4}}}, {"config", "two"}};
  const CheckpointReader b = open_alone(save_numbers(folder.file("b"), number, state));
  CHECK(other_differences(a, b, true, {"updates", "loss_scaler", "absent"}) ==
        std::vector<std::string>{"loss_scaler.scale: 1024 and 512", "updates: 4 and 3"});
  CHECK(other_differences(a, b, false, {"updates", "loss_scaler"}).empty());
  CHECK(other_differences(a, b, true).empty());
}

TEST_CASE("tools: finds the newest complete checkpoint and warns of newer ones", "[checkpoint]") {
  const TemporaryFolder folder;
  const auto tensors = some_tensors();
  const std::string run = folder.file("run");
  const std::string older = save_as(run, tensors, split_along(tensors, 2, 0), 6).path;
  const std::string newer = save_as(run, tensors, split_along(tensors, 2, 0), 7).path;
  std::vector<std::string> warnings;
  CHECK(find_named_checkpoint(run, warnings) == newer);
  CHECK(find_named_checkpoint(run + "/checkpoints", warnings) == newer);
  CHECK(find_named_checkpoint(older, warnings) == older);
  CHECK(warnings.empty());
  std::filesystem::remove(newer + "/rank_00001.h5");
  CHECK(find_named_checkpoint(run, warnings) == older);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("step_00000007") && Contains("rank_00001.h5 is missing"));
  require_error(ErrorKind::checkpoint, {"step_00000007", "rank_00001.h5 is missing"},
                [&] { find_named_checkpoint(newer, warnings); });
  std::filesystem::remove(older + "/manifest.json");
  require_error(ErrorKind::checkpoint, {"no complete checkpoint", "step_00000006"},
                [&] { find_named_checkpoint(run, warnings); });
}
